// SPDX-License-Identifier: Apache-2.0

// Package metrictest compares the metrics of a process with the tables in
// docs/reference/metrics.md.
package metrictest

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/internal/metrics"
)

// ours is the prefix of the platform's own metrics.
const ours = "agentplatform_"

// Metric is a row of the table, or a served metric.
type Metric struct {
	Name, Type, Help string
	Labels           []string
}

// Sample is one served value.
type Sample struct {
	Labels map[string]string
	// Value is the value of a counter or gauge, or the count of a histogram.
	Value float64
}

// Served are the metrics of a process.
type Served struct {
	Metrics map[string]Metric
	samples map[string][]Sample
	text    []byte
}

// Of reads a registry like Prometheus.
func Of(tb testing.TB, gatherer prometheus.Gatherer) Served {
	tb.Helper()
	answer := httptest.NewRecorder()
	metrics.Handler(gatherer).ServeHTTP(answer, httptest.NewRequestWithContext(tb.Context(), http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		tb.Fatalf("metrictest: %d: %s", answer.Code, answer.Body)
	}
	return Parse(tb, answer.Body.Bytes())
}

// Parse parses a response of /metrics.
func Parse(tb testing.TB, text []byte) Served {
	tb.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		tb.Fatalf("metrictest: reading the metrics: %v", err)
	}
	s := Served{Metrics: map[string]Metric{}, samples: map[string][]Sample{}, text: text}
	for name, family := range families {
		metric := Metric{Name: name, Type: strings.ToLower(family.GetType().String()), Help: family.GetHelp(), Labels: []string{}}
		for _, m := range family.GetMetric() {
			sample := Sample{Labels: map[string]string{}, Value: m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())}
			metric.Labels = metric.Labels[:0]
			for _, label := range m.GetLabel() {
				sample.Labels[label.GetName()] = label.GetValue()
				metric.Labels = append(metric.Labels, label.GetName())
			}
			slices.Sort(metric.Labels)
			s.samples[name] = append(s.samples[name], sample)
		}
		s.Metrics[name] = metric
	}
	return s
}

// Value returns the value of the sample with these labels: name, value, name, value….
func (s Served) Value(tb testing.TB, name string, labels ...string) float64 {
	tb.Helper()
	var found []float64
	for _, sample := range s.samples[name] {
		same := true
		for i := 0; i+1 < len(labels); i += 2 {
			same = same && sample.Labels[labels[i]] == labels[i+1]
		}
		if same {
			found = append(found, sample.Value)
		}
	}
	if len(found) != 1 {
		tb.Fatalf("metrictest: %s with %v has %d values", name, labels, len(found))
	}
	return found[0]
}

// Text returns the response.
func (s Served) Text() string { return string(s.text) }

// Moved returns the samples of our metrics that are not 0, by name{label="value",…}.
func (s Served) Moved() map[string]float64 {
	out := map[string]float64{}
	for name, samples := range s.samples {
		if !strings.HasPrefix(name, ours) {
			continue
		}
		for _, sample := range samples {
			if sample.Value != 0 {
				out[name+formatLabels(sample.Labels)] = sample.Value
			}
		}
	}
	return out
}

func formatLabels(labels map[string]string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, fmt.Sprintf("%s=%q", name, labels[name]))
	}
	if len(pairs) == 0 {
		return ""
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

// bounds are the allowed values of our metrics' labels, by label or by "metric label".
var bounds = map[string]*regexp.Regexp{
	"attempt":   regexp.MustCompile(`^(first|again)$`),
	"consumer":  regexp.MustCompile(`^(storage|deliveries|rollups|words|traces)$`),
	"figure":    regexp.MustCompile(`^(queued|running|keys|outbox|set_aside|ticks)$`),
	"goversion": regexp.MustCompile(`^go[0-9.]+`),
	"kind":      regexp.MustCompile(`^(input|output|thinking|cached_input)$`),
	"method":    regexp.MustCompile(`^(GET|POST|PUT|PATCH|DELETE|other)$`),
	"mode":      regexp.MustCompile(`^(` + strings.Join(connector.Modes(connector.Kind.HasCallers), "|") + `|other)$`),
	"outcome":   regexp.MustCompile(`^(ok|error|cancelled|given_back|failed|answered|run|skipped|delivered|retry|gone|replayed|refused|accepted|ignored|exported|dropped|other|model_[a-z_]+)$`),
	"cause":     regexp.MustCompile(`^(ok|dns|refused|reset|timeout|tls|forbidden_address|network|redirect|http_status|connector|platform|erased|other)$`),
	"process":   regexp.MustCompile(`^(webhookgw|manager|apiserver|all|runner)$`),
	"provider":  regexp.MustCompile(`^(scripted|openai|other)$`),
	"to":        regexp.MustCompile(`^(paused|failing|resumed|other)$`),
	"reason":    regexp.MustCompile(`^(unauthorized|forbidden|rate_limited|foreign|unavailable|other)$`),
	"result":    regexp.MustCompile(`^(recorded|repeated|answered|folder_unseen|failed|late|read)$`),
	// Patterns of routes contain no part of a path that a caller chooses.
	"route":  regexp.MustCompile(`^(none|/v1(/([a-z-]+|webhooks\.json|openapi(\.json|\.yaml|-3\.0\.json|-3\.0\.yaml)|\{[a-z_]+\}|\*))*)$`),
	"state":  regexp.MustCompile(`^(claimable|no_runner|no_deployment)$`),
	"class":  regexp.MustCompile(`^(sync|inbound|deferred)$`),
	"status": regexp.MustCompile(`^(completed|failed|cancelled|released|lost|unreported|timeout|request_ended|unknown|other)$`),

	"version": regexp.MustCompile(`^(dev|v[0-9]+\.[0-9]+\.[0-9]+.*)$`),
	"code":    regexp.MustCompile(`^(none|[1-5][0-9]{2})$`),
	// The codes are a list in the package.
	"agentplatform_webhooks_refused_total code": codePattern(),

	"agentplatform_sweep_refused_objects kind": regexp.MustCompile(`^(Project|Environment|Deployment|Connector|ConnectorLink|APIKey)$`),
}

func codePattern() *regexp.Regexp {
	var names []string
	for _, code := range metrics.WebhookRefusals {
		names = append(names, string(code))
	}
	return regexp.MustCompile(`^(other|` + strings.Join(names, "|") + `)$`)
}

// Check fails unless a process serves exactly the metrics in its table, with the documented type
// and labels and with known label values, and the metrics of the Go runtime and the process. A
// metric in absent may have no value yet.
func (s Served) Check(tb testing.TB, process string, absent ...string) {
	tb.Helper()
	want := Documented(tb, process)
	for name, metric := range want {
		served, there := s.Metrics[name]
		switch {
		case !there && slices.Contains(absent, name):
		case !there:
			tb.Errorf("metrictest: %s serves no %s", process, name)
		case fmt.Sprint(served) != fmt.Sprint(metric):
			tb.Errorf("metrictest: %s serves\n%+v; docs/reference/metrics.md says\n%+v", process, served, metric)
		}
	}
	for name := range s.Metrics {
		if _, documented := want[name]; strings.HasPrefix(name, ours) && !documented {
			tb.Errorf("metrictest: %s serves %+v, which docs/reference/metrics.md does not have", process, s.Metrics[name])
		}
	}
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes"} {
		if _, there := s.Metrics[name]; !there {
			tb.Errorf("metrictest: %s serves no %s", process, name)
		}
	}
	s.CheckLabels(tb)
	s.lintMetrics(tb)
}

// CheckLabels fails if a label of our metrics has an unknown value.
func (s Served) CheckLabels(tb testing.TB) {
	tb.Helper()
	for name, samples := range s.samples {
		if !strings.HasPrefix(name, ours) {
			continue
		}
		for _, sample := range samples {
			for label, value := range sample.Labels {
				bound := bounds[name+" "+label]
				if bound == nil {
					bound = bounds[label]
				}
				if bound == nil || !bound.MatchString(value) {
					tb.Errorf("metrictest: %s: the label %s has the value %q, which nothing bounds", name, label, value)
				}
			}
		}
	}
}

// lintMetrics runs Prometheus' linter on our metrics.
func (s Served) lintMetrics(tb testing.TB) {
	tb.Helper()
	problems, err := promlint.New(bytes.NewReader(s.text)).Lint()
	if err != nil {
		tb.Fatalf("metrictest: %v", err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, ours) {
			tb.Errorf("metrictest: %s: %s", p.Metric, p.Text)
		}
	}
}

var (
	part   = regexp.MustCompile("(?m)^## .*$")
	row    = regexp.MustCompile("(?m)^\\| `(" + ours + "[a-z_]+)` \\| (\\w+) \\| (.*?) \\| (.*?) \\|$")
	quoted = regexp.MustCompile("`([a-z]+)`")
)

// Documented returns the metrics that docs/reference/metrics.md has for a process: the tables below the headings
// that name the process in code style.
func Documented(tb testing.TB, process string) map[string]Metric {
	tb.Helper()
	text, out := string(metricsPage(tb)), map[string]Metric{}
	headings := part.FindAllStringIndex(text, -1)
	for i, heading := range headings {
		end := len(text)
		if i+1 < len(headings) {
			end = headings[i+1][0]
		}
		if !strings.Contains(text[heading[0]:heading[1]], "`"+process+"`") {
			continue
		}
		for _, columns := range row.FindAllStringSubmatch(text[heading[1]:end], -1) {
			metric := Metric{Name: columns[1], Type: columns[2], Help: columns[4], Labels: []string{}}
			for _, label := range quoted.FindAllStringSubmatch(columns[3], -1) {
				metric.Labels = append(metric.Labels, label[1])
			}
			slices.Sort(metric.Labels)
			out[metric.Name] = metric
		}
	}
	if len(out) == 0 {
		tb.Fatalf("metrictest: docs/reference/metrics.md has no metrics of %s", process)
	}
	return out
}

// metricsPage returns docs/reference/metrics.md of the module above the test.
func metricsPage(tb testing.TB) []byte {
	tb.Helper()
	dir, err := os.Getwd()
	for ; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if page, err := os.ReadFile(filepath.Join(dir, "docs", "reference", "metrics.md")); err == nil {
			return page
		}
	}
	tb.Fatalf("metrictest: looking for docs/reference/metrics.md: %v", err)
	return nil
}
