// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/agentplatform/agentplatform/internal/runerror"
)

// Outcomes of runs in a runner in addition to completed and failed.
const (
	// RunReleased: the runner stops or could not continue, and released the run.
	RunReleased = "released"
	// RunLost: another runner has the run, or it ended otherwise.
	RunLost = "lost"
	// RunUnreported: the outcome could not be reported. The lease expires.
	RunUnreported = "unreported"
)

// Outcomes of calls.
const (
	OutcomeOK        = "ok"
	OutcomeError     = "error"
	OutcomeCancelled = "cancelled"
)

// Tokens are the tokens of a model's response.
type Tokens struct{ Input, Output, Thinking, CachedInput int64 }

// Runner are the metrics of a runner.
type Runner struct {
	running, slots prometheus.Gauge
	ended          counters
	polls          counters
	asked          *prometheus.CounterVec
	answered       *prometheus.HistogramVec
	tokens         *prometheus.CounterVec
	tools          counters
	drift          prometheus.Counter
	providers      []string
	outcomes       []string
}

// NewRunner registers a runner's metrics; nil registers none. providers are the types of model
// services. errors are the codes of failed requests.
func NewRunner(registry prometheus.Registerer, providers []string, errors []runerror.Code) *Runner {
	with := promauto.With(registry)
	r := &Runner{
		running: newGauge(registry, "agentplatform_runner_runs", "Runs that this runner executes now."),
		slots:   newGauge(registry, "agentplatform_runner_slots", "Number of slots: runs that this runner can execute at once."),
		ended: newCounters(registry, "agentplatform_runner_ended_runs_total",
			"Runs that this runner stopped executing, by status: completed, failed, cancelled, released (queued again to be resumed), "+
				"lost (another runner has the lease), or unreported (the gateway could not be reached).",
			"status", "completed", "failed", "cancelled", RunReleased, RunLost, RunUnreported),
		polls: newCounters(registry, "agentplatform_runner_polls_total", "Polls of the gateway for runs, by outcome.", "outcome", OutcomeOK, OutcomeError),
		asked: with.NewCounterVec(prometheus.CounterOpts{
			Name: "agentplatform_runner_model_requests_total",
			Help: "Model requests including retries, by provider type and outcome: ok, cancelled, or the error code.",
		}, []string{"provider", "outcome"}),
		answered: with.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "agentplatform_runner_model_request_duration_seconds",
			Help:    "Duration of model requests by provider type, including failed ones.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
		}, []string{"provider"}),
		tokens: with.NewCounterVec(prometheus.CounterOpts{
			Name: "agentplatform_runner_model_tokens_total",
			Help: "Tokens as reported by the provider, by provider type and kind. input includes cached_input.",
		}, []string{"provider", "kind"}),
		tools: newCounters(registry, "agentplatform_runner_tool_calls_total",
			"Tool calls by outcome. Results that a resumed run reads from its journal do not count.", "outcome", OutcomeOK, OutcomeError, OutcomeCancelled),
		drift: with.NewCounter(prometheus.CounterOpts{
			Name: "agentplatform_runner_mcp_drift_total",
			Help: "Lists of MCP servers that differ from the tools that the build pinned. A new deployment pins the tools again.",
		}),
		providers: providers,
		outcomes:  []string{OutcomeOK, OutcomeCancelled},
	}
	for _, code := range errors {
		r.outcomes = append(r.outcomes, string(code))
	}
	for _, provider := range providers {
		r.asked.WithLabelValues(provider, OutcomeOK)
		r.answered.WithLabelValues(provider)
		for _, kind := range tokenKinds {
			r.tokens.WithLabelValues(provider, kind)
		}
	}
	return r
}

var tokenKinds = []string{"input", "output", "thinking", "cached_input"}

// Slots sets the number of slots.
func (r *Runner) Slots(n int) { r.slots.Set(float64(n)) }

// Began counts a run that begins.
func (r *Runner) Began() { r.running.Inc() }

// Left counts a run that leaves the runner.
func (r *Runner) Left(status string) {
	r.running.Dec()
	r.ended.counterOf(status).Inc()
}

// Polled counts a claim request.
func (r *Runner) Polled(err error) {
	if err != nil {
		r.polls.counterOf(OutcomeError).Inc()
		return
	}
	r.polls.counterOf(OutcomeOK).Inc()
}

// Asked counts a model request.
func (r *Runner) Asked(provider, outcome string, took time.Duration, used Tokens) {
	provider = knownValue(provider, r.providers)
	r.asked.WithLabelValues(provider, knownValue(outcome, r.outcomes)).Inc()
	r.answered.WithLabelValues(provider).Observe(took.Seconds())
	for i, n := range []int64{used.Input, used.Output, used.Thinking, used.CachedInput} {
		// Values of a provider are untrusted, and a counter cannot decrease.
		r.tokens.WithLabelValues(provider, tokenKinds[i]).Add(float64(max(n, 0)))
	}
}

// Drifted counts a list of an MCP server that differs from the pinned tools.
func (r *Runner) Drifted() { r.drift.Inc() }

// Called counts a tool call.
func (r *Runner) Called(outcome string) { r.tools.counterOf(outcome).Inc() }
