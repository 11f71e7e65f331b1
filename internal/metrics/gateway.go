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

// RequestEnded is the code of a webhook request that ended before its response.
const RequestEnded httpserver.Code = "request_ended"

// WebhookRefusals are the codes of rejected webhooks.
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

// Results of sync webhooks in addition to run statuses.
const (
	SyncTimeout = "timeout"
	// SyncEnded: the request ended before, see RequestEnded.
	SyncEnded   = "request_ended"
	SyncUnknown = "unknown"
)

// Outcomes of the export of traces.
const (
	TraceExported = "exported"
	TraceFailed   = "failed"
	TraceDropped  = "dropped"
)

// Outcomes of claims whose runner is lost.
const (
	LeaseGivenBack = "given_back"
	LeaseFailed    = "failed"
)

// Gateway are the metrics of the webhook gateway.
type Gateway struct {
	modes []string

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
	openOverdue    prometheus.Gauge
	projectOverdue prometheus.Gauge
	dropped        prometheus.Counter
	ticks          counters
	traces         counters
	replayed       counters
	pushed         counters

	attempts        counters
	attemptDuration prometheus.Histogram
	delivered       counters
}

// Outcomes of a cron tick.
const (
	TickRun = "run"
	// TickSkipped: no agent was started, see its connector run.
	TickSkipped = "skipped"
	// TickFailed: it could not be recorded.
	TickFailed = "failed"
)

// Outcomes of a connector run in a bulk replay.
const (
	ReplayDone    = "replayed"
	ReplayRefused = "refused"
)

// Outcomes of a push webhook.
const (
	PushAccepted = "accepted"
	PushIgnored  = "ignored"
	PushRefused  = "refused"
)

// NewGateway registers the gateway's metrics; nil registers none. modes are the modes of webhooks that accept requests.
func NewGateway(registry prometheus.Registerer, modes []string) *Gateway {
	g := &Gateway{
		modes: modes,
		accepted: promauto.With(registry).NewCounterVec(prometheus.CounterOpts{
			Name: "agentplatform_webhooks_accepted_total",
			Help: "Webhooks that were accepted, so their rows are on disk, by the connector's mode and result: recorded, or repeated (a duplicate by its idempotency key).",
		}, []string{"mode", "result"}),
		refused: newCounters(registry, "agentplatform_webhooks_refused_total",
			"Webhooks that were rejected, by the error code of the response. request_ended: the client disconnected or the gateway stopped before a response.",
			"code", toStrings(WebhookRefusals)...),
		rejectionsLost: newCounter(registry, "agentplatform_webhook_rejections_lost_total",
			"Rejected webhooks that the REST API does not list, because too many connectors had rejections at once or the store did not record them."),
		acceptance: newHistogram(registry, "agentplatform_webhook_acceptance_duration_seconds",
			"Time from the last byte of an accepted webhook to its rows on disk.", durations),
		syncWaiting: newGauge(registry, "agentplatform_webhook_sync_waiting", "Sync webhooks that wait for their runs now."),
		syncAnswers: newCounters(registry, "agentplatform_webhook_sync_answers_total",
			"Sync webhooks that stopped waiting, by cause: the status of the run, timeout, request_ended (the client disconnected or the gateway stopped), or unknown.",
			"status", "completed", "failed", "cancelled", SyncTimeout, SyncEnded, SyncUnknown),
		batches: newHistogram(registry, "agentplatform_webhook_commit_batch_size",
			"Number of webhooks in one transaction.", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256}),
		commits: newHistogram(registry, "agentplatform_webhook_commit_duration_seconds",
			"Duration of transactions that record webhooks, including failed ones.", durations),
		commitFailed: newCounter(registry, "agentplatform_webhook_commit_failures_total",
			"Transactions that record webhooks and failed or have an unknown outcome."),
		commitWaiting: newGauge(registry, "agentplatform_webhook_commit_waiting",
			"Webhooks that wait for their transaction or are in one now."),
		dispatch: newRequests(registry, "agentplatform_dispatch", "the internal port for runners and builds"),
	}
	g.registerRuns(registry)
	g.deliveries(registry)
	for _, mode := range modes {
		g.accepted.WithLabelValues(mode, "recorded")
		g.accepted.WithLabelValues(mode, "repeated")
	}
	return g
}

func (g *Gateway) registerRuns(registry prometheus.Registerer) {
	g.claimWait = newHistogram(registry, "agentplatform_run_claim_wait_seconds",
		"Time from the acceptance of a run to its first claim by a runner.",
		[]float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600})
	g.claims = newCounters(registry, "agentplatform_claimed_runs_total",
		"Runs that runners claimed, by attempt: first or again.", "attempt", "first", "again")
	g.ended = newCounters(registry, "agentplatform_ended_runs_total",
		"Ended runs by status: runners reported their end to this gateway, or the gateway ended them because the runner was lost or the environment was deleted. "+
			"Runs that fail because their agent is not deployed do not count.", "status", "completed", "failed", "cancelled")
	g.leases = newCounters(registry, "agentplatform_lost_leases_total",
		"Leases that this gateway ended because the runner did not renew them, by outcome of the run: given_back (queued again) or failed.",
		"outcome", LeaseGivenBack, LeaseFailed)
	g.ticks = newCounters(registry, "agentplatform_cron_ticks_total",
		"Ticks of cron connectors that this gateway handled, by outcome: run, skipped (the connector run has the reason), "+
			"or failed (not recorded).", "outcome", TickRun, TickSkipped, TickFailed)
	g.traces = newCounters(registry, "agentplatform_exported_traces_total",
		"Runs whose traces this gateway exported, by outcome: exported, failed (they are sent again later), or dropped (the collector did not accept them within an hour).",
		"outcome", TraceExported, TraceFailed, TraceDropped)
	g.replayed = newCounters(registry, "agentplatform_replayed_total",
		"Connector runs that this gateway handled in bulk replays, by outcome: replayed, or refused (the connector run cannot be replayed).",
		"outcome", ReplayDone, ReplayRefused)
	g.pushed = newCounters(registry, "agentplatform_git_pushes_total",
		"Calls of push webhooks by outcome: accepted (a poll of the repository is requested), ignored (the event is not a push), or refused.",
		"outcome", PushAccepted, PushIgnored, PushRefused)
	g.storeAnswered = newGauge(registry, "agentplatform_store_reachable",
		"1 if the store answered the last check of this gateway, else 0. The gateway checks every 5 s.")
	g.clockAhead = newGauge(registry, "agentplatform_store_clock_ahead_seconds",
		"Seconds that the store's clock is ahead of this gateway's clock; negative if it is behind. At a difference of two hours retention stops deleting.")
	g.partitions = newGauge(registry, "agentplatform_partitions_ahead",
		"Number of days from today for which history has partitions, at the last check of this gateway. Without today's partition the gateway accepts no webhook. 0 before the first check.")
	g.overdue = newGauge(registry, "agentplatform_history_overdue_seconds",
		"Time since the oldest day of history became due for deletion, at the last check of this gateway; 0 if no day is overdue.")
	g.openOverdue = newGauge(registry, "agentplatform_open_history_overdue_seconds",
		"Time for which the oldest day of history with an open run or delivery has been older than the retention, at the last check of this gateway; 0 without such a day, and on SQLite.")
	g.projectOverdue = newGauge(registry, "agentplatform_project_history_overdue_seconds",
		"Time since the oldest day of a project with its own retention became due for deletion, "+
			"at the last check of this gateway; 0 if no day is overdue.")
	g.dropped = newCounter(registry, "agentplatform_history_dropped_total",
		"Items of expired history that this gateway deleted: partitions, days of projects and blobs on PostgreSQL, rows on SQLite.")
}

func (g *Gateway) deliveries(registry prometheus.Registerer) {
	g.attempts = newCounters(registry, "agentplatform_delivery_attempts_total",
		"Delivery attempts of this gateway by cause of failure; ok if the attempt succeeded.", "cause", append([]string{"ok"}, DeliveryErrors...)...)
	g.attemptDuration = newHistogram(registry, "agentplatform_delivery_attempt_duration_seconds",
		"Duration of delivery attempts.", durations)
	g.delivered = newCounters(registry, "agentplatform_deliveries_total",
		"Deliveries by outcome of their attempt at this gateway: delivered, retry, failed, gone (410, the connector is paused), or cancelled.",
		"outcome", "delivered", "retry", "failed", "gone", "cancelled")
}

// DeliveryErrors are the error classes of delivery attempts.
var DeliveryErrors = []string{
	"dns", "refused", "reset", "timeout", "tls", "forbidden_address", "network", "redirect", "http_status", "connector", "platform", "erased",
}

// DeliveryAttempt counts an attempt by its error class, "" for success.
func (g *Gateway) DeliveryAttempt(class string, took time.Duration) {
	g.attempts.counterOf(cmp.Or(class, "ok")).Inc()
	g.attemptDuration.Observe(took.Seconds())
}

// DeliveryEnded counts the outcome of a delivery after an attempt.
func (g *Gateway) DeliveryEnded(outcome string) { g.delivered.counterOf(outcome).Inc() }

// Accepted counts a stored webhook.
func (g *Gateway) Accepted(mode string, repeated bool, took time.Duration) {
	result := "recorded"
	if repeated {
		result = "repeated"
	}
	g.accepted.WithLabelValues(knownValue(mode, g.modes), result).Inc()
	g.acceptance.Observe(took.Seconds())
}

// Refused counts a rejected webhook.
func (g *Gateway) Refused(code httpserver.Code) { g.refused.counterOf(string(code)).Inc() }

// RejectionsLost counts rejected webhooks that are missing in the rejections of their connector.
func (g *Gateway) RejectionsLost(webhooks int) { g.rejectionsLost.Add(float64(webhooks)) }

// SyncWaits counts a sync webhook that begins to wait.
func (g *Gateway) SyncWaits() { g.syncWaiting.Inc() }

// SyncAnswered counts a sync webhook that has a response.
func (g *Gateway) SyncAnswered(status string) {
	g.syncWaiting.Dec()
	g.syncAnswers.counterOf(status).Inc()
}

// CommitWaits counts a webhook that waits to be stored.
func (g *Gateway) CommitWaits() { g.commitWaiting.Inc() }

// CommitAnswered counts a webhook that was stored or failed.
func (g *Gateway) CommitAnswered() { g.commitWaiting.Dec() }

// Committed counts a transaction that stored webhooks or failed.
func (g *Gateway) Committed(webhooks int, took time.Duration, err error) {
	g.batches.Observe(float64(webhooks))
	g.commits.Observe(took.Seconds())
	if err != nil {
		g.commitFailed.Inc()
	}
}

// Dispatch counts requests to the internal port's handler.
func (g *Gateway) Dispatch(next http.Handler) http.Handler {
	return g.dispatch.countRequests(next, nil)
}

// Claimed counts the first claim of a run. wait is the time since its acceptance.
func (g *Gateway) Claimed(wait time.Duration) {
	g.claims.counterOf("first").Inc()
	g.claimWait.Observe(wait.Seconds())
}

// ClaimedAgain counts a claim that resumes a run.
func (g *Gateway) ClaimedAgain() { g.claims.counterOf("again").Inc() }

// Ended counts ended runs.
func (g *Gateway) Ended(status string, runs int) { g.ended.counterOf(status).Add(float64(runs)) }

// LeasesLost counts expired claims.
func (g *Gateway) LeasesLost(outcome string, claims int) {
	g.leases.counterOf(outcome).Add(float64(claims))
}

// Replayed counts connector runs of bulk replays.
func (g *Gateway) Replayed(outcome string) { g.replayed.counterOf(outcome).Inc() }

// Pushed counts a push webhook.
func (g *Gateway) Pushed(outcome string) { g.pushed.counterOf(outcome).Inc() }

// Traced counts runs by the outcome of the export of their traces.
func (g *Gateway) Traced(outcome string, runs int) { g.traces.counterOf(outcome).Add(float64(runs)) }

// Ticked counts cron ticks.
func (g *Gateway) Ticked(outcome string, ticks int) { g.ticks.counterOf(outcome).Add(float64(ticks)) }

// Partitions reports for how many days from today partitions of history exist.
func (g *Gateway) Partitions(days int) { g.partitions.Set(float64(days)) }

// HistoryOverdue reports for how long the deletion of the oldest day of history is overdue.
func (g *Gateway) HistoryOverdue(by time.Duration) { g.overdue.Set(by.Seconds()) }

// OpenHistoryOverdue reports for how long the oldest open day has been older than the retention.
func (g *Gateway) OpenHistoryOverdue(by time.Duration) { g.openOverdue.Set(by.Seconds()) }

// ProjectHistoryOverdue reports how overdue the most overdue project is.
func (g *Gateway) ProjectHistoryOverdue(by time.Duration) { g.projectOverdue.Set(by.Seconds()) }

// HistoryDropped counts deleted parts of history.
func (g *Gateway) HistoryDropped(n int) { g.dropped.Add(float64(n)) }

// StoreReachable reports whether the store responds.
func (g *Gateway) StoreReachable(is bool) {
	g.storeAnswered.Set(0)
	if is {
		g.storeAnswered.Set(1)
	}
}

// StoreClockAhead reports how far the store's clock is ahead of this process's clock.
func (g *Gateway) StoreClockAhead(by time.Duration) {
	g.clockAhead.Set(by.Truncate(time.Second).Seconds())
}
