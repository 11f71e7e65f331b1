// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
	"github.com/agentplatform/agentplatform/store"
)

// counted returns a setup with metrics.
func counted(t *testing.T) (*bundle, *prometheus.Registry) {
	registry := metrics.NewRegistry()
	metrics.Build(registry, metrics.ProcessGateway)
	return setupWith(t, func(o *Options) { o.Registry = registry }), registry
}

// moved has the samples after the requests of the test below.
var moved = map[string]float64{
	`agentplatform_webhooks_accepted_total{mode="inbound",result="recorded"}`:                        1,
	`agentplatform_webhooks_accepted_total{mode="inbound",result="repeated"}`:                        1,
	`agentplatform_webhooks_accepted_total{mode="sync",result="recorded"}`:                           1,
	`agentplatform_webhook_acceptance_duration_seconds`:                                              3,
	`agentplatform_webhooks_refused_total{code="idempotency_key_reused"}`:                            1,
	`agentplatform_webhooks_refused_total{code="webhook_not_found"}`:                                 2,
	`agentplatform_webhooks_refused_total{code="invalid_secret"}`:                                    1,
	`agentplatform_webhook_sync_answers_total{status="completed"}`:                                   1,
	`agentplatform_claimed_runs_total{attempt="first"}`:                                              2,
	`agentplatform_run_claim_wait_seconds`:                                                           2,
	`agentplatform_ended_runs_total{status="completed"}`:                                             1,
	`agentplatform_ended_runs_total{status="failed"}`:                                                1,
	`agentplatform_dispatch_requests_total{code="204",method="POST",route="/v1/runs/{id}/complete"}`: 2,
	`agentplatform_dispatch_requests_total{code="404",method="GET",route="none"}`:                    1,
}

// TestMetrics_Gateway: after webhooks, claims and ends of every kind, and requests with made-up
// names.
func TestMetrics_Gateway(t *testing.T) {
	t.Parallel()
	b, registry := counted(t)
	inbound, ask := b.connector("inbound", nil, "hello"), b.connector("sync", nil, "hello")
	keyed := func(r *http.Request) { r.Header.Set("Idempotency-Key", "CANARY-key") }
	for range 2 {
		require.Equal(t, http.StatusOK, b.post(b.gateway, inbound.ID.String(), `{"name":"CANARY-body"}`, keyed).status)
	}
	require.Equal(t, http.StatusUnprocessableEntity, b.post(b.gateway, inbound.ID.String(), `{}`, keyed).status)
	require.Equal(t, http.StatusNotFound, b.post(b.gateway, "CANARY-id", `{}`, nil).status)
	require.Equal(t, http.StatusNotFound, b.post(b.gateway, uuid.NewString(), `{}`, nil).status)
	require.Equal(t, http.StatusUnauthorized, b.post(b.gateway, inbound.ID.String(), `{}`, func(r *http.Request) {
		r.Header.Set("X-Service-Secret", "CANARY-secret")
	}).status)
	before := metrictest.Of(t, registry)
	require.InEpsilon(t, 1, before.Value(t, "agentplatform_queued_runs", "state", "no_runner", "class", "inbound"), 0)
	require.Zero(t, before.Value(t, "agentplatform_claimed_runs_total", "attempt", "first"))

	b.runner(func(run dispatchapi.Run) dispatchapi.CompleteRequest {
		if run.ConnectorID == inbound.ID {
			return dispatchapi.CompleteRequest{Token: run.Token, Status: "failed", ErrorCode: "canary_code", Error: "CANARY-error"}
		}
		return dispatchapi.CompleteRequest{Token: run.Token, Status: "completed", Output: "hello"}
	})
	require.Equal(t, http.StatusOK, b.post(b.gateway, ask.ID.String(), `{}`, nil).status)
	stranger, err := http.Get("http://" + b.gateway.InternalAddr() + "/CANARY-path")
	require.NoError(t, err)
	require.NoError(t, stranger.Body.Close())

	// Requests are counted shortly after their response.
	require.Eventually(t, func() bool {
		seen := metrictest.Of(t, registry).Moved()
		for name, value := range moved {
			if seen[name] != value {
				return false
			}
		}
		return true
	}, time.Minute, time.Millisecond, "%v", lazy(func() string { return metrictest.Of(t, registry).Text() }))
	s := metrictest.Of(t, registry)
	s.Check(t, metrics.ProcessGateway)
	require.NotContains(t, s.Text(), "CANARY")
	require.NotContains(t, s.Text(), "canary_code")
	require.NotContains(t, s.Text(), b.project.String())
	require.Zero(t, s.Value(t, "agentplatform_webhook_sync_waiting"))
	require.GreaterOrEqual(t, s.Value(t, "agentplatform_webhook_commit_batch_size"), 4.0, "including the duplicate key")
}

// lazy is a text that is computed when it is needed.
type lazy func() string

func (l lazy) String() string { return l() }

// TestMetrics_SyncWaiting: while a sync webhook waits, and by its outcome.
func TestMetrics_SyncWaiting(t *testing.T) {
	t.Parallel()
	waiting := make(waits, 1)
	registry := metrics.NewRegistry()
	b := setupWith(t, func(o *Options) { o.Registry, o.WithTimeout = registry, waiting.withTimeout })
	ask := b.connector("sync", nil, "hello")
	answer := make(chan int, 1)
	go func() { answer <- b.post(b.gateway, ask.ID.String(), `{}`, nil).status }()
	begun := <-waiting
	require.InEpsilon(t, 1, metrictest.Of(t, registry).Value(t, "agentplatform_webhook_sync_waiting"), 0)
	begun.end()
	require.Equal(t, http.StatusGatewayTimeout, <-answer)
	require.Zero(t, metrictest.Of(t, registry).Value(t, "agentplatform_webhook_sync_waiting"))
	require.InEpsilon(t, 1, metrictest.Of(t, registry).Value(t, "agentplatform_webhook_sync_answers_total", "status", "timeout"), 0)
}

// failing is a store that records nothing.
type failing struct{ store.Store }

var errAway = errors.New("away")

func (failing) Accept(context.Context, []store.Event) ([]store.Admission, error) { return nil, errAway }
func (failing) QueueFigures(context.Context) (store.QueueFigures, error) {
	return store.QueueFigures{Missing: store.AllQueueFigures}, errAway
}

// TestMetrics_OmitUnmeasuredQueue: the other metrics are served.
func TestMetrics_OmitUnmeasuredQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	registry := metrics.NewRegistry()
	metrics.Build(registry, metrics.ProcessGateway)
	gateway := b.serveWith(failing{b.store}, func(o *Options) { o.Registry = registry })
	c := b.connector("inbound", nil, "hello")
	require.Equal(t, http.StatusServiceUnavailable, b.post(gateway, c.ID.String(), `{}`, nil).status)
	s := metrictest.Of(t, registry)
	s.Check(t, metrics.ProcessGateway, "agentplatform_queued_runs", "agentplatform_queue_oldest_age_seconds", "agentplatform_running_runs", "agentplatform_outbox_oldest_age_seconds", "agentplatform_outbox_set_aside", "agentplatform_cron_oldest_due_age_seconds",
		"agentplatform_concurrency_keys_held", "agentplatform_blocked_runs",
		"agentplatform_dispatch_requests_total", "agentplatform_dispatch_request_duration_seconds")
	require.NotContains(t, s.Metrics, "agentplatform_queued_runs")
	require.Contains(t, s.Metrics, "agentplatform_queue_measurement_age_seconds")
	require.InEpsilon(t, 1, s.Value(t, "agentplatform_webhook_commit_failures_total"), 0)
	require.InEpsilon(t, 1, s.Value(t, "agentplatform_webhooks_refused_total", "code", "store_unavailable"), 0)
}

// figures is a queue that counts its measurements.
type figures struct{ asked int }

func (f *figures) QueueFigures(context.Context) (store.QueueFigures, error) {
	f.asked++
	return store.QueueFigures{Running: int64(f.asked)}, nil
}

// TestMetrics_CacheQueueMeasurement: frequent scrapes do not load the store.
func TestMetrics_CacheQueueMeasurement(t *testing.T) {
	t.Parallel()
	now, queue := time.Unix(0, 0), &figures{}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&queueCollector{queue: queue, logger: slog.New(slog.DiscardHandler), now: func() time.Time { return now }})
	ask := func() float64 { return metrictest.Of(t, registry).Value(t, "agentplatform_running_runs") }
	for range 3 {
		require.InEpsilon(t, 1, ask(), 0)
	}
	now = now.Add(queueAge)
	require.InEpsilon(t, 2, ask(), 0)
}

// TestMetrics_KnowAllErrorCodes: each error code of the ingress is a label value. Errors for
// accepted requests are no rejections.
func TestMetrics_KnowAllErrorCodes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("ingress/*.go")
	require.NoError(t, err)
	used := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(node ast.Node) bool {
			if s, ok := node.(*ast.SelectorExpr); ok {
				if of, ok := s.X.(*ast.Ident); ok && of.Name == "httpserver" && strings.HasPrefix(s.Sel.Name, "Code") && s.Sel.Name != "Code" {
					used[s.Sel.Name] = true
				}
			}
			return true
		})
	}
	codes := declared(t)
	answered := []httpserver.Code{httpserver.CodeSyncTimeout, httpserver.CodeGatewayStopping}
	for name := range used {
		require.Contains(t, append(metrics.WebhookRefusals, answered...), codes[name], name)
	}
	require.Len(t, used, len(metrics.WebhookRefusals)-1+len(answered), "RequestEnded is not an error code of a response")
}

// declared returns the constants of internal/httpserver/codes.go by name.
func declared(t *testing.T) map[string]httpserver.Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../internal/httpserver/codes.go", nil, 0)
	require.NoError(t, err)
	out := map[string]httpserver.Code{}
	ast.Inspect(file, func(node ast.Node) bool {
		if spec, ok := node.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if value, ok := spec.Values[0].(*ast.BasicLit); ok {
				out[spec.Names[0].Name] = httpserver.Code(strings.Trim(value.Value, `"`))
			}
		}
		return true
	})
	return out
}

// slowQueue cannot measure some figures.
type slowQueue struct{ missing []store.QueueFigure }

func (q *slowQueue) QueueFigures(context.Context) (store.QueueFigures, error) {
	figures := store.QueueFigures{
		Running: 1, TickAge: 0, OutboxAges: map[store.OutboxConsumer]time.Duration{store.ConsumerDeliveries: time.Minute, store.ConsumerRollups: 0},
	}
	if figures.Missing = q.missing; len(q.missing) > 0 {
		figures.Running, figures.OutboxAges = 2, nil
		return figures, errAway
	}
	return figures, nil
}

// TestMetrics_KeepUnmeasuredFigures: a figure that cannot be measured hides no other. It keeps its last
// value, and an age grows, so that an alert does not resolve.
func TestMetrics_KeepUnmeasuredFigures(t *testing.T) {
	t.Parallel()
	now, queue := time.Unix(0, 0), &slowQueue{}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&queueCollector{queue: queue, logger: slog.New(slog.DiscardHandler), now: func() time.Time { return now }})
	value := func(name string, labels ...string) float64 {
		return metrictest.Of(t, registry).Value(t, name, labels...)
	}
	outbox := func(consumer string) float64 {
		return value("agentplatform_outbox_oldest_age_seconds", "consumer", consumer)
	}
	require.InEpsilon(t, 60, outbox("deliveries"), 0)
	queue.missing = []store.QueueFigure{store.FigureOutbox}
	for range 3 {
		now = now.Add(time.Minute)
		require.InEpsilon(t, 2, value("agentplatform_running_runs"), 0)
	}
	require.InEpsilon(t, 240, outbox("deliveries"), 0)
	require.Zero(t, outbox("rollups"), "no row was waiting")
	require.InEpsilon(t, 180, value("agentplatform_queue_measurement_age_seconds", "figure", "outbox"), 0)
	require.Zero(t, value("agentplatform_queue_measurement_age_seconds", "figure", "running"))
	queue.missing, now = nil, now.Add(time.Minute)
	require.InEpsilon(t, 60, outbox("deliveries"), 0)
	require.Zero(t, value("agentplatform_queue_measurement_age_seconds", "figure", "outbox"))
}
