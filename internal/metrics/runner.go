// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Ends of runs in a runner beside completed and failed.
const (
	// RunReleased was given back: the runner stops, or could not go on.
	RunReleased = "released"
	// RunLost is another runner's by now, or ended otherwise.
	RunLost = "lost"
	// RunUnreported left without dispatch knowing: its lease ends it.
	RunUnreported = "unreported"
)

// Outcomes of calls.
const (
	OutcomeOK        = "ok"
	OutcomeError     = "error"
	OutcomeCancelled = "cancelled"
)

// Tokens are those of a model's answer.
type Tokens struct{ Input, Output, Thinking, CachedInput int64 }

// Runner is what a runner counts.
type Runner struct {
	running, places prometheus.Gauge
	ended           counters
	polls           counters
	asked           *prometheus.CounterVec
	answered        *prometheus.HistogramVec
	tokens          *prometheus.CounterVec
	tools           counters
	providers       []string
	outcomes        []string
}

// NewRunner registers a runner's metrics; nil registers them nowhere. Providers
// are the types of model services that it speaks to, and errors the codes by which
// their requests fail.
func NewRunner(registry prometheus.Registerer, providers, errors []string) *Runner {
	with := promauto.With(registry)
	r := &Runner{
		running: newGauge(registry, "agentplatform_runner_runs", "Runs that this runner executes at the moment."),
		places:  newGauge(registry, "agentplatform_runner_places", "Runs that this runner can execute at a time."),
		ended: newCounters(registry, "agentplatform_runner_ended_runs_total",
			"Runs that left this runner, by how: completed, failed or cancelled; released, given back to be resumed; lost, another runner's by now; "+
				"or unreported, when the gateway could not be told of the end.",
			"status", "completed", "failed", "cancelled", RunReleased, RunLost, RunUnreported),
		polls: newCounters(registry, "agentplatform_runner_polls_total", "Requests for runs to the gateway, by outcome.", "outcome", OutcomeOK, OutcomeError),
		asked: with.NewCounterVec(prometheus.CounterOpts{
			Name: "agentplatform_runner_model_requests_total",
			Help: "Requests to models, each try of one counted, by the type of the model's provider and by outcome: ok, cancelled, or the code of the error.",
		}, []string{"provider", "outcome"}),
		answered: with.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "agentplatform_runner_model_request_duration_seconds",
			Help:    "How long requests to models took, also those that failed, by the type of the model's provider.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
		}, []string{"provider"}),
		tokens: with.NewCounterVec(prometheus.CounterOpts{
			Name: "agentplatform_runner_model_tokens_total",
			Help: "Tokens of models' answers as the provider counts them, by the type of the provider and by kind; cached_input is part of input.",
		}, []string{"provider", "kind"}),
		tools: newCounters(registry, "agentplatform_runner_tool_calls_total",
			"Calls of tools, by outcome; what was answered from a journal is no call.", "outcome", OutcomeOK, OutcomeError, OutcomeCancelled),
		providers: providers,
		outcomes:  append([]string{OutcomeOK, OutcomeCancelled}, errors...),
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

// Places says how many runs may be executed at a time.
func (r *Runner) Places(n int) { r.places.Set(float64(n)) }

// Began counts a run that is executed from now on.
func (r *Runner) Began() { r.running.Inc() }

// Left counts a run that is no longer executed.
func (r *Runner) Left(status string) {
	r.running.Dec()
	r.ended.of(status).Inc()
}

// Polled counts a request for runs.
func (r *Runner) Polled(err error) {
	if err != nil {
		r.polls.of(OutcomeError).Inc()
		return
	}
	r.polls.of(OutcomeOK).Inc()
}

// Asked counts a request to a model.
func (r *Runner) Asked(provider, outcome string, took time.Duration, used Tokens) {
	provider = known(provider, r.providers)
	r.asked.WithLabelValues(provider, known(outcome, r.outcomes)).Inc()
	r.answered.WithLabelValues(provider).Observe(took.Seconds())
	for i, n := range []int64{used.Input, used.Output, used.Thinking, used.CachedInput} {
		// What a provider says is not to be trusted: a counter cannot go back.
		r.tokens.WithLabelValues(provider, tokenKinds[i]).Add(float64(max(n, 0)))
	}
}

// Called counts a call of a tool.
func (r *Runner) Called(outcome string) { r.tools.of(outcome).Inc() }
