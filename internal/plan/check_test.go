// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/plan"
)

func gib(n int64) resource.Quantity { return *resource.NewQuantity(n<<30, resource.BinarySI) }

// checked lists the decision of the default plan for each field of a pool: it rejects the values in
// refused and accepts the values in free.
var (
	refused = map[string][]v1alpha1.RunnerPool{
		"annotations": {{Annotations: map[string]string{"sidecar.istio.io/inject": "true"}}},
		"labels":      {{Labels: map[string]string{"team": "support"}}},
		"tolerations": {
			{Tolerations: []corev1.Toleration{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}},
			{Tolerations: []corev1.Toleration{{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists}}},
			{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
		},
		"runtimeClassName": {{RuntimeClassName: "kata"}},
		"resources": {
			{Resources: v1alpha1.RunnerResources{Limits: corev1.ResourceList{corev1.ResourceMemory: gib(5)}}},
			{Resources: v1alpha1.RunnerResources{Requests: corev1.ResourceList{corev1.ResourceCPU: gib(1)}}},
			{Resources: v1alpha1.RunnerResources{Limits: corev1.ResourceList{"nvidia.com/gpu": gib(1)}}},
		},
		"affinity": {
			{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{NamespaceSelector: &metav1.LabelSelector{}}},
			}}},
			{Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
					{PodAffinityTerm: corev1.PodAffinityTerm{Namespaces: []string{"other"}}},
				},
			}}},
		},
	}
	free = map[string]v1alpha1.RunnerPool{
		"minReplicas":      {MinReplicas: ptr.To(int32(3))},
		"maxReplicas":      {MaxReplicas: ptr.To(int32(3))},
		"concurrency":      {Concurrency: 3},
		"nodeSelector":     {NodeSelector: map[string]string{"kubernetes.io/arch": "arm64"}},
		"imagePullSecrets": {ImagePullSecrets: []v1alpha1.SecretReference{{Name: "registry"}}},
	}
)

func TestCheck_CoversAllFields(t *testing.T) {
	t.Parallel()
	pool := reflect.TypeFor[v1alpha1.RunnerPool]()
	require.Equal(t, pool.NumField(), len(refused)+len(free))
	runner := plan.Default().Runner
	for i := range pool.NumField() {
		field, _, _ := strings.Cut(pool.Field(i).Tag.Get("json"), ",")
		asked, ok := free[field]
		if ok {
			require.NoError(t, runner.Check(asked), field)
			continue
		}
		require.NotEmpty(t, refused[field], "the plan says nothing of spec.runner.%s", field)
		for _, asked := range refused[field] {
			var problem *plan.NotAllowedError
			require.ErrorAs(t, runner.Check(asked), &problem, field)
			require.Len(t, problem.Problems, 1)
			require.Contains(t, problem.Problems[0], "spec.runner."+field)
			require.Contains(t, problem.Problems[0], "the plan allows: ")
		}
	}
	require.NoError(t, runner.Check(v1alpha1.RunnerPool{
		Labels: map[string]string{"app.kubernetes.io/part-of": "shop"},
		Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "kubernetes.io/hostname"}},
		}},
		Resources: v1alpha1.RunnerResources{Limits: corev1.ResourceList{corev1.ResourceMemory: gib(4)}},
	}))
}

func TestCheck_ReportsAllProblems(t *testing.T) {
	t.Parallel()
	err := plan.Runner{Labels: []string{"example.com/*"}, RuntimeClassNames: []string{"gvisor"}}.Check(v1alpha1.RunnerPool{
		Labels:           map[string]string{"a": "secret-value", "example.com/b": "c"},
		RuntimeClassName: "kata",
	})
	require.EqualError(t, err, `spec.runner.labels: key "a" is not allowed; the plan allows: example.com/*; `+
		`spec.runner.runtimeClassName: "kata" is not allowed; the plan allows: gvisor; `+
		`ask the operator for a plan that allows more`)
}

func TestCheck_ComparesTolerations(t *testing.T) {
	t.Parallel()
	const exists = corev1.TolerationOpExists
	agents := corev1.Toleration{Key: "pool", Value: "agents", Effect: corev1.TaintEffectNoSchedule}
	for _, c := range []struct {
		name           string
		allowed, asked corev1.Toleration
		covered        bool
	}{
		{"the same", agents, agents, true},
		{"Equal is the default", agents, corev1.Toleration{Key: "pool", Operator: "Equal", Value: "agents", Effect: "NoSchedule"}, true},
		{"another value", agents, corev1.Toleration{Key: "pool", Value: "x", Effect: "NoSchedule"}, false},
		{"any value", agents, corev1.Toleration{Key: "pool", Operator: exists, Effect: "NoSchedule"}, false},
		{"every effect", agents, corev1.Toleration{Key: "pool", Value: "agents"}, false},
		{"another key", agents, corev1.Toleration{Key: "other", Value: "agents", Effect: "NoSchedule"}, false},
		{"every key", agents, corev1.Toleration{Operator: exists}, false},
		{"greater than", agents, corev1.Toleration{Key: "pool", Operator: "Gt", Value: "agents", Effect: "NoSchedule"}, false},
		{"one of any value", corev1.Toleration{Key: "pool", Operator: exists}, agents, true},
		{"any of any value", corev1.Toleration{Key: "pool", Operator: exists}, corev1.Toleration{Key: "pool", Operator: exists}, true},
		{"for a while", corev1.Toleration{Key: "pool", Operator: exists},
			corev1.Toleration{Key: "pool", Operator: exists, Effect: "NoExecute", TolerationSeconds: ptr.To(int64(3))}, true},
		{"of all keys", corev1.Toleration{Operator: exists}, agents, true},
		{"of all keys, all", corev1.Toleration{Operator: exists}, corev1.Toleration{Operator: exists}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := plan.Runner{Tolerations: []corev1.Toleration{c.allowed}}.Check(v1alpha1.RunnerPool{Tolerations: []corev1.Toleration{c.asked}})
			require.Equal(t, c.covered, err == nil)
		})
	}
}

func TestFill_AddsDefaults(t *testing.T) {
	t.Parallel()
	list := func(cpu, memory string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for name, value := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
			if value != "" {
				out[name] = resource.MustParse(value)
			}
		}
		return out
	}
	for _, c := range []struct {
		name                                         string
		askedRequests, askedLimits, requests, limits corev1.ResourceList
	}{
		{"nothing asked", nil, nil, list("50m", "64Mi"), list("1", "512Mi")},
		{"a limit", nil, list("", "2Gi"), list("50m", "64Mi"), list("1", "2Gi")},
		{"a limit below the usual request", nil, list("20m", ""), list("20m", "64Mi"), list("20m", "512Mi")},
		{"a request above the usual limit", list("", "1Gi"), nil, list("50m", "1Gi"), list("1", "1Gi")},
		{"all", list("2", "2Gi"), list("3", "3Gi"), list("2", "2Gi"), list("3", "3Gi")},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := plan.Default().Runner.Fill(corev1.ResourceRequirements{Requests: c.askedRequests, Limits: c.askedLimits})
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				want, have := c.requests[name], got.Requests[name]
				require.Equal(t, want.String(), have.String(), "request of %s", name)
				want, have = c.limits[name], got.Limits[name]
				require.Equal(t, want.String(), have.String(), "limit of %s", name)
			}
		})
	}
}
