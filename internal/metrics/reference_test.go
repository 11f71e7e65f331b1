// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/testenv/refpage"
)

const metricsIntro = `# Metrics

All metrics of the platform, for operators who write dashboards and alerts. [Monitoring](../operations/monitoring.md)
shows how to scrape them.

No label names a project, connector, agent, model or tool, so the number of series does not grow with the number of
tenants. Each process also serves the Go and process metrics ("go_…", "process_…").
`

// sections are the parts of the page. A process serves the metrics of each part that names it.
var sections = []struct {
	heading, text string
	register      func(prometheus.Registerer)
}{
	{"All processes: `webhookgw`, `apiserver`, `manager`, `all`, `runner`", "", func(r prometheus.Registerer) { metrics.Build(r, metrics.ProcessAll) }},
	{
		"Gateway: `webhookgw`, `all`",
		"Every replica reports the whole queue, so use max() and not sum() over replicas. A replica measures the queue at most every 10 s.",
		func(r prometheus.Registerer) { metrics.NewGateway(r, nil); r.MustRegister(gauges{}) },
	},
	{"REST API: `apiserver`, `all`", "", func(r prometheus.Registerer) { metrics.NewFacade(r) }},
	{
		"Manager: `manager`, `all`",
		"The manager also serves the metrics of controller-runtime, such as `controller_runtime_reconcile_errors_total`, `workqueue_depth` and `leader_election_master_status`.",
		func(r prometheus.Registerer) { metrics.NewManager(r); metrics.NewSweepRefused(r) },
	},
	{"Runner: `runner`", "", func(r prometheus.Registerer) { metrics.NewRunner(r, nil, nil) }},
}

// The page docs/reference/metrics.md lists each metric with its type, labels and help text.
func TestReference_ListsAllMetrics(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	page.WriteString(strings.ReplaceAll(metricsIntro, `"`, "`"))
	for _, s := range sections {
		t.Run(s.heading, func(t *testing.T) {
			fmt.Fprintf(&page, "\n## %s\n\n", s.heading)
			if s.text != "" {
				page.WriteString(s.text + "\n\n")
			}
			page.WriteString("| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n")
			recorder := &recorder{Registerer: prometheus.NewRegistry()}
			s.register(recorder)
			require.NotEmpty(t, recorder.rows)
			slices.Sort(recorder.rows)
			page.WriteString(strings.Join(recorder.rows, ""))
		})
	}
	refpage.Check(t, "metrics.md", page.String())
}

// recorder is a registry that writes a row for each metric.
type recorder struct {
	prometheus.Registerer
	rows []string
}

func (r *recorder) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		descs := make(chan *prometheus.Desc, 100)
		c.Describe(descs)
		close(descs)
		for desc := range descs {
			r.rows = append(r.rows, row(desc, typeOf(c)))
		}
	}
	r.Registerer.MustRegister(collectors...)
}

// gauges describes the metrics of the run queue.
type gauges struct{}

func (gauges) Collect(chan<- prometheus.Metric) {}

func (gauges) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range metrics.QueueGauges() {
		out <- desc
	}
}

func typeOf(c prometheus.Collector) string {
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case prometheus.Gauge, *prometheus.GaugeVec, gauges:
		return "gauge"
	case prometheus.Histogram, *prometheus.HistogramVec:
		return "histogram"
	case prometheus.Counter:
		return "counter"
	}
	panic(fmt.Sprintf("no type of metric for %T", c))
}

var (
	describedAs = regexp.MustCompile(`^Desc\{fqName: "(.*?)", help: "(.*?)"(?:, unit: "[^"]*")?, constLabels: \{\}, variableLabels: \{(.*)\}\}$`)
	escaped     = strings.NewReplacer(`\"`, `"`, "|", `\|`)
)

func row(desc *prometheus.Desc, kind string) string {
	parts := describedAs.FindStringSubmatch(desc.String())
	if parts == nil {
		panic("a description in another form: " + desc.String())
	}
	var labels []string
	for label := range strings.SplitSeq(parts[3], ",") {
		if label != "" {
			labels = append(labels, "`"+label+"`")
		}
	}
	slices.Sort(labels)
	help := escaped.Replace(parts[2])
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", parts[1], kind, strings.Join(labels, ", "), help)
}
