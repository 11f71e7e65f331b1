// SPDX-License-Identifier: Apache-2.0

package metrics

import "github.com/prometheus/client_golang/prometheus"

// Descriptions of the gauges of the run queue. webhookgw measures the queue when Prometheus scrapes it.
var (
	QueuedRuns = prometheus.NewDesc("agentplatform_queued_runs",
		"Queued runs in the whole store by class and state: claimable, no_runner (no runner asks for work) or no_deployment "+
			"(no deployment is live). Counts at most 10,000 of each agent and 100,000 in all.", []string{"state", "class"}, nil)
	QueueOldestAge = prometheus.NewDesc("agentplatform_queue_oldest_age_seconds",
		"Age of the oldest queued run since its acceptance, by class and state; 0 if no run is queued.", []string{"state", "class"}, nil)
	RunningRuns = prometheus.NewDesc("agentplatform_running_runs", "Runs in the whole store that a runner executes.", nil, nil)
	HeldKeys    = prometheus.NewDesc("agentplatform_concurrency_keys_held",
		"Concurrency keys of open runs in the whole store. Counts at most 100,000.", nil, nil)
	BlockedRuns = prometheus.NewDesc("agentplatform_blocked_runs",
		"Runs in the whole store that wait for their concurrency key. agentplatform_queued_runs does not include them. Counts at most 100,000.", nil, nil)
	OutboxOldestAge = prometheus.NewDesc("agentplatform_outbox_oldest_age_seconds",
		"Age of the oldest outbox row by consumer: storage counts stored bytes, deliveries creates deliveries, "+
			"rollups updates statistics, words updates the search index, traces exports traces. 0 without rows.", []string{"consumer"}, nil)
	OutboxSetAside = prometheus.NewDesc("agentplatform_outbox_set_aside",
		"Outbox rows that failed by themselves. They are retried after a backoff of at most one hour. Counts at most 100,000.", nil, nil)
	CronOldestDueAge = prometheus.NewDesc("agentplatform_cron_oldest_due_age_seconds",
		"Age of the oldest due tick of a cron connector; 0 if no tick is due.", nil, nil)
	QueueMeasurementAge = prometheus.NewDesc("agentplatform_queue_measurement_age_seconds",
		"Time since the last measurement of queue metrics by figure: queued, running, keys, outbox, set_aside or ticks; 0 if the last attempt "+
			"succeeded. Until the next one, the metrics have the last value, and ages grow by this time.", []string{"figure"}, nil)
)

// QueueGauges returns all descriptions of the run queue.
func QueueGauges() []*prometheus.Desc {
	return []*prometheus.Desc{QueuedRuns, QueueOldestAge, RunningRuns, HeldKeys, BlockedRuns, OutboxOldestAge, OutboxSetAside, CronOldestDueAge, QueueMeasurementAge}
}
