// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
)

// chosen is a value that a tenant can choose.
const chosen = "CANARY-chosen-by-a-tenant"

// served returns a new registry after count has used it.
func served(t *testing.T, count func(prometheus.Registerer)) metrictest.Served {
	t.Helper()
	registry := metrics.NewRegistry()
	count(registry)
	return metrictest.Of(t, registry)
}

// router has one route that responds and one that panics.
func router() http.Handler {
	r := chi.NewRouter()
	r.Get("/v1/things/{thing_id}", func(w http.ResponseWriter, r *http.Request) {
		switch chi.URLParam(r, "thing_id") {
		case "refused":
			w.WriteHeader(http.StatusTooManyRequests)
		case "broken":
			panic(http.ErrAbortHandler)
		}
	})
	return r
}

// ask sends a request through a handler that may panic.
func ask(t *testing.T, h http.Handler, method, path string) {
	t.Helper()
	defer func() { _ = recover() }()
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, path, nil))
}

// For all metrics the label values belong to a known set.
func TestMetrics_LabelsHaveKnownValues(t *testing.T) {
	t.Parallel()
	requests := func(h http.Handler) {
		for _, method := range []string{http.MethodGet, chosen} {
			for _, path := range []string{"/v1/things/" + chosen, "/" + chosen, "/v1/things/refused", "/v1/things/broken"} {
				ask(t, h, method, path)
			}
		}
	}
	for process, count := range map[string]func(prometheus.Registerer){
		metrics.ProcessGateway: func(r prometheus.Registerer) {
			g := metrics.NewGateway(r, nil)
			g.Accepted(chosen, false, 0)
			g.Refused(chosen)
			g.SyncWaits()
			g.SyncAnswered(chosen)
			g.Ended(chosen, 1)
			g.LeasesLost(chosen, 1)
			requests(g.Dispatch(router()))
		},
		metrics.ProcessFacade: func(r prometheus.Registerer) { requests(metrics.NewFacade(r).Count(router())) },
		metrics.ProcessManager: func(r prometheus.Registerer) {
			manager := metrics.NewManager(r)
			manager.LeaseFailed(chosen)
			manager.DestinationChanged(chosen)
		},
		metrics.ProcessRunner: func(r prometheus.Registerer) {
			runner := metrics.NewRunner(r, []string{"openai"}, []runerror.Code{runerror.ModelUnavailable})
			runner.Left(chosen)
			runner.Asked(chosen, chosen, 0, metrics.Tokens{})
			runner.Called(chosen)
		},
	} {
		t.Run(process, func(t *testing.T) {
			s := served(t, count)
			require.NotContains(t, s.Text(), chosen)
			require.Contains(t, s.Text(), `"other"`)
			s.CheckLabels(t)
		})
	}
}

func TestRequests_CountByRoute(t *testing.T) {
	t.Parallel()
	s := served(t, func(r prometheus.Registerer) {
		h := metrics.NewFacade(r).Count(router())
		for _, path := range []string{"/v1/things/a", "/v1/things/b", "/v1/things/refused", "/v1/things/broken", "/elsewhere"} {
			ask(t, h, http.MethodGet, path)
		}
		ask(t, h, "BREW", "/v1/things/a")
	})
	const total, route = "agentplatform_api_requests_total", "/v1/things/{thing_id}"
	for code, want := range map[string]float64{"200": 2, "429": 1, "none": 1} {
		t.Run(code, func(t *testing.T) {
			require.Equal(t, want, s.Value(t, total, "route", route, "code", code))
		})
	}
	require.InEpsilon(t, 1, s.Value(t, total, "route", "none", "code", "404"), 0)
	require.InEpsilon(t, 1, s.Value(t, total, "method", "other"), 0)
	require.InEpsilon(t, 1, s.Value(t, "agentplatform_api_refused_requests_total", "reason", "rate_limited"), 0)
	require.Zero(t, s.Value(t, "agentplatform_api_refused_requests_total", "reason", "unauthorized"))
	require.InEpsilon(t, 4, s.Value(t, "agentplatform_api_request_duration_seconds", "route", route), 0)
}

// does is an event with the samples that it changes.
type does struct {
	do   func(prometheus.Registerer)
	want map[string]float64
}

var errFailed = errors.New("failed")

func ofGateway(do func(*metrics.Gateway), want map[string]float64) does {
	return does{func(r prometheus.Registerer) { do(metrics.NewGateway(r, []string{"inbound", "sync"})) }, want}
}

func ofRunner(do func(*metrics.Runner), want map[string]float64) does {
	return does{func(r prometheus.Registerer) {
		do(metrics.NewRunner(r, []string{"openai"}, []runerror.Code{runerror.ModelUnavailable}))
	}, want}
}

var atGateways = map[string]does{
	"accepted": ofGateway(func(g *metrics.Gateway) { g.Accepted("sync", false, time.Second) }, map[string]float64{
		`agentplatform_webhooks_accepted_total{mode="sync",result="recorded"}`: 1, `agentplatform_webhook_acceptance_duration_seconds`: 1,
	}),
	"repeated": ofGateway(func(g *metrics.Gateway) { g.Accepted("inbound", true, time.Second) }, map[string]float64{
		`agentplatform_webhooks_accepted_total{mode="inbound",result="repeated"}`: 1, `agentplatform_webhook_acceptance_duration_seconds`: 1,
	}),
	"refused": ofGateway(func(g *metrics.Gateway) { g.Refused(httpserver.CodeInvalidSecret) }, map[string]float64{
		`agentplatform_webhooks_refused_total{code="invalid_secret"}`: 1,
	}),
	"waits": ofGateway(func(g *metrics.Gateway) { g.SyncWaits() }, map[string]float64{`agentplatform_webhook_sync_waiting`: 1}),
	"answered": ofGateway(func(g *metrics.Gateway) { g.SyncWaits(); g.SyncAnswered("completed") }, map[string]float64{
		`agentplatform_webhook_sync_answers_total{status="completed"}`: 1,
	}),
	"committed": ofGateway(func(g *metrics.Gateway) { g.Committed(3, time.Second, nil) }, map[string]float64{
		`agentplatform_webhook_commit_batch_size`: 1, `agentplatform_webhook_commit_duration_seconds`: 1,
	}),
	"not committed": ofGateway(func(g *metrics.Gateway) { g.Committed(3, time.Second, errFailed) }, map[string]float64{
		`agentplatform_webhook_commit_batch_size`: 1, `agentplatform_webhook_commit_duration_seconds`: 1, `agentplatform_webhook_commit_failures_total`: 1,
	}),
	"claimed": ofGateway(func(g *metrics.Gateway) { g.Claimed(time.Second) }, map[string]float64{
		`agentplatform_claimed_runs_total{attempt="first"}`: 1, `agentplatform_run_claim_wait_seconds`: 1,
	}),
	"claimed again": ofGateway(func(g *metrics.Gateway) { g.ClaimedAgain() }, map[string]float64{`agentplatform_claimed_runs_total{attempt="again"}`: 1}),
	"ended":         ofGateway(func(g *metrics.Gateway) { g.Ended("failed", 2) }, map[string]float64{`agentplatform_ended_runs_total{status="failed"}`: 2}),
	"pushed":        ofGateway(func(g *metrics.Gateway) { g.Pushed(metrics.PushIgnored) }, map[string]float64{`agentplatform_git_pushes_total{outcome="ignored"}`: 1}),
	"lost":          ofGateway(func(g *metrics.Gateway) { g.LeasesLost("given_back", 2) }, map[string]float64{`agentplatform_lost_leases_total{outcome="given_back"}`: 2}),
	"clocks":        ofGateway(func(g *metrics.Gateway) { g.StoreClockAhead(-90 * time.Second) }, map[string]float64{`agentplatform_store_clock_ahead_seconds`: -90}),
	"reachable":     ofGateway(func(g *metrics.Gateway) { g.StoreReachable(true) }, map[string]float64{`agentplatform_store_reachable`: 1}),
	"away":          ofGateway(func(g *metrics.Gateway) { g.StoreReachable(true); g.StoreReachable(false) }, map[string]float64{}),
}

var atRunners = map[string]does{
	"slots": ofRunner(func(r *metrics.Runner) { r.Slots(4) }, map[string]float64{`agentplatform_runner_slots`: 4}),
	"began": ofRunner(func(r *metrics.Runner) { r.Began() }, map[string]float64{`agentplatform_runner_runs`: 1}),
	"left": ofRunner(func(r *metrics.Runner) { r.Began(); r.Left(metrics.RunLost) }, map[string]float64{
		`agentplatform_runner_ended_runs_total{status="lost"}`: 1,
	}),
	"polled":     ofRunner(func(r *metrics.Runner) { r.Polled(nil) }, map[string]float64{`agentplatform_runner_polls_total{outcome="ok"}`: 1}),
	"not polled": ofRunner(func(r *metrics.Runner) { r.Polled(errFailed) }, map[string]float64{`agentplatform_runner_polls_total{outcome="error"}`: 1}),
	"asked": ofRunner(func(r *metrics.Runner) {
		r.Asked("openai", "ok", time.Second, metrics.Tokens{Input: 1, Output: 2, Thinking: 3, CachedInput: 4})
	}, map[string]float64{
		`agentplatform_runner_model_requests_total{outcome="ok",provider="openai"}`:      1,
		`agentplatform_runner_model_request_duration_seconds{provider="openai"}`:         1,
		`agentplatform_runner_model_tokens_total{kind="input",provider="openai"}`:        1,
		`agentplatform_runner_model_tokens_total{kind="output",provider="openai"}`:       2,
		`agentplatform_runner_model_tokens_total{kind="thinking",provider="openai"}`:     3,
		`agentplatform_runner_model_tokens_total{kind="cached_input",provider="openai"}`: 4,
	}),
	"a provider that miscounts": ofRunner(func(r *metrics.Runner) {
		r.Asked("openai", "model_unavailable", time.Second, metrics.Tokens{Input: -1})
	}, map[string]float64{
		`agentplatform_runner_model_requests_total{outcome="model_unavailable",provider="openai"}`: 1,
		`agentplatform_runner_model_request_duration_seconds{provider="openai"}`:                   1,
	}),
	"called": ofRunner(func(r *metrics.Runner) { r.Called(metrics.OutcomeOK) }, map[string]float64{
		`agentplatform_runner_tool_calls_total{outcome="ok"}`: 1,
	}),
}

var elsewhere = map[string]does{
	"looked up": {func(r prometheus.Registerer) { metrics.NewFacade(r).LookedUp(nil) }, map[string]float64{
		`agentplatform_api_key_lookups_total{outcome="answered"}`: 1,
	}},
	"not looked up": {func(r prometheus.Registerer) { metrics.NewFacade(r).LookedUp(errFailed) }, map[string]float64{
		`agentplatform_api_key_lookups_total{outcome="failed"}`: 1,
	}},
	"renewed": {func(r prometheus.Registerer) { metrics.NewManager(r).LeaseRenewed(time.UnixMilli(1500)) }, map[string]float64{
		`agentplatform_store_lease_renewed_timestamp_seconds`: 1.5,
	}},
	"not renewed": {func(r prometheus.Registerer) { metrics.NewManager(r).LeaseFailed(metrics.LeaseForeign) }, map[string]float64{
		`agentplatform_store_lease_failures_total{reason="foreign"}`: 1,
	}},
	"deliveries go again": {func(r prometheus.Registerer) { metrics.NewManager(r).DestinationChanged(metrics.DestinationResumed) }, map[string]float64{
		`agentplatform_connector_destination_changes_total{to="resumed"}`: 1,
	}},
}

// An event changes its own metric and no other.
func TestMetrics_CountTheirEvents(t *testing.T) {
	t.Parallel()
	for _, things := range []map[string]does{atGateways, atRunners, elsewhere} {
		for name, thing := range things {
			require.Equal(t, thing.want, served(t, thing.do).Moved(), name)
		}
	}
}
