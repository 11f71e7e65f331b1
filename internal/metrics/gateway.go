// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// RequestEnded is the code of a webhook whose request ended before it was answered.
const RequestEnded httpserver.Code = "request_ended"

// WebhookRefusals are the codes by which webhooks are refused.
var WebhookRefusals = []httpserver.Code{
	httpserver.CodeWebhookNotFound, httpserver.CodeOutboundOnly, httpserver.CodeNoWebhook, httpserver.CodeInvalidSecret, httpserver.CodeConnectorRetired, httpserver.CodeGone,
	httpserver.CodeInvalidSignature, httpserver.CodeTooManyWrong, httpserver.CodeTooManyUnverified, httpserver.CodeSecretChanged, httpserver.CodeKeyring,
	httpserver.CodeConnectorDisabled, httpserver.CodeEnvironmentGone, httpserver.CodeNoAgent, httpserver.CodeNoLiveDeployment,
	httpserver.CodeTooManyHops, httpserver.CodeRequestTooLarge, httpserver.CodeUnsupportedEncoding,
	httpserver.CodeUnsupportedMedia, httpserver.CodeBodyUnreadable, httpserver.CodeInvalidJSON, httpserver.CodeInvalidForm,
	httpserver.CodeMethodNotAllowed,
	httpserver.CodeTimeout, httpserver.CodeTooManyLargeBodies, httpserver.CodeTooManyWaiting, httpserver.CodeTooManyCallers,
	httpserver.CodeBacklogFull, httpserver.CodeStorageFull, httpserver.CodeTooManyUnknown, httpserver.CodeBusy,
	httpserver.CodeKeyTooLong, httpserver.CodeKeyInvalid, httpserver.CodeKeyReused, httpserver.CodeKeyExpired, httpserver.CodeStoreUnavailable, RequestEnded,
}

// Answers of sync webhooks beside the statuses of runs.
const (
	SyncTimeout = "timeout"
	// SyncEnded: the request ended first, as RequestEnded says.
	SyncEnded   = "request_ended"
	SyncUnknown = "unknown"
)

// Ways in which a claim without a runner ends.
const (
	LeaseGivenBack = "given_back"
	LeaseFailed    = "failed"
)

// Gateway is what the webhook gateway counts.
type Gateway struct {
	accepted       *prometheus.CounterVec
	refused        counters
	rejectionsLost prometheus.Counter
	acceptance     prometheus.Histogram
	syncWaiting    prometheus.Gauge
	syncAnswers    counters
	batches        prometheus.Histogram
	commits        prometheus.Histogram
	commitFailed   prometheus.Counter
	commitWaiting  prometheus.Gauge
	dispatch       requests
	claimWait      prometheus.Histogram
	claims         counters
	ended          counters
	leases         counters
	storeAnswered  prometheus.Gauge
	clockAhead     prometheus.Gauge
	partitions     prometheus.Gauge
	overdue        prometheus.Gauge
	projectOverdue prometheus.Gauge
	dropped        prometheus.Counter
	ticks          counters
	replayed       counters
	pushed         counters

	attempts        counters
	attemptDuration prometheus.Histogram
	delivered       counters
}

// What becomes of a tick of a cron connector.
const (
	TickRun = "run"
	// TickSkipped: its agents were not started, as its connector run says.
	TickSkipped = "skipped"
	// TickFailed: it could not be recorded.
	TickFailed = "failed"
)

// What becomes of a connector run that a replay of many comes to.
const (
	ReplayDone    = "replayed"
	ReplayRefused = "refused"
)

// What becomes of the call of a push webhook.
const (
	PushAccepted = "accepted"
	PushIgnored  = "ignored"
	PushRefused  = "refused"
)

// modes of connectors that take requests.
var modes = []string{"inbound", "sync"}

// NewGateway registers the gateway's metrics; nil registers them nowhere.
func NewGateway(registry prometheus.Registerer) *Gateway {
	g := &Gateway{
		accepted: promauto.With(registry).NewCounterVec(prometheus.CounterOpts{
			Name: "agentplatform_webhooks_accepted_total",
			Help: "Webhooks whose rows are on disk, by the connector's mode and by whether they were recorded now or repeat an earlier one by its key.",
		}, []string{"mode", "result"}),
		refused: newCounters(registry, "agentplatform_webhooks_refused_total",
			"Webhooks that were not accepted, by the code in the answer; request_ended: their client went, or the gateway stopped, before an answer.",
			"code", texts(WebhookRefusals)...),
		rejectionsLost: newCounter(registry, "agentplatform_webhook_rejections_lost_total",
			"Refused webhooks that are missing in what the REST API tells of their connector: those of too many connectors came at once, or the store did not take them."),
		acceptance: newHistogram(registry, "agentplatform_webhook_acceptance_duration_seconds",
			"From a webhook's last byte to its rows on disk, of those that were accepted.", durations),
		syncWaiting: newGauge(registry, "agentplatform_webhook_sync_waiting", "Sync webhooks that wait for their runs at the moment."),
		syncAnswers: newCounters(registry, "agentplatform_webhook_sync_answers_total",
			"Sync webhooks that no longer wait, by why: the status of their run; timeout; request_ended, for the client went or the gateway stopped; or unknown.",
			"status", "completed", "failed", "cancelled", SyncTimeout, SyncEnded, SyncUnknown),
		batches: newHistogram(registry, "agentplatform_webhook_commit_batch_size",
			"Webhooks that shared a transaction.", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256}),
		commits: newHistogram(registry, "agentplatform_webhook_commit_duration_seconds",
			"How long the transactions took that record webhooks, also those that failed.", durations),
		commitFailed: newCounter(registry, "agentplatform_webhook_commit_failures_total",
			"Transactions that record webhooks and failed, or whose outcome is unknown."),
		commitWaiting: newGauge(registry, "agentplatform_webhook_commit_waiting",
			"Webhooks at the moment that wait to be recorded, or are being recorded."),
		dispatch: newRequests(registry, "agentplatform_dispatch", "the port of runners and builds"),
	}
	g.runs(registry)
	g.deliveries(registry)
	for _, mode := range modes {
		g.accepted.WithLabelValues(mode, "recorded")
		g.accepted.WithLabelValues(mode, "repeated")
	}
	return g
}

func (g *Gateway) runs(registry prometheus.Registerer) {
	g.claimWait = newHistogram(registry, "agentplatform_run_claim_wait_seconds",
		"From a run's acceptance to its first claim by a runner.",
		[]float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600})
	g.claims = newCounters(registry, "agentplatform_claimed_runs_total",
		"Runs that were handed to a runner, by whether for the first time or again.", "attempt", "first", "again")
	g.ended = newCounters(registry, "agentplatform_ended_runs_total",
		"Runs whose end a runner reported to this gateway, or that it ended because their runner was lost or their environment deleted, by status. "+
			"Runs that fail because their agent is not deployed are not counted.", "status", "completed", "failed", "cancelled")
	g.leases = newCounters(registry, "agentplatform_lost_leases_total",
		"Claims that this gateway ended because their runner did not renew them, by what became of the run: given_back to the queue, or failed.",
		"outcome", LeaseGivenBack, LeaseFailed)
	g.ticks = newCounters(registry, "agentplatform_cron_ticks_total",
		"Ticks of cron connectors that this gateway took, by what became of them: run, by the linked agents; skipped, for the reason that their connector run has; "+
			"or failed to be recorded.", "outcome", TickRun, TickSkipped, TickFailed)
	g.replayed = newCounters(registry, "agentplatform_replayed_total",
		"Connector runs that this gateway took on in replays of many, by what became of them: replayed, or refused, for they cannot be.",
		"outcome", ReplayDone, ReplayRefused)
	g.pushed = newCounters(registry, "agentplatform_git_pushes_total",
		"Calls of projects' push webhooks, by what became of them: accepted, a look at the repository is asked for; ignored, for the event is no push; or refused.",
		"outcome", PushAccepted, PushIgnored, PushRefused)
	g.storeAnswered = newGauge(registry, "agentplatform_store_reachable",
		"Whether the store answered when this gateway last asked, which it does every 5 s: 1 or 0.")
	g.clockAhead = newGauge(registry, "agentplatform_store_clock_ahead_seconds",
		"By how many seconds the store's clock was ahead of this gateway's when it was last asked; negative where it was behind. Two hours apart, either way, nothing is deleted for its age.")
	g.partitions = newGauge(registry, "agentplatform_partitions_ahead",
		"For how many days, from today on, history has partitions, as this gateway last saw; without that of the day no webhook is accepted. 0 until it has looked.")
	g.overdue = newGauge(registry, "agentplatform_history_overdue_seconds",
		"For how long the oldest day of history should have been deleted, as this gateway last saw; 0 where none should.")
	g.projectOverdue = newGauge(registry, "agentplatform_project_history_overdue_seconds",
		"How long ago the oldest day should have been deleted that a project with a retention of its own keeps no longer, "+
			"as this gateway last saw; 0 without any.")
	g.dropped = newCounter(registry, "agentplatform_history_dropped_total",
		"What this gateway has deleted of history that was too old: partitions, days of projects and blobs on PostgreSQL, rows on SQLite.")
}

func (g *Gateway) deliveries(registry prometheus.Registerer) {
	g.attempts = newCounters(registry, "agentplatform_delivery_attempts_total",
		"Attempts of this gateway to deliver a result, by what went wrong: ok, where nothing did.", "cause", append([]string{"ok"}, DeliveryErrors...)...)
	g.attemptDuration = newHistogram(registry, "agentplatform_delivery_attempt_duration_seconds",
		"How long attempts to deliver took.", durations)
	g.delivered = newCounters(registry, "agentplatform_deliveries_total",
		"What attempts of this gateway made of their deliveries: delivered, to be repeated (retry), failed, gone (410: the connector is paused), or cancelled.",
		"outcome", "delivered", "retry", "failed", "gone", "cancelled")
}

// DeliveryErrors are the classes of what goes wrong with attempts to deliver.
var DeliveryErrors = []string{
	"dns", "refused", "reset", "timeout", "tls", "forbidden_address", "network", "redirect", "http_status", "connector", "platform", "erased",
}

// DeliveryAttempt counts an attempt by its class of error, "" for none.
func (g *Gateway) DeliveryAttempt(class string, took time.Duration) {
	g.attempts.of(cmp.Or(class, "ok")).Inc()
	g.attemptDuration.Observe(took.Seconds())
}

// DeliveryEnded counts what an attempt made of its delivery.
func (g *Gateway) DeliveryEnded(outcome string) { g.delivered.of(outcome).Inc() }

// Accepted counts a webhook whose rows are on disk.
func (g *Gateway) Accepted(mode string, repeated bool, took time.Duration) {
	result := "recorded"
	if repeated {
		result = "repeated"
	}
	g.accepted.WithLabelValues(known(mode, modes), result).Inc()
	g.acceptance.Observe(took.Seconds())
}

// Refused counts a webhook that was not accepted.
func (g *Gateway) Refused(code httpserver.Code) { g.refused.of(string(code)).Inc() }

// RejectionsLost counts refused webhooks that their connector does not tell of.
func (g *Gateway) RejectionsLost(webhooks int) { g.rejectionsLost.Add(float64(webhooks)) }

// SyncWaits counts a sync webhook that begins to wait, SyncAnswered its end.
func (g *Gateway) SyncWaits() { g.syncWaiting.Inc() }

// SyncAnswered counts a sync webhook that no longer waits.
func (g *Gateway) SyncAnswered(status string) {
	g.syncWaiting.Dec()
	g.syncAnswers.of(status).Inc()
}

// CommitWaits counts a webhook that begins to wait to be recorded, CommitAnswered one
// that no longer does.
func (g *Gateway) CommitWaits() { g.commitWaiting.Inc() }

// CommitAnswered counts a webhook that was recorded, or will not be.
func (g *Gateway) CommitAnswered() { g.commitWaiting.Dec() }

// Committed counts a transaction that recorded webhooks, or failed to.
func (g *Gateway) Committed(webhooks int, took time.Duration, err error) {
	g.batches.Observe(float64(webhooks))
	g.commits.Observe(took.Seconds())
	if err != nil {
		g.commitFailed.Inc()
	}
}

// Dispatch counts the requests to the internal port's handler.
func (g *Gateway) Dispatch(next http.Handler) http.Handler { return g.dispatch.count(next, nil) }

// Claimed counts a run that a runner was handed for the first time, so long after
// it was accepted.
func (g *Gateway) Claimed(wait time.Duration) {
	g.claims.of("first").Inc()
	g.claimWait.Observe(wait.Seconds())
}

// ClaimedAgain counts a run that a runner was handed to resume it.
func (g *Gateway) ClaimedAgain() { g.claims.of("again").Inc() }

// Ended counts runs that ended.
func (g *Gateway) Ended(status string, runs int) { g.ended.of(status).Add(float64(runs)) }

// LeasesLost counts claims that were ended without their runner.
func (g *Gateway) LeasesLost(outcome string, claims int) { g.leases.of(outcome).Add(float64(claims)) }

// Replayed counts connector runs of replays of many.
func (g *Gateway) Replayed(outcome string) { g.replayed.of(outcome).Inc() }

// Pushed counts a call of a push webhook.
func (g *Gateway) Pushed(outcome string) { g.pushed.of(outcome).Inc() }

// Ticked counts ticks of cron connectors.
func (g *Gateway) Ticked(outcome string, ticks int) { g.ticks.of(outcome).Add(float64(ticks)) }

// Partitions says for how many days from today on there are partitions of history.
func (g *Gateway) Partitions(days int) { g.partitions.Set(float64(days)) }

// HistoryOverdue says for how long the oldest day of history should have been deleted.
func (g *Gateway) HistoryOverdue(by time.Duration) { g.overdue.Set(by.Seconds()) }

// ProjectHistoryOverdue reports how overdue the most overdue project is.
func (g *Gateway) ProjectHistoryOverdue(by time.Duration) { g.projectOverdue.Set(by.Seconds()) }

// HistoryDropped counts what is deleted of history.
func (g *Gateway) HistoryDropped(n int) { g.dropped.Add(float64(n)) }

// StoreReachable says whether the store answers.
func (g *Gateway) StoreReachable(is bool) {
	g.storeAnswered.Set(0)
	if is {
		g.storeAnswered.Set(1)
	}
}

// StoreClockAhead says by how much the store's clock is ahead of this process's.
func (g *Gateway) StoreClockAhead(by time.Duration) {
	g.clockAhead.Set(by.Truncate(time.Second).Seconds())
}
