// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

const (
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
	target := strings.TrimSuffix(endpoint, "/") + tracesPath
	if _, err := url.Parse(target); err != nil { // the exporter would send to its default instead
		return fmt.Errorf("reading the endpoint: %w", err)
	}
	client := otlptracehttp.NewClient(
		otlptracehttp.WithEndpointURL(target), otlptracehttp.WithHeaders(headers),
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

// errSlow means that a request ended early because it was slow and no slow slot was free.
var errSlow = errors.New("the collector is slow")

// sendUpload sends the spans of runs in one request. If the collector refuses it, the halves are sent, and a run that is refused
// alone is dropped. It returns the number of runs that are done, which are the first ones.
func (e *Exporter) sendUpload(ctx context.Context, d store.DueTraces, headers map[string]string, runs []runSpans) (done int, err error) {
	ctx, cancel := e.opts.WithTimeout(ctx, sendTime)
	defer cancel()
	return e.sendRuns(ctx, d, headers, runs)
}

func (e *Exporter) sendRuns(ctx context.Context, d store.DueTraces, headers map[string]string, runs []runSpans) (done int, err error) {
	spans := newResource(d.ProjectID)
	for _, run := range runs {
		spans.ScopeSpans[0].Spans = append(spans.ScopeSpans[0].Spans, run...)
	}
	if len(spans.ScopeSpans[0].Spans) == 0 {
		return len(runs), nil
	}
	err = e.sendRequest(ctx, d, headers, spans)
	switch {
	case err == nil:
		e.opts.Metrics.Traced(metrics.TraceExported, len(runs))
		return len(runs), nil
	case !errors.Is(err, errRefused):
		return 0, err
	case len(runs) == 1:
		e.opts.Metrics.Traced(metrics.TraceDropped, 1)
		e.opts.Logger.WarnContext(ctx, "a collector refuses a trace", "project", d.ProjectID, "error", err)
		return 1, nil
	}
	half := len(runs) / 2
	if done, err = e.sendRuns(ctx, d, headers, runs[:half]); err != nil {
		return done, err
	}
	more, err := e.sendRuns(ctx, d, headers, runs[half:])
	return done + more, err
}

// sendRequest sends a request. If it is slow, the project continues in a slow slot; without one, the request ends.
func (e *Exporter) sendRequest(ctx context.Context, d store.DueTraces, headers map[string]string, spans *trace.ResourceSpans) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := e.opts.AfterFunc(slowAfter, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.slots.makeSlow(d.ProjectID) {
			cancel(errSlow)
		}
	})
	defer stop()
	err := e.sender.sendSpans(ctx, d.Telemetry.Endpoint, headers, spans)
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errSlow):
		return errSlow
	}
	text := excerpt.Of(err.Error(), maxLogged, excerpt.Ellipsis)
	if errors.Is(err, errRefused) {
		return fmt.Errorf("%w: %s", errRefused, text)
	}
	return fmt.Errorf("sending to the collector: %s", text)
}

// openHeaders returns the headers for a collector.
func (e *Exporter) openHeaders(d store.DueTraces) (headers map[string]string, err error) {
	headers = map[string]string{}
	if len(d.Telemetry.SealedHeaders) == 0 {
		return headers, nil
	}
	if e.opts.Keys == nil {
		return nil, errors.New("the headers for the collector are sealed, and the gateway has no keys; set --keys-dir")
	}
	plain, err := e.opts.Keys.Open(secrets.TelemetryField(d.ProjectID), d.Telemetry.SealedHeaders)
	if err != nil {
		return nil, fmt.Errorf("opening the headers for the collector: %w", err)
	}
	if json.Unmarshal(plain, &headers) != nil {
		return nil, errors.New("the headers for the collector cannot be read")
	}
	return headers, nil
}
