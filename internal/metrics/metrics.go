// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"
	"runtime"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Other is the label value for values outside the label's set.
const Other = "other"

// version is the release. The linker sets it.
var version = "dev"

// Version returns the release of the process.
func Version() string { return version }

// Names of the processes, as in build_info.
const (
	ProcessGateway = "webhookgw"
	ProcessFacade  = "apiserver"
	ProcessManager = "manager"
	ProcessAll     = "all"
	ProcessRunner  = "runner"
)

// durations are buckets for durations from a millisecond to ten seconds.
var durations = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// NewRegistry returns a registry with the metrics of the Go runtime and the process.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// Build registers the release of the process.
func Build(registry prometheus.Registerer, process string) {
	promauto.With(registry).NewGaugeVec(prometheus.GaugeOpts{
		Name: "agentplatform_build_info",
		Help: "Always 1. The labels name the process, its version and its Go version.",
	}, []string{"process", "version", "goversion"}).WithLabelValues(process, version, runtime.Version()).Set(1)
}

// Handler serves /metrics.
func Handler(gatherer prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	return mux
}

// knownValue returns a label value of the set, or Other.
func knownValue(value string, of []string) string {
	if slices.Contains(of, value) {
		return value
	}
	return Other
}

// counters has a counter for each value of one label. All exist from the start with 0, so that the
// first event is visible as an increase.
type counters struct {
	*prometheus.CounterVec
	values []string
}

func newCounters(registry prometheus.Registerer, name, help, label string, values ...string) counters {
	c := counters{promauto.With(registry).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label}), values}
	for _, v := range values {
		c.WithLabelValues(v)
	}
	return c
}

// counterOf returns the counter of a value.
func (c counters) counterOf(value string) prometheus.Counter {
	return c.WithLabelValues(knownValue(value, c.values))
}

func toStrings[T ~string](values []T) (out []string) {
	for _, v := range values {
		out = append(out, string(v))
	}
	return out
}

func newCounter(registry prometheus.Registerer, name, help string) prometheus.Counter {
	return promauto.With(registry).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func newGauge(registry prometheus.Registerer, name, help string) prometheus.Gauge {
	return promauto.With(registry).NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func newHistogram(registry prometheus.Registerer, name, help string, buckets []float64) prometheus.Histogram {
	return promauto.With(registry).NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}
