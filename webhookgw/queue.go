// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/store"
)

// queueAge is how long a measurement is cached, so that frequent scrapes do not load the store.
const queueAge = 10 * time.Second

// queueCollector measures the store's queue during a scrape. All replicas report the same values. A
// figure that cannot be measured keeps its last value, and ages grow by the time since, so that
// alerts do not resolve while the store is slow.
type queueCollector struct {
	queue  store.Queue
	logger *slog.Logger
	now    func() time.Time

	mutex sync.Mutex
	// firstMeasured is the time of the first measurement, and lastMeasured the time of the last one.
	firstMeasured, lastMeasured time.Time
	last                        map[store.QueueFigure]queueMeasurement
}

// queueMeasurement has the last known value of a figure.
type queueMeasurement struct {
	figures store.QueueFigures
	at      time.Time
	missing bool // in the last measurement
}

// Describe implements prometheus.Collector.
func (q *queueCollector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range metrics.QueueGauges() {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (q *queueCollector) Collect(out chan<- prometheus.Metric) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.measure()
	for _, figure := range store.AllQueueFigures {
		last, known := q.last[figure]
		var since time.Duration
		switch {
		case !known:
			since = q.now().Sub(q.firstMeasured)
		case last.missing:
			since = q.now().Sub(last.at)
		}
		out <- newGauge(metrics.QueueMeasurementAge, since.Seconds(), string(figure))
		if known {
			collectFigure(out, figure, last.figures, since)
		}
	}
}

func newGauge(desc *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

// collectFigure sends the metrics of a figure that was measured some time ago.
func collectFigure(out chan<- prometheus.Metric, figure store.QueueFigure, figures store.QueueFigures, since time.Duration) {
	seconds := func(age time.Duration) float64 {
		if age > 0 {
			age += since
		}
		return age.Seconds()
	}
	switch figure {
	case store.FigureQueued:
		for state, classes := range figures.Queued {
			for class, depth := range classes {
				out <- newGauge(metrics.QueuedRuns, float64(depth.Runs), string(state), class.String())
				out <- newGauge(metrics.QueueOldestAge, seconds(depth.Oldest), string(state), class.String())
			}
		}
	case store.FigureRunning:
		out <- newGauge(metrics.RunningRuns, float64(figures.Running))
	case store.FigureKeys:
		out <- newGauge(metrics.HeldKeys, float64(figures.KeysHeld))
		out <- newGauge(metrics.BlockedRuns, float64(figures.Blocked))
	case store.FigureOutbox:
		for consumer, age := range figures.OutboxAges {
			out <- newGauge(metrics.OutboxOldestAge, seconds(age), string(consumer))
		}
	case store.FigureSetAside:
		out <- newGauge(metrics.OutboxSetAside, float64(figures.OutboxAside))
	case store.FigureTicks:
		out <- newGauge(metrics.CronOldestDueAge, seconds(figures.TickAge))
	}
}

// measure queries the store, unless the last measurement is cached. The caller holds the lock.
func (q *queueCollector) measure() {
	now := q.now()
	if !q.lastMeasured.IsZero() && now.Sub(q.lastMeasured) < queueAge {
		return
	}
	figures, err := q.queue.QueueFigures(context.Background())
	if err != nil {
		q.logger.Error("measuring the queue for the metrics", "error", err)
	}
	if q.lastMeasured = now; q.last == nil {
		q.firstMeasured, q.last = now, map[store.QueueFigure]queueMeasurement{}
	}
	for _, figure := range store.AllQueueFigures {
		last, known := q.last[figure]
		switch {
		case !slices.Contains(figures.Missing, figure):
			q.last[figure] = queueMeasurement{figures: figures, at: now}
		case known:
			last.missing = true
			q.last[figure] = last
		}
	}
}
