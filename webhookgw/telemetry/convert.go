// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/internal/tracecontext"
	"github.com/agentplatform/agentplatform/store"
)

// maxValue limits the value of an attribute in bytes.
const maxValue = 8 << 10

// serviceName is the name of the service and of the instrumentation scope of all spans.
const serviceName = "agentplatform"

// newResource returns the resource of a project without spans.
func newResource(project uuid.UUID) *trace.ResourceSpans {
	return &trace.ResourceSpans{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{
			attribute("service.name", serviceName), attribute("agentplatform.project.id", project.String()),
		}},
		ScopeSpans: []*trace.ScopeSpans{{Scope: &common.InstrumentationScope{Name: serviceName}, SchemaUrl: semconv.SchemaURL}},
	}
}

// buildTrace returns the trace of a run, whose journal the builder has.
func buildTrace(run store.Run, b *runtrace.Builder) runtrace.Trace {
	return b.BuildTrace(runtrace.Run{
		ID: run.ID.String(), AgentName: run.AgentName, Status: string(run.Status), ErrorCode: string(run.ErrorCode), Error: run.Error,
		Attempt: run.Attempt, Queued: run.QueuedAt, Started: timeOf(run.StartedAt), Ended: timeOf(run.EndedAt),
	})
}

func timeOf(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return *at
}

// convertTrace returns the spans of a run as OTLP. Without content, spans have no text that a caller, model or tool wrote.
func convertTrace(run store.Run, traceparent string, computed runtrace.Trace, withContent bool) []*trace.Span {
	id := tracecontext.TraceOf(traceparent, run.ID.String())
	out := make([]*trace.Span, 0, len(computed.Spans))
	for i := range computed.Spans {
		s := &computed.Spans[i]
		span := &trace.Span{
			TraceId: id[:], SpanId: bytesOf(s.ID), ParentSpanId: bytesOf(s.Parent), Name: s.Name, Kind: spanKind(s.Kind),
			Attributes: attributesOf(s, withContent), Events: eventsOf(s, withContent), Status: statusOf(s, withContent),
		}
		span.StartTimeUnixNano = nanoseconds(s.Start, run.QueuedAt)
		span.EndTimeUnixNano = max(nanoseconds(s.End, s.Start), span.StartTimeUnixNano)
		if s.Kind == runtrace.KindRun {
			if parent, ok := tracecontext.ParseTraceparent(traceparent); ok {
				span.ParentSpanId = parent.Span[:]
			}
			span.Attributes = append(span.Attributes,
				attribute("agentplatform.environment.id", run.EnvironmentID.String()), attribute("agentplatform.spans.omitted", computed.MoreSpans))
		}
		out = append(out, span)
	}
	return out
}

// nanoseconds returns a time in nanoseconds since 1970, or another time if it is not known.
func nanoseconds(at, otherwise time.Time) uint64 {
	if at.IsZero() {
		at = otherwise
	}
	return uint64(max(at.UnixNano(), 0))
}

func bytesOf(id string) []byte {
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) == 0 {
		return nil
	}
	return raw
}

func spanKind(kind runtrace.Kind) trace.Span_SpanKind {
	switch kind {
	case runtrace.KindModel, runtrace.KindMCP, runtrace.KindEffect:
		return trace.Span_SPAN_KIND_CLIENT
	}
	return trace.Span_SPAN_KIND_INTERNAL
}

func statusOf(s *runtrace.Span, withContent bool) *trace.Status {
	if s.ErrorType == "" && s.Error == "" {
		return nil
	}
	status := &trace.Status{Code: trace.Status_STATUS_CODE_ERROR}
	if withContent {
		status.Message = cutText(s.Error)
	}
	return status
}

// contentNames are the attributes for the input and the output of a span by its kind.
func contentNames(kind runtrace.Kind) (input, output string) {
	switch kind {
	case runtrace.KindModel:
		return "gen_ai.input.messages", "gen_ai.output.messages"
	case runtrace.KindTool, runtrace.KindMCP:
		return "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"
	}
	return "agentplatform.input", "agentplatform.output"
}

// sortedAttributes returns attributes in the order of their names.
func sortedAttributes(attributes map[string]any) (out []*common.KeyValue) {
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		out = append(out, attribute(name, attributes[name]))
	}
	return out
}

func eventsOf(s *runtrace.Span, withContent bool) (out []*trace.Span_Event) {
	for _, e := range s.Events {
		attributes := maps.Clone(e.Attributes)
		if !withContent {
			delete(attributes, runtrace.ProgressMessage)
		}
		out = append(out, &trace.Span_Event{Name: e.Name, TimeUnixNano: nanoseconds(e.At, s.Start), Attributes: sortedAttributes(attributes)})
	}
	return out
}

func attributesOf(s *runtrace.Span, withContent bool) []*common.KeyValue {
	out := sortedAttributes(s.Attributes)
	if s.ErrorType != "" {
		out = append(out, attribute("error.type", s.ErrorType))
	}
	if !withContent {
		return out
	}
	input, output := contentNames(s.Kind)
	if len(s.Input) > 0 {
		out = append(out, attribute(input, string(s.Input)))
	}
	if len(s.Output) > 0 {
		out = append(out, attribute(output, string(s.Output)))
	}
	return out
}

func attribute(name string, value any) *common.KeyValue {
	return &common.KeyValue{Key: name, Value: valueOf(value)}
}

func valueOf(value any) *common.AnyValue {
	switch v := value.(type) {
	case string:
		return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: cutText(v)}}
	case bool:
		return &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: v}}
	case int:
		return &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: int64(v)}}
	case int64:
		return &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: v}}
	case float64:
		return &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: v}}
	case []string:
		list := &common.ArrayValue{}
		for _, text := range v {
			list.Values = append(list.Values, valueOf(text))
		}
		return &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: list}}
	}
	return valueOf(fmt.Sprint(value))
}

// cutText returns a text of bounded size in valid UTF-8, which protocol buffers require.
func cutText(text string) string {
	if len(text) > maxValue {
		text = text[:maxValue]
	}
	return strings.ToValidUTF8(text, "")
}
