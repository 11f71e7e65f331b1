// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// maxRequest is the size in bytes from which a request is sent before more runs are added. Collectors accept 4 MiB or more.
	maxRequest = 1 << 20
	// maxResponse limits the response of a collector in bytes.
	maxResponse = 64 << 10
	// maxLogged limits what a collector can write into the log, in bytes.
	maxLogged = 512
	// tracesPath is the path below the endpoint of a collector.
	tracesPath = "/v1/traces"
)

// sender sends spans to collectors.
type sender struct{ client *http.Client }

func newSender(guard *egress.Guard) *sender {
	return &sender{client: guard.Client(egress.Telemetry, egress.ClientOptions{MaxResponse: maxResponse})}
}

// errRefused means that the collector will never accept a request, for example because it is too large.
var errRefused = errors.New("the collector refuses the request")

// statusRecorder keeps the status of the last response.
type statusRecorder struct {
	next   http.RoundTripper
	status int
}

// RoundTrip implements http.RoundTripper.
func (r *statusRecorder) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	if err == nil {
		r.status = resp.StatusCode
	}
	return resp, err
}

// sendSpans sends spans once. The headers replace the ones in environment variables of the gateway. A collector that accepts a
// request in part has got it: OTLP forbids to repeat the rest.
func (s *sender) sendSpans(ctx context.Context, endpoint string, headers map[string]string, spans *trace.ResourceSpans) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	recorder := &statusRecorder{next: s.client.Transport}
	recording := *s.client
	recording.Transport = recorder
	client := otlptracehttp.NewClient(
		otlptracehttp.WithEndpointURL(strings.TrimSuffix(endpoint, "/")+tracesPath), otlptracehttp.WithHeaders(headers),
		otlptracehttp.WithHTTPClient(&recording), otlptracehttp.WithCompression(otlptracehttp.GzipCompression),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}),
	)
	err := client.UploadTraces(ctx, []*trace.ResourceSpans{spans})
	switch recorder.status {
	case http.StatusOK, http.StatusAccepted:
		return nil
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return err
}

// upload has the spans of runs that are sent together.
type upload struct {
	// runs are the runs that the upload ends, also those without spans.
	runs []uuid.UUID
	// spans are the spans of each exported run.
	spans [][]*trace.Span
	size  int
}

func (u *upload) add(run uuid.UUID, spans []*trace.Span) {
	u.runs = append(u.runs, run)
	if len(spans) == 0 {
		return
	}
	u.spans = append(u.spans, spans)
	for _, span := range spans {
		u.size += proto.Size(span)
	}
}

// sendRuns sends the traces of claimed runs, in requests of bounded size. It returns the runs that are left after an error.
func (e *Exporter) sendRuns(ctx context.Context, d store.DueTraces) (left []uuid.UUID, err error) {
	left = d.Runs
	headers, err := e.openHeaders(d)
	if err != nil {
		return left, err
	}
	next := &upload{}
	for i, id := range d.Runs {
		found, err := e.spansOf(ctx, d, store.Key{ProjectID: d.ProjectID, ID: id})
		if err != nil {
			return left, err
		}
		if next.add(id, found); next.size < maxRequest && i < len(d.Runs)-1 {
			continue
		}
		if err := e.sendRequest(ctx, d, headers, next.spans); err != nil {
			return left, fmt.Errorf("sending to the collector: %s", excerpt.Of(err.Error(), maxLogged, excerpt.Ellipsis))
		}
		if err := e.opts.Store.EndTraces(ctx, d.ProjectID, next.runs); err != nil {
			return left, err
		}
		left, next = d.Runs[i+1:], &upload{}
	}
	return nil, nil
}

// sendRequest sends the spans of runs in one request. If the collector refuses it, each run is sent alone, and a run that is
// refused again is dropped.
func (e *Exporter) sendRequest(ctx context.Context, d store.DueTraces, headers map[string]string, runs [][]*trace.Span) error {
	if len(runs) == 0 {
		return nil
	}
	spans := newResource(d.ProjectID)
	spans.ScopeSpans[0].Spans = slices.Concat(runs...)
	err := e.sender.sendSpans(ctx, d.Telemetry.Endpoint, headers, spans)
	switch {
	case err == nil:
		e.opts.Metrics.Traced(metrics.TraceExported, len(runs))
		return nil
	case !errors.Is(err, errRefused):
		return err
	case len(runs) == 1:
		e.opts.Metrics.Traced(metrics.TraceDropped, 1)
		e.opts.Logger.WarnContext(ctx, "a collector refuses a trace", "project", d.ProjectID,
			"error", excerpt.Of(err.Error(), maxLogged, excerpt.Ellipsis))
		return nil
	}
	for _, one := range runs {
		if err := e.sendRequest(ctx, d, headers, [][]*trace.Span{one}); err != nil {
			return err
		}
	}
	return nil
}

// openHeaders returns the headers for a collector.
func (e *Exporter) openHeaders(d store.DueTraces) (headers map[string]string, err error) {
	headers = map[string]string{}
	if len(d.Telemetry.SealedHeaders) == 0 {
		return headers, nil
	}
	plain, err := e.opts.Keys.Open(seal.TelemetryField(d.ProjectID), d.Telemetry.SealedHeaders)
	if err != nil {
		return nil, fmt.Errorf("opening the headers for the collector: %w", err)
	}
	if json.Unmarshal(plain, &headers) != nil {
		return nil, errors.New("the headers for the collector cannot be read")
	}
	return headers, nil
}

// isSampled decides by the ID of the run, so every gateway and attempt decides alike.
func isSampled(run uuid.UUID, percent int) bool {
	sum := sha256.Sum256(run[:])
	return binary.BigEndian.Uint64(sum[:8])%100 < uint64(max(percent, 0))
}

// spansOf returns the spans of a run; none if it is not exported or no longer stored.
func (e *Exporter) spansOf(ctx context.Context, d store.DueTraces, key store.Key) ([]*trace.Span, error) {
	if !isSampled(key.ID, d.Telemetry.SamplePercent) {
		return nil, nil
	}
	run, err := e.opts.Store.Run(ctx, key)
	if errors.Is(err, store.ErrNotFound) || err == nil && !d.Telemetry.Covers(run.EnvironmentID) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	traceparent, err := e.opts.Store.RunTraceparent(ctx, key)
	if err != nil {
		return nil, err
	}
	computed, err := e.computeTrace(ctx, run)
	if err != nil {
		return nil, err
	}
	return convertTrace(run, traceparent, computed, d.Telemetry.WithContent), nil
}
