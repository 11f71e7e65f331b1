// SPDX-License-Identifier: Apache-2.0

package runnerpool

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// Whatever an Environment contains, runner pods have no environment variables, and each egress flag of
// the operator exactly once.
func TestPool_TenantCannotReplaceFlags(t *testing.T) {
	t.Parallel()
	open := "git=0.0.0.0/0,model=0.0.0.0/0"
	e := &v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Name: "dev", Namespace: "team"}, Spec: v1alpha1.EnvironmentSpec{
		Runner: v1alpha1.RunnerPool{
			Labels:      map[string]string{"AGENTPLATFORM_ALLOW_EGRESS": "x"},
			Annotations: map[string]string{"AGENTPLATFORM_ALLOW_EGRESS": open},
		},
	}}
	for _, flags := range []egress.Flags{{}, {Allow: "model=10.0.0.0/8", Deny: "10.96.0.0/12"}} {
		spec := podTemplate(e, poolOptions{PodOptions: base.PodOptions{Egress: flags}}).Spec
		require.False(t, *spec.EnableServiceLinks)
		for _, c := range append(spec.InitContainers, spec.Containers...) {
			require.Len(t, c.Env, 1, c.Name)
			require.Equal(t, "GOMEMLIMIT", c.Env[0].Name)
			require.Equal(t, "limits.memory", c.Env[0].ValueFrom.ResourceFieldRef.Resource)
			require.Empty(t, c.EnvFrom, c.Name)
			require.Equal(t, flags.Args(), egressArgs(c), c.Name)
		}
	}
}

// egressArgs returns the egress arguments of a container.
func egressArgs(c corev1.Container) []string {
	var out []string
	for _, arg := range c.Args {
		if strings.Contains(arg, "egress") {
			out = append(out, arg)
		}
	}
	return out
}

// The digest depends on the content, and cannot be computed without the token.
func TestConfigDigest_IsKeyed(t *testing.T) {
	t.Parallel()
	config := map[string][]byte{runnerconfig.ProvidersFile: []byte(`{"apiKey":"1234"}`)}
	digest := configDigest("token", config)
	require.Equal(t, digest, configDigest("token", config))
	require.NotEqual(t, digest, configDigest("another", config))
	config[runnerconfig.PricesFile] = []byte(`{}`)
	require.Equal(t, digest, configDigest("token", config), "runners read prices anew")
	config[runnerconfig.ProvidersFile] = []byte(`{"apiKey":"1235"}`)
	require.NotEqual(t, digest, configDigest("token", config))
}

// A new image that cannot be pulled leaves the old pods ready.
func TestStateOf_IgnoresOldPods(t *testing.T) {
	t.Parallel()
	condition := func(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus) []appsv1.DeploymentCondition {
		return []appsv1.DeploymentCondition{{Type: kind, Status: status, Message: "because"}}
	}
	for name, c := range map[string]struct {
		status  appsv1.DeploymentStatus
		ready   int32
		problem string
	}{
		"status of an earlier generation":  {appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}, -1, ""},
		"all pods are new and available":   {appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}, 2, ""},
		"new pods do not start":            {appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 1, AvailableReplicas: 2}, 0, ""},
		"one of two new pods is available": {appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 2, AvailableReplicas: 2}, 1, ""},
		"one pod does not start":           {appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 1}, 1, ""},
		"rollout in progress": {appsv1.DeploymentStatus{
			ObservedGeneration: 2, Replicas: 1, UpdatedReplicas: 1, Conditions: condition(appsv1.DeploymentProgressing, corev1.ConditionTrue),
		}, 0, ""},
		"rollout deadline exceeded": {appsv1.DeploymentStatus{
			ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 1, Conditions: condition(appsv1.DeploymentProgressing, corev1.ConditionFalse),
		}, 0, "because"},
		"pod creation fails": {appsv1.DeploymentStatus{
			ObservedGeneration: 2, Conditions: condition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue),
		}, 0, "because"},
	} {
		t.Run(name, func(t *testing.T) {
			seen := stateOf(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Status: c.status}, 2)
			require.Equal(t, c.ready, seen.ready)
			require.Equal(t, c.problem, seen.problem)
		})
	}
}

// Prices of the project win over prices of the platform, which apply only to the maker's own address.
func TestPricesOf_ProjectPricesWin(t *testing.T) {
	t.Parallel()
	got, err := pricesOf([]v1alpha1.ModelProvider{
		{Prefix: "openai", Type: v1alpha1.ModelProviderOpenAI, Prices: []v1alpha1.ModelPrice{
			{Model: "gpt-5", Currency: v1alpha1.CurrencyEUR, InputPerMillion: "1", OutputPerMillion: "2"},
			{Model: "vendor/tuned", InputPerMillion: "3", CachedInputPerMillion: "0.5", OutputPerMillion: "4", ThinkingPerMillion: "5"},
		}},
		{Prefix: "proxy", Type: v1alpha1.ModelProviderOpenAI, BaseURL: "https://proxy.example.com/v1"},
	})
	require.NoError(t, err)
	require.Equal(t, runnerconfig.Price{Currency: "EUR", Input: 1_000_000, CachedInput: 1_000_000, Output: 2_000_000, Thinking: 2_000_000}, got.Prices["openai/gpt-5"])
	require.Equal(t, runnerconfig.Price{Currency: "USD", Input: 3_000_000, CachedInput: 500_000, Output: 4_000_000, Thinking: 5_000_000}, got.Prices["openai/vendor/tuned"])
	require.Equal(t, runnerconfig.Price{Currency: "USD", Input: 150_000, CachedInput: 75_000, Output: 600_000, Thinking: 600_000}, got.Prices["openai/gpt-4o-mini"])
	require.NotContains(t, got.Prices, "proxy/gpt-5")
	_, err = pricesOf([]v1alpha1.ModelProvider{{Prefix: "a", Prices: []v1alpha1.ModelPrice{{Model: "b", InputPerMillion: "x", OutputPerMillion: "1"}}}})
	require.ErrorContains(t, err, `"b"`)
}
