// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
	"github.com/agentplatform/agentplatform/store"
)

// foreign are metrics of controller-runtime that alerts are about.
var foreign = []string{"controller_runtime_reconcile_errors_total", "leader_election_master_status"}

// podMonitor is as much of one as is ours.
type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		NamespaceSelector struct {
			Any bool `json:"any"`
		} `json:"namespaceSelector"`
		Selector            metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints []struct {
			Port     string `json:"port"`
			Path     string `json:"path"`
			Interval string `json:"interval"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// prometheusRule is as much of one as is ours.
type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Groups []struct {
			Name  string  `json:"name"`
			Rules []alert `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}

// By a PodMonitor that selects its pods and names a port
// that they have.
func TestPodMonitors_CoverAllProcesses(t *testing.T) {
	t.Parallel()
	monitors := of[podMonitor](t, build(t, "config/prometheus", ""), "PodMonitor")
	require.Len(t, monitors, 2)
	for _, m := range monitors {
		require.Len(t, m.Spec.PodMetricsEndpoints, 1)
		require.Equal(t, "metrics", m.Spec.PodMetricsEndpoints[0].Port)
		require.Equal(t, "/metrics", m.Spec.PodMetricsEndpoints[0].Path)
	}
	for _, installation := range installations {
		for _, w := range workloads(t, build(t, installation, "")) {
			require.True(t, selects(t, &monitors[0].Spec.Selector, w), w.name)
		}
	}
	runners := monitors[1].Spec
	require.True(t, runners.NamespaceSelector.Any)
	labels := base.Labels("runner", "dev")
	for name, value := range runners.Selector.MatchLabels {
		require.Equal(t, value, labels[name], "a runner pod's label %s", name)
	}
}

var (
	metricName = regexp.MustCompile(`\b[a-z]+(?:_[a-z]+){2,}\b`)
	inQuotes   = regexp.MustCompile(`"[^"]*"`)
	// alertSection is the section of an alert: its name and its severity.
	alertSection = regexp.MustCompile(`(?m)^### (AgentPlatform\w+)\n\nSeverity: (\w+)\. `)
)

var (
	controllerName = regexp.MustCompile(`\bNamed\("(\w+)"\)`)
	outboxConsumer = regexp.MustCompile(`outbox_oldest_age_seconds\{consumer="(\w+)"\}`)
	alertedNames   = regexp.MustCompile(`controller_runtime_reconcile_errors_total\{controller=~"([\w|]+)"\}`)
)

// The alerts name each controller as its metrics do, because controllers of other programs may use the same Prometheus.
func TestAlerts_CoverAllControllers(t *testing.T) {
	t.Parallel()
	var controllers []string
	require.NoError(t, filepath.WalkDir("../../controllers", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, name := range controllerName.FindAllStringSubmatch(string(source), -1) {
			controllers = append(controllers, name[1])
		}
		return err
	}))
	require.Contains(t, controllers, "environment")
	rules, err := os.ReadFile("../../config/prometheus/alerts.yaml")
	require.NoError(t, err)
	alerted := alertedNames.FindStringSubmatch(string(rules))
	require.NotNil(t, alerted)
	require.ElementsMatch(t, controllers, strings.Split(alerted[1], "|"))
}

// Every alert uses metrics that a process serves. Its runbook_url refers to its section of docs/operations/alerts.md.
func TestAlerts_UseServedMetricsAndHaveARunbook(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, process := range []string{metrics.ProcessAll, metrics.ProcessRunner} {
		for name, metric := range metrictest.Documented(t, process) {
			known[name] = true
			if metric.Type == "histogram" {
				known[name+"_bucket"] = true
			}
		}
	}
	for _, name := range foreign {
		known[name] = true
	}
	page, err := os.ReadFile("../../docs/operations/alerts.md")
	require.NoError(t, err)
	explained := map[string]string{}
	for _, section := range alertSection.FindAllStringSubmatch(string(page), -1) {
		explained[section[1]] = section[2]
	}
	rules := of[prometheusRule](t, build(t, "config/prometheus", ""), "PrometheusRule")
	require.Len(t, rules, 1)
	alerts := map[string]string{}
	for _, group := range rules[0].Spec.Groups {
		for _, a := range group.Rules {
			alerts[a.Alert] = a.Labels["severity"]
			require.NotEmpty(t, a.Annotations["summary"], a.Alert)
			require.True(t, strings.HasSuffix(a.Annotations["runbook_url"], "/docs/operations/alerts.md#"+strings.ToLower(a.Alert)), a.Alert)
			names := metricName.FindAllString(inQuotes.ReplaceAllString(a.Expr, ""), -1)
			require.NotEmpty(t, names, a.Alert)
			for _, name := range names {
				require.True(t, known[name], "%s is about %s, which nothing serves", a.Alert, name)
			}
		}
	}
	require.NotEmpty(t, alerts)
	require.Equal(t, alerts, explained, "docs/operations/alerts.md has a section with the severity of each alert")
}

// Each outbox consumer has exactly one alert, and only late deliveries are critical.
func TestAlerts_OutboxConsumers(t *testing.T) {
	t.Parallel()
	severities := map[string]string{}
	for _, group := range of[prometheusRule](t, build(t, "config/prometheus", ""), "PrometheusRule")[0].Spec.Groups {
		for _, a := range group.Rules {
			if strings.Contains(a.Expr, "agentplatform_outbox_oldest_age_seconds") {
				consumer := outboxConsumer.FindStringSubmatch(a.Expr)
				require.NotNil(t, consumer, "%s names one consumer", a.Alert)
				require.NotContains(t, severities, consumer[1])
				severities[consumer[1]] = a.Labels["severity"]
			}
		}
	}
	want := map[string]string{}
	for _, consumer := range store.OutboxConsumers {
		want[string(consumer)] = "warning"
	}
	want[string(store.ConsumerDeliveries)] = "critical"
	require.Equal(t, want, severities)
}

// An installation without the Prometheus Operator contains no object of its kinds.
func TestMonitoring_IsOptional(t *testing.T) {
	t.Parallel()
	groups := func(path string) (out []string) {
		for _, o := range build(t, path, "") {
			out = append(out, o.GroupVersionKind().Group)
		}
		return slices.Compact(slices.Sorted(slices.Values(out)))
	}
	for _, installation := range installations {
		require.NotContains(t, groups(installation), "monitoring.coreos.com")
	}
	require.Equal(t, []string{"monitoring.coreos.com"}, groups("config/prometheus"))
}
