// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func selects(t *testing.T, selector *metav1.LabelSelector, w workload) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	require.NoError(t, err)
	return s.Matches(labels.Set(w.template.Labels))
}

// Components with replicas spread their pods over nodes, and a drain evicts one pod at a time.
func TestReplicas_AreSpreadAndDrainOneByOne(t *testing.T) {
	t.Parallel()
	for _, installation := range installations {
		objects := build(t, installation, "")
		budgets := of[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget")
		seen := 0
		for _, w := range workloads(t, objects) {
			around := slices.DeleteFunc(slices.Clone(budgets), func(b policyv1.PodDisruptionBudget) bool { return !selects(t, b.Spec.Selector, w) })
			if w.replicas == 1 {
				require.Empty(t, around, "%s: a budget of the only pod would keep its node from being drained", w.name)
				continue
			}
			seen++
			require.Len(t, around, 1, w.name)
			require.Equal(t, intstr.FromInt32(1), *around[0].Spec.MaxUnavailable)
			require.Equal(t, policyv1.AlwaysAllow, *around[0].Spec.UnhealthyPodEvictionPolicy)
			var keys []string
			for _, spread := range w.template.Spec.TopologySpreadConstraints {
				keys = append(keys, spread.TopologyKey)
				require.True(t, selects(t, spread.LabelSelector, w), w.name)
				require.Equal(t, corev1.ScheduleAnyway, spread.WhenUnsatisfiable, "one node is enough")
			}
			require.ElementsMatch(t, []string{corev1.LabelHostname, corev1.LabelTopologyZone}, keys, w.name)
		}
		require.Len(t, budgets, seen, "%s: a budget of nothing", installation)
	}
}

// A priority that is there, memory that ends,
// probes and metrics on ports of their own that the process listens at.
func TestPods_HaveProbesLimitsAndPriority(t *testing.T) {
	t.Parallel()
	for _, installation := range installations {
		objects := build(t, installation, "")
		classes := of[schedulingv1.PriorityClass](t, objects, "PriorityClass")
		require.Len(t, classes, 1)
		require.False(t, classes[0].GlobalDefault)
		policies := of[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy")
		for _, w := range workloads(t, objects) {
			spec := w.template.Spec
			require.Equal(t, classes[0].Name, spec.PriorityClassName, w.name)
			require.Len(t, spec.Containers, 1)
			c := spec.Containers[0]
			limit, request := c.Resources.Limits.Memory(), c.Resources.Requests.Memory()
			require.Positive(t, request.Sign(), w.name)
			require.Positive(t, limit.Cmp(*request), w.name)
			require.True(t, c.Resources.Limits.Cpu().IsZero(), "%s: throttling helps nobody", w.name)
			require.Contains(t, c.Env, corev1.EnvVar{Name: "GOMEMLIMIT", ValueFrom: &corev1.EnvVarSource{
				ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"},
			}}, w.name)

			ports := map[string]int32{}
			for _, p := range c.Ports {
				ports[p.Name] = p.ContainerPort
			}
			for _, port := range []string{"health", "metrics"} {
				require.Contains(t, c.Args, "--"+port+"-addr=:"+strconv.Itoa(int(ports[port])), w.name)
			}
			for path, probe := range map[string]*corev1.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
				t.Run(w.name+path, func(t *testing.T) {
					require.NotNil(t, probe, w.name)
					require.NotNil(t, probe.HTTPGet, "%s: an open port says nothing", w.name)
					require.Equal(t, path, probe.HTTPGet.Path, w.name)
					require.Contains(t, ports, probe.HTTPGet.Port.StrVal, w.name)
					require.GreaterOrEqual(t, probe.TimeoutSeconds, int32(5), "%s: a busy node makes %s late, and takes all replicas on it out at once", w.name, path)
				})
			}
			for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
				require.Equal(t, "health", probe.HTTPGet.Port.StrVal, "%s: no load on another port kills it, or takes it out", w.name)
			}
			require.True(t, reached(t, policies, w, "metrics"), w.name)
			require.False(t, reached(t, policies, w, "health"), w.name)
		}
		for _, service := range of[corev1.Service](t, objects, "Service") {
			for _, port := range service.Spec.Ports {
				require.NotContains(t, []string{"metrics", "health"}, port.TargetPort.StrVal, "%s: they are not for callers", service.Name)
			}
		}
	}
}

// reached reports whether a policy allows only a monitoring namespace to reach a port of a pod.
func reached(t *testing.T, policies []networkingv1.NetworkPolicy, w workload, port string) (yes bool) {
	t.Helper()
	for _, policy := range policies {
		if !selects(t, &policy.Spec.PodSelector, w) {
			continue
		}
		for _, rule := range policy.Spec.Ingress {
			for _, p := range rule.Ports {
				if p.Port.StrVal != port {
					continue
				}
				require.Len(t, rule.From, 1, policy.Name)
				require.Equal(t, map[string]string{"agentplatform.dev/monitoring": "true"}, rule.From[0].NamespaceSelector.MatchLabels)
				require.Nil(t, rule.From[0].PodSelector)
				yes = true
			}
		}
	}
	return yes
}

// All installations use the same ports, so that documentation can name them.
func TestPorts_AgreeBetweenInstallations(t *testing.T) {
	t.Parallel()
	numbers := map[string]int32{}
	for _, installation := range installations {
		for _, w := range workloads(t, build(t, installation, "")) {
			for _, p := range w.template.Spec.Containers[0].Ports {
				if known, ok := numbers[p.Name]; ok {
					require.Equal(t, known, p.ContainerPort, "%s %s", w.name, p.Name)
				}
				numbers[p.Name] = p.ContainerPort
			}
		}
	}
	require.Len(t, numbers, 5)
}
