// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/agentplatform/agentplatform/store"
)

const (
	// queueAge is how long what was measured is shown again, so that nobody who
	// asks often costs the store anything.
	queueAge = 10 * time.Second
	// queueTimeout bounds measuring; without an answer nothing is shown.
	queueTimeout = 3 * time.Second
)

var (
	queuedRuns = prometheus.NewDesc("agentplatform_queued_runs",
		"Runs that wait for a runner in the whole store, at most 10,000 of each agent and 100,000 in all, by their class and what they wait for: "+
			"claimable, for a free place; no_runner, for any runner to ask; no_deployment, for a deployment to be live.", []string{"state", "class"}, nil)
	queueOldest = prometheus.NewDesc("agentplatform_queue_oldest_age_seconds",
		"Since when the run waits that waits longest, from its acceptance, by its class and what it waits for; 0 where none does.", []string{"state", "class"}, nil)
	runningRuns = prometheus.NewDesc("agentplatform_running_runs", "Runs that runners hold in the whole store.", nil, nil)
	keysHeld    = prometheus.NewDesc("agentplatform_concurrency_keys_held",
		"Concurrency keys that open runs have in the whole store; at most 100,000 are counted.", nil, nil)
	blockedRuns = prometheus.NewDesc("agentplatform_blocked_runs",
		"Runs in the whole store that wait for their concurrency key and are none of agentplatform_queued_runs; at most 100,000 are counted.", nil, nil)
	outboxAge = prometheus.NewDesc("agentplatform_outbox_oldest_age_seconds",
		"How long the oldest outbox row of a consumer has waited, by consumer: storage counts stored bytes, deliveries makes deliveries, "+
			"rollups adds up statistics, words indexes runs for searches; 0 without any row.", []string{"consumer"}, nil)
	outboxAside = prometheus.NewDesc("agentplatform_outbox_set_aside",
		"What is to be done after ends of runs that has failed for what it is, and is tried again after a while, at most an hour; at most 100,000 are counted.", nil, nil)
	tickAge = prometheus.NewDesc("agentplatform_cron_oldest_due_age_seconds",
		"Since when the tick of a cron connector is due that is due longest; 0 where none is.", nil, nil)
)

// queueCollector measures the store's queue when it is asked for metrics. Every
// replica shows the same.
type queueCollector struct {
	queue  store.Queue
	logger *slog.Logger
	now    func() time.Time

	mutex    sync.Mutex
	measured time.Time
	figures  store.QueueFigures
}

// Describe implements prometheus.Collector.
func (q *queueCollector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{queuedRuns, queueOldest, runningRuns, keysHeld, blockedRuns, outboxAge, outboxAside, tickAge} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (q *queueCollector) Collect(out chan<- prometheus.Metric) {
	figures, err := q.measure()
	if err != nil {
		q.logger.Error("measuring the queue for the metrics", "error", err)
		return
	}
	for state, classes := range figures.Queued {
		for class, depth := range classes {
			out <- prometheus.MustNewConstMetric(queuedRuns, prometheus.GaugeValue, float64(depth.Runs), string(state), class.String())
			out <- prometheus.MustNewConstMetric(queueOldest, prometheus.GaugeValue, depth.Oldest.Seconds(), string(state), class.String())
		}
	}
	for consumer, age := range figures.OutboxAges {
		out <- prometheus.MustNewConstMetric(outboxAge, prometheus.GaugeValue, age.Seconds(), string(consumer))
	}
	out <- prometheus.MustNewConstMetric(outboxAside, prometheus.GaugeValue, float64(figures.OutboxAside))
	out <- prometheus.MustNewConstMetric(tickAge, prometheus.GaugeValue, figures.TickAge.Seconds())
	out <- prometheus.MustNewConstMetric(keysHeld, prometheus.GaugeValue, float64(figures.KeysHeld))
	out <- prometheus.MustNewConstMetric(blockedRuns, prometheus.GaugeValue, float64(figures.Blocked))
	out <- prometheus.MustNewConstMetric(runningRuns, prometheus.GaugeValue, float64(figures.Running))
}

// measure asks the store, unless it was asked a moment ago.
func (q *queueCollector) measure() (store.QueueFigures, error) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if !q.measured.IsZero() && q.now().Sub(q.measured) < queueAge {
		return q.figures, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), queueTimeout)
	defer cancel()
	figures, err := q.queue.QueueFigures(ctx)
	if err == nil {
		q.figures, q.measured = figures, q.now()
	}
	return figures, err
}
