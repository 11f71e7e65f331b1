// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
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
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/secrets"
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
	claims   []store.TraceClaim
	delays   map[uuid.UUID]time.Duration // by run
	ended    []uuid.UUID
	reads    int
	dropped  int
	parent   string
	env      uuid.UUID
	toolText string
	// readEntry is called before each entry is read.
	readEntry func(ctx context.Context, run uuid.UUID) error
}

func (f *fakeStore) ClaimTraces(_ context.Context, c store.TraceClaim) (claimed []store.DueTraces, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claims = append(f.claims, c)
	var left []store.DueTraces
	for _, d := range f.due {
		if slices.Contains(c.Without, d.ProjectID) || len(c.Only) > 0 && !slices.Contains(c.Only, d.ProjectID) ||
			len(c.Only) == 0 && len(claimed) == c.Projects {
			left = append(left, d)
			continue
		}
		if len(d.Runs) > c.Runs {
			more := d
			d.Runs, more.Runs = d.Runs[:c.Runs], d.Runs[c.Runs:]
			left = append(left, more)
		}
		claimed = append(claimed, d)
	}
	f.due = left
	return claimed, nil
}

func (f *fakeStore) DelayTraces(_ context.Context, _ uuid.UUID, runs []uuid.UUID, wait time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, run := range runs {
		f.delays[run] = wait
	}
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

// endedRuns returns the runs whose export has ended.
func (f *fakeStore) endedRuns() []uuid.UUID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ended)
}

// addDue adds due runs.
func (f *fakeStore) addDue(due ...store.DueTraces) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.due = append(f.due, due...)
}

// lastClaim returns the last claim.
func (f *fakeStore) lastClaim() store.TraceClaim {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.claims[len(f.claims)-1]
}

func (f *fakeStore) TracedRuns(_ context.Context, project uuid.UUID, runs []uuid.UUID) (found []store.TracedRun, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	begin := time.Unix(1000, 0)
	end := begin.Add(time.Second)
	for _, id := range sortedIDs(runs) {
		found = append(found, store.TracedRun{Traceparent: f.parent, BundleDigest: digest, Run: store.Run{
			ID: id, ProjectID: project, EnvironmentID: f.env, AgentName: "clerk", Status: store.RunFailed, ErrorCode: "tool_failed",
			Error: canary, QueuedAt: begin, StartedAt: &begin, EndedAt: &end,
		}})
	}
	return found, nil
}

// digest is the bundle of all runs.
const digest = "sha256:abc"

// storedAt is the time when the store got the last entry of a journal.
var storedAt = time.Unix(1000, 700_000_000)

func (f *fakeStore) RunJournals(ctx context.Context, _ uuid.UUID, runs []uuid.UUID, visit func(uuid.UUID, store.JournalEntry) error) error {
	f.mu.Lock()
	f.reads++
	f.mu.Unlock()
	result, err := json.Marshal(map[string]any{"call_id": "call_1", "tool": "look", "result": map[string]any{"text": canary + f.toolText}, "at": "1970-01-01T00:16:40.5Z"})
	if err != nil {
		return err
	}
	for _, run := range sortedIDs(runs) {
		for _, entry := range []store.JournalEntry{
			{Sequence: 1, Kind: store.JournalModelAnswer, Data: json.RawMessage(`{"agent":"clerk","turn":1,"model":"openai/gpt-5","content":{"role":"model","parts":[{"text":"` + canary +
				`"}]},"finish_reason":"stop","usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5},"at":"1970-01-01T00:16:40Z","ms":100,` +
				`"attempts":[{"at":"1970-01-01T00:16:40.05Z","model":"openai/gpt-5","error":"model_rate_limited"}]}`)},
			{Sequence: 2, Kind: store.JournalToolStarted, Data: json.RawMessage(`{"agent":"clerk","call_id":"call_1","tool":"look","arguments":{"q":"` + canary + `"},"at":"1970-01-01T00:16:40.2Z"}`)},
			{Sequence: 3, Kind: store.JournalToolResult, Data: result, At: storedAt},
		} {
			if f.readEntry != nil {
				if err := f.readEntry(ctx, run); err != nil {
					return err
				}
			}
			if err := visit(run, entry); err != nil {
				return err
			}
		}
	}
	return nil
}

func sortedIDs(ids []uuid.UUID) []uuid.UUID {
	return slices.SortedFunc(slices.Values(ids), func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
}

// newRuns returns IDs of runs.
func newRuns(n int) []uuid.UUID {
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.New()
	}
	return ids
}

// fakeKeys opens any headers.
type fakeKeys struct{}

func (fakeKeys) Open(field secrets.Field, sealed []byte) ([]byte, error) {
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

// timers has functions that an Exporter wants to call later. Tests call them.
type timers struct {
	mu    sync.Mutex
	calls []func()
}

// AfterFunc is the option of an Exporter.
func (t *timers) AfterFunc(_ time.Duration, call func()) func() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, call)
	return func() bool { return true }
}

// fireAll calls the functions.
func (t *timers) fireAll() {
	t.mu.Lock()
	calls := t.calls
	t.calls = nil
	t.mu.Unlock()
	for _, call := range calls {
		call()
	}
}

// newExporter returns an exporter that may reach this machine.
func newExporter(f *fakeStore, registry prometheus.Registerer) (*Exporter, *clocktesting.FakeClock) {
	c := clocktesting.NewFakeClock(time.Unix(5000, 0))
	f.delays = map[uuid.UUID]time.Duration{}
	return New(Options{
		Store: f, Keys: fakeKeys{}, Logger: slog.New(slog.DiscardHandler), Now: c.Now, Metrics: metrics.NewGateway(registry, nil),
		AfterFunc: (&timers{}).AfterFunc,
		Guard:     egress.New(egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.Telemetry: {netip.MustParsePrefix("127.0.0.0/8")}}}),
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
	require.NoError(t, e.dropOld(t.Context()))
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
	for _, name := range []string{"run clerk", "invoke_agent clerk"} {
		at := slices.IndexFunc(scope.Spans, func(s *trace.Span) bool { return s.Name == name })
		require.Contains(t, scope.Spans[at].Attributes, attribute(string(semconv.GenAIAgentVersionKey), digest))
	}
	at := slices.IndexFunc(scope.Spans, func(s *trace.Span) bool { return s.Name == "chat gpt-5" })
	require.Len(t, scope.Spans[at].Events, 1)
	require.EqualValues(t, time.Unix(1000, 50_000_000).UnixNano(), scope.Spans[at].Events[0].TimeUnixNano)
	require.Contains(t, scope.Spans[at].Events[0].Attributes, attribute(string(semconv.ErrorTypeKey), "model_rate_limited"))
	call := tracecontext.SpanOf(run.String(), "call_1")
	require.Contains(t, known, string(call[:]), "the span that requests of the call name")
	require.EqualValues(t, storedAt.UnixNano(), known[string(call[:])].EndTimeUnixNano, "an entry without a duration has the time of the store")
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
	string(semconv.McpMethodNameKey): true, string(semconv.GenAIAgentVersionKey): true,
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
		require.Equal(t, wait, f.delays[due.Runs[0]], n)
		require.NotContains(t, f.lastClaim().Without, due.ProjectID)
		exportAll(t, e)
		require.Contains(t, f.lastClaim().Without, due.ProjectID, "it pauses")
		now.Step(wait)
	}
	require.Empty(t, f.ended)
	require.Equal(t, map[string]float64{"dropped": 3, "exported": 0, "failed": 6}, countsOf(t, registry))
	require.Equal(t, lastPause, pauseAfter(100))
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

// A gateway without keys exports the traces of projects without headers. Other traces fail until they are dropped.
func TestExporter_NeedsKeysForHeaders(t *testing.T) {
	t.Parallel()
	url, requests := newCollector(t, http.StatusOK)
	sealed, plain := dueAt(url, false, newRuns(1)...), dueAt(url, false, newRuns(1)...)
	plain.Telemetry.SealedHeaders = nil
	f := &fakeStore{due: []store.DueTraces{sealed, plain}}
	registry := prometheus.NewRegistry()
	e, _ := newExporter(f, registry)
	e.opts.Keys = nil
	exportAll(t, e)
	require.Equal(t, plain.Runs, f.ended)
	require.Len(t, requests, 1)
	require.Equal(t, firstPause, f.delays[sealed.Runs[0]])
	require.Equal(t, map[string]float64{"dropped": 0, "exported": 1, "failed": 1}, countsOf(t, registry))
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
			require.Empty(t, f.delays)
			require.Equal(t, row.counts, countsOf(t, registry))
		})
	}
}
