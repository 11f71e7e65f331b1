// SPDX-License-Identifier: Apache-2.0

// Package tracecontext reads and derives W3C trace contexts. All IDs are derived from the ID of a run, so a repeated attempt
// sends the same IDs, and a run that is exported twice is one trace.
package tracecontext

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
)

// Header is the name of the header, Field the name of the field in the metadata of an MCP request.
const (
	Header = "Traceparent"
	Field  = "traceparent"
)

// Size is the length of a traceparent of version 00 in bytes.
const Size = 55

// Positions of the parts of a traceparent, as in 00-<trace ID>-<span ID>-<flags>.
const (
	version  = "00-"
	traceAt  = len(version)
	traceEnd = traceAt + 2*len(TraceID{})
	spanAt   = traceEnd + 1
	spanEnd  = spanAt + 2*len(SpanID{})
	flagsAt  = spanEnd + 1
	// sampled is the flag of a recorded trace.
	sampled = 1
)

// TraceID identifies a trace. SpanID identifies a span in a trace.
type (
	TraceID [16]byte
	SpanID  [8]byte
)

// String returns the ID in lower-case hexadecimal digits.
func (t TraceID) String() string { return hex.EncodeToString(t[:]) }

// String returns the ID in lower-case hexadecimal digits.
func (s SpanID) String() string { return hex.EncodeToString(s[:]) }

// Parent is the content of a traceparent.
type Parent struct {
	Trace TraceID
	Span  SpanID
	// IsSampled is true if the caller records its part of the trace.
	IsSampled bool
}

// ParseTraceparent reads a traceparent of version 00.
func ParseTraceparent(text string) (p Parent, ok bool) {
	if len(text) != Size || text[:traceAt] != version || text[traceEnd] != '-' || text[spanEnd] != '-' {
		return p, false
	}
	var flags [1]byte
	if !decodeHex(p.Trace[:], text[traceAt:traceEnd]) || !decodeHex(p.Span[:], text[spanAt:spanEnd]) || !decodeHex(flags[:], text[flagsAt:]) {
		return Parent{}, false
	}
	p.IsSampled = flags[0]&sampled != 0
	return p, p.Trace != TraceID{} && p.Span != SpanID{}
}

// decodeHex decodes lower-case hexadecimal digits.
func decodeHex(into []byte, text string) bool {
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	_, err := hex.Decode(into, []byte(text))
	return err == nil
}

// FromHeader returns the traceparent of a request; "" if the request has none, several or an invalid one.
func FromHeader(header http.Header) string {
	values := header.Values(Header)
	if len(values) != 1 {
		return ""
	}
	if _, ok := ParseTraceparent(values[0]); !ok {
		return ""
	}
	return values[0]
}

// TraceOf returns the trace of a run: that of the traceparent of its event, or one that is derived from the ID of the run.
// Bytes of the ID of a run are not random enough to be used as they are.
func TraceOf(traceparent, run string) TraceID {
	if p, ok := ParseTraceparent(traceparent); ok {
		return p.Trace
	}
	sum := sha256.Sum256([]byte("trace " + run))
	return TraceID(sum[:len(TraceID{})])
}

// SpanOf returns the span at a position of a run. "" is the run itself, and a call ID is a call of a tool or an effect of
// a script.
func SpanOf(run, position string) SpanID {
	sum := sha256.Sum256([]byte("span " + run + " " + position))
	return SpanID(sum[:len(SpanID{})])
}

// TraceparentOf returns the traceparent that a request carries if the span at a position of a run causes it. traceparent is that of
// the event of the run, or "". Without one the receiver decides as if the trace was recorded.
func TraceparentOf(traceparent, run, position string) string {
	flags := "01"
	if p, ok := ParseTraceparent(traceparent); ok && !p.IsSampled {
		flags = "00"
	}
	return version + TraceOf(traceparent, run).String() + "-" + SpanOf(run, position).String() + "-" + flags
}

type key struct{}

// WithTraceparent returns a context for the requests of an action.
func WithTraceparent(ctx context.Context, traceparent string) context.Context {
	return context.WithValue(ctx, key{}, traceparent)
}

// CurrentTraceparent returns the traceparent for the requests of the current action; "" outside an action.
func CurrentTraceparent(ctx context.Context) string {
	text, _ := ctx.Value(key{}).(string)
	return text
}
