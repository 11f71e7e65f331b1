// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/internal/tracecontext"
	"github.com/agentplatform/agentplatform/store"
)

// canary is a text of a caller, a model and a tool.
const canary = "CANARY-content"

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// sentHeader is a header for a collector.
const sentHeader = "tok3n"

// fakeStore has ended runs. It is safe for concurrent use.
type fakeStore struct {
	mu       sync.Mutex
	due      []store.DueTraces
	without  [][]uuid.UUID
	delayed  map[uuid.UUID]time.Duration // by project
	ended    []uuid.UUID
	dropped  int
	parent   string
	env      uuid.UUID
	toolText string
}

func (f *fakeStore) ClaimTraces(_ context.Context, c store.TraceClaim) (claimed []store.DueTraces, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.without = append(f.without, c.Without)
	claimed, f.due = f.due, nil
	return claimed, nil
}

func (f *fakeStore) DelayTraces(_ context.Context, project uuid.UUID, _ []uuid.UUID, wait time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delayed[project] = wait
	return nil
}

func (f *fakeStore) EndTraces(_ context.Context, _ uuid.UUID, runs []uuid.UUID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(f.ended, runs...)
	return nil
}

func (f *fakeStore) DropTraces(context.Context, time.Duration, int) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.dropped
	f.dropped = 0
	return n, nil
}

func (f *fakeStore) RunTraceparent(context.Context, store.Key) (string, error) { return f.parent, nil }

func (f *fakeStore) Run(_ context.Context, key store.Key) (store.Run, error) {
	begin := time.Unix(1000, 0)
	end := begin.Add(time.Second)
	return store.Run{
		ID: key.ID, ProjectID: key.ProjectID, EnvironmentID: f.env, AgentName: "clerk", Status: store.RunFailed, ErrorCode: "tool_failed",
		Error: canary, QueuedAt: begin, StartedAt: &begin, EndedAt: &end,
	}, nil
}

func (f *fakeStore) JournalAfter(_ context.Context, _ store.Key, after int64, _ int) ([]store.JournalEntry, error) {
	if after > 0 {
		return nil, nil
	}
	result, err := json.Marshal(map[string]any{"call_id": "call_1", "tool": "look", "result": map[string]any{"text": canary + f.toolText}, "at": "1970-01-01T00:16:40.5Z"})
	return []store.JournalEntry{
		{Sequence: 1, Kind: store.JournalModelAnswer, Data: json.RawMessage(`{"agent":"clerk","turn":1,"model":"openai/gpt-5","content":{"role":"model","parts":[{"text":"` + canary +
			`"}]},"finish_reason":"stop","usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5},"at":"1970-01-01T00:16:40Z","ms":100}`)},
		{Sequence: 2, Kind: store.JournalToolStarted, Data: json.RawMessage(`{"agent":"clerk","call_id":"call_1","tool":"look","arguments":{"q":"` + canary + `"},"at":"1970-01-01T00:16:40.2Z"}`)},
		{Sequence: 3, Kind: store.JournalToolResult, Data: result},
	}, err
}

// fakeKeys opens any headers.
type fakeKeys struct{}

func (fakeKeys) Open(field seal.Field, sealed []byte) ([]byte, error) {
	if field.Name != "telemetry" || field.Kind != "Project" {
		return nil, errors.New("another field")
	}
	return sealed, nil
}

// request is a request at a collector.
type request struct {
	path   string
	header http.Header
	spans  []*trace.ResourceSpans
}

// newCollector returns a collector that answers with a status, and its requests. It decodes them with the types of the
// protocol's authors.
func newCollector(t *testing.T, status int) (url string, requests <-chan request) {
	t.Helper()
	got := make(chan request, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var message collector.ExportTraceServiceRequest
		body, err := gzip.NewReader(r.Body)
		if err == nil {
			var raw []byte
			if raw, err = io.ReadAll(body); err == nil {
				err = proto.Unmarshal(raw, &message)
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		got <- request{r.URL.Path, r.Header.Clone(), message.ResourceSpans}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	return server.URL, got
}

// clock is a clock that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// newExporter returns an exporter that may reach this machine.
func newExporter(f *fakeStore, registry prometheus.Registerer) (*Exporter, *clock) {
	c := &clock{now: time.Unix(5000, 0)}
	f.delayed = map[uuid.UUID]time.Duration{}
	return New(Options{
		Store: f, Keys: fakeKeys{}, Logger: slog.New(slog.DiscardHandler), Now: c.Now, Metrics: metrics.NewGateway(registry),
		Guard: egress.New(egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.Telemetry: {netip.MustParsePrefix("127.0.0.0/8")}}}),
	}), c
}

// dueAt returns runs for a collector.
func dueAt(url string, withContent bool, runs ...uuid.UUID) store.DueTraces {
	return store.DueTraces{ProjectID: uuid.New(), Runs: runs, Telemetry: store.Telemetry{
		Endpoint: url, WithContent: withContent, SamplePercent: 100, SealedHeaders: []byte(`{"Authorization":"` + sentHeader + `"}`),
	}}
}

// exportAll exports what is due and waits for it.
func exportAll(t *testing.T, e *Exporter) {
	t.Helper()
	require.NoError(t, e.exportDue(t.Context()))
	e.active.Wait()
}

// A run is one trace with the IDs of its requests, without contents unless the project wants them.
func TestExporter_SendsTraces(t *testing.T) {
	for name, row := range map[string]struct {
		parent      string
		withContent bool
	}{
		"of the caller, no content": {traceparent, false}, "own, with content": {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "X-Platform=secret")
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
			url, requests := newCollector(t, http.StatusOK)
			f := &fakeStore{parent: row.parent, toolText: strings.Repeat("ä", maxValue)}
			run := uuid.New()
			f.due = []store.DueTraces{dueAt(url+"/", row.withContent, run)}
			registry := prometheus.NewRegistry()
			e, _ := newExporter(f, registry)
			exportAll(t, e)
			require.Equal(t, []uuid.UUID{run}, f.ended)
			got := <-requests
			require.Equal(t, "/v1/traces", got.path)
			require.Equal(t, sentHeader, got.header.Get("Authorization"))
			require.Empty(t, got.header.Get("X-Platform"))
			checkTrace(t, got.spans, run, row.parent)
			raw, err := proto.Marshal(got.spans[0])
			require.NoError(t, err)
			require.Equal(t, row.withContent, strings.Contains(string(raw), canary))
			require.Equal(t, map[string]float64{"dropped": 0, "exported": 1, "failed": 0}, countsOf(t, registry))
		})
	}
}

// countsOf returns the counted runs by outcome.
func countsOf(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() == "agentplatform_exported_traces_total" {
			for _, metric := range family.GetMetric() {
				counts[metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue()
			}
		}
	}
	return counts
}

// checkTrace checks the tree of the spans of a run, and that their attributes are known.
func checkTrace(t *testing.T, resources []*trace.ResourceSpans, run uuid.UUID, parent string) {
	t.Helper()
	require.Len(t, resources, 1)
	scope := resources[0].ScopeSpans[0]
	require.Equal(t, semconv.SchemaURL, scope.SchemaUrl)
	id := tracecontext.TraceOf(parent, run.String())
	known := map[string]*trace.Span{}
	for _, span := range scope.Spans {
		require.Equal(t, id[:], span.TraceId, span.Name)
		require.GreaterOrEqual(t, span.EndTimeUnixNano, span.StartTimeUnixNano, span.Name)
		known[string(span.SpanId)] = span
		for _, a := range span.Attributes {
			require.True(t, strings.HasPrefix(a.Key, "agentplatform.") || conventions[a.Key], a.Key)
			require.LessOrEqual(t, len(a.Value.GetStringValue()), maxValue, a.Key)
		}
	}
	call := tracecontext.SpanOf(run.String(), "call_1")
	require.Contains(t, known, string(call[:]), "the span that requests of the call name")
	for _, span := range scope.Spans {
		if root := tracecontext.SpanOf(run.String(), ""); string(span.SpanId) == string(root[:]) {
			want := []byte(nil)
			if p, ok := tracecontext.ParseTraceparent(parent); ok {
				want = p.Span[:]
			}
			require.Equal(t, want, span.ParentSpanId)
			require.Equal(t, trace.Status_STATUS_CODE_ERROR, span.Status.Code)
			continue
		}
		require.Contains(t, known, string(span.ParentSpanId), span.Name)
	}
	require.Len(t, scope.Spans, 4, "run, agent, model request and tool")
}

// conventions are the attributes of the pinned semantic conventions that spans may have.
var conventions = map[string]bool{
	string(semconv.GenAIAgentNameKey): true, string(semconv.GenAIOperationNameKey): true, string(semconv.GenAIProviderNameKey): true,
	string(semconv.GenAIRequestModelKey): true, string(semconv.GenAIResponseFinishReasonsKey): true, string(semconv.GenAIToolCallIDKey): true,
	string(semconv.GenAIToolNameKey): true, string(semconv.GenAIToolTypeKey): true, string(semconv.GenAIUsageInputTokensKey): true,
	string(semconv.GenAIUsageOutputTokensKey): true, string(semconv.GenAIUsageCacheReadInputTokensKey): true,
	string(semconv.GenAIUsageReasoningOutputTokensKey): true, string(semconv.GenAIInputMessagesKey): true, string(semconv.GenAIOutputMessagesKey): true,
	string(semconv.GenAIToolCallArgumentsKey): true, string(semconv.GenAIToolCallResultKey): true, string(semconv.ErrorTypeKey): true,
	string(semconv.McpMethodNameKey): true,
}

// A failed request is repeated after a pause that doubles. Old runs are dropped and counted.
func TestExporter_RepeatsFailedRequests(t *testing.T) {
	t.Parallel()
	url, requests := newCollector(t, http.StatusServiceUnavailable)
	f := &fakeStore{dropped: 3}
	registry := prometheus.NewRegistry()
	e, now := newExporter(f, registry)
	due := dueAt(url, false, uuid.New(), uuid.New())
	for n, wait := range []time.Duration{firstPause, 2 * firstPause, 4 * firstPause} {
		f.due = []store.DueTraces{due}
		exportAll(t, e)
		require.Len(t, (<-requests).spans[0].ScopeSpans[0].Spans, 8, "both runs in one request")
		require.Equal(t, wait, f.delayed[due.ProjectID], n)
		require.NotContains(t, f.without[len(f.without)-1], due.ProjectID)
		exportAll(t, e)
		require.Contains(t, f.without[len(f.without)-1], due.ProjectID, "it pauses")
		now.advance(wait)
	}
	require.Empty(t, f.ended)
	require.Equal(t, map[string]float64{"dropped": 3, "exported": 0, "failed": 6}, countsOf(t, registry))
	require.Equal(t, lastPause, pauseAfter(100))
}

// A collector that hangs delays its own project only.
func TestExporter_KeepsProjectsApart(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-release
	}))
	t.Cleanup(hanging.Close)
	url, requests := newCollector(t, http.StatusOK)
	f := &fakeStore{}
	e, _ := newExporter(f, nil)
	slow := dueAt(hanging.URL, false, uuid.New())
	f.due = []store.DueTraces{slow}
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, e.exportDue(ctx))
	<-arrived
	f.mu.Lock()
	f.due = []store.DueTraces{dueAt(url, false, uuid.New())}
	f.mu.Unlock()
	require.NoError(t, e.exportDue(ctx))
	<-requests
	f.mu.Lock()
	require.Equal(t, []uuid.UUID{slow.ProjectID}, f.without[1])
	f.mu.Unlock()
	cancel()
	close(release)
	e.active.Wait()
}

// Nothing reaches an address that the platform does not allow for the purpose.
func TestExporter_KeepsToAllowedAddresses(t *testing.T) {
	t.Parallel()
	url, requests := newCollector(t, http.StatusOK)
	f := &fakeStore{}
	e, _ := newExporter(f, nil)
	e.sender = newSender(egress.New(egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.Webhook: {netip.MustParsePrefix("127.0.0.0/8")}}}))
	f.due = []store.DueTraces{dueAt(url, false, uuid.New())}
	exportAll(t, e)
	require.Empty(t, f.ended)
	require.Empty(t, requests)
}

// A run outside the sample, or of another environment, is not exported and is not due again.
func TestExporter_SendsSample(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*store.Telemetry){
		"no percent":        func(to *store.Telemetry) { to.SamplePercent = 0 },
		"other environment": func(to *store.Telemetry) { to.Environments = []uuid.UUID{uuid.New()} },
	} {
		t.Run(name, func(t *testing.T) {
			url, requests := newCollector(t, http.StatusOK)
			f := &fakeStore{env: uuid.New()}
			e, _ := newExporter(f, nil)
			due := dueAt(url, false, uuid.New())
			edit(&due.Telemetry)
			f.due = []store.DueTraces{due}
			exportAll(t, e)
			require.Equal(t, due.Runs, f.ended)
			require.Empty(t, requests)
		})
	}
	sampled := 0
	for n := range 1000 {
		run := uuid.NewSHA1(uuid.Nil, []byte{byte(n), byte(n >> 8)})
		require.True(t, isSampled(run, 100))
		if isSampled(run, 25) {
			sampled++
		}
	}
	require.InDelta(t, 250, sampled, 60)
}

// A request that the collector refuses for good does not take the other runs with it: each is sent alone. A request that is
// accepted in part is not repeated.
func TestExporter_EndsRefusedRuns(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		status   int
		requests int
		counts   map[string]float64
	}{
		"too large": {http.StatusRequestEntityTooLarge, 3, map[string]float64{"dropped": 2, "exported": 0, "failed": 0}},
		"in part":   {http.StatusOK, 1, map[string]float64{"dropped": 0, "exported": 2, "failed": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			partial, err := proto.Marshal(&collector.ExportTraceServiceResponse{PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: 1}})
			require.NoError(t, err)
			var requests atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				w.Header().Set("Content-Type", "application/x-protobuf")
				w.WriteHeader(row.status)
				_, _ = w.Write(partial)
			}))
			t.Cleanup(server.Close)
			f := &fakeStore{}
			registry := prometheus.NewRegistry()
			e, _ := newExporter(f, registry)
			due := dueAt(server.URL, false, uuid.New(), uuid.New())
			f.due = []store.DueTraces{due}
			exportAll(t, e)
			require.EqualValues(t, row.requests, requests.Load())
			require.ElementsMatch(t, due.Runs, f.ended)
			require.Empty(t, f.delayed)
			require.Equal(t, row.counts, countsOf(t, registry))
		})
	}
}
