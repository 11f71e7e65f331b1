// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/plan"
)

const everything = `
environments: 3
requestsPerMinute: 600
backlogRuns: 1000
backlogInput: 1Gi
storage: 10Gi
build:
  resources:
    requests: {cpu: 200m}
    limits: {memory: 1Gi}
runner:
  resources:
    limits: {memory: 1Gi, cpu: 2}
  maxResources: {memory: 8Gi, nvidia.com/gpu: 1}
  annotations: [example.com/*, linkerd.io/inject]
  labels: []
  tolerations:
  - {key: pool, value: agents, effect: NoSchedule}
  runtimeClassNames: [gvisor]
`

func TestParse_OverridesBase(t *testing.T) {
	t.Parallel()
	p, err := plan.Parse([]byte(everything), plan.Default())
	require.NoError(t, err)
	require.EqualValues(t, 3, p.Environments)
	require.EqualValues(t, 600, p.RequestsPerMinute)
	require.EqualValues(t, 1000, p.BacklogRuns)
	require.Equal(t, "1Gi", p.BacklogInput.String())
	require.Equal(t, "10Gi", p.Storage.String())
	require.Equal(t, "200m", p.Build.Requests.Cpu().String())
	require.Equal(t, "128Mi", p.Build.Requests.Memory().String(), "an omitted value keeps its default")
	require.Equal(t, "1", p.Build.Limits.Cpu().String())
	require.Equal(t, "1Gi", p.Build.Limits.Memory().String())
	require.Equal(t, "2", p.Runner.Resources.Limits.Cpu().String())
	require.Equal(t, "4", p.Runner.MaxResources.Cpu().String())
	require.Equal(t, "8Gi", p.Runner.MaxResources.Memory().String())
	require.Equal(t, []string{"example.com/*", "linkerd.io/inject"}, p.Runner.Annotations)
	require.Empty(t, p.Runner.Labels, "a list counts as a whole")
	require.Equal(t, []corev1.Toleration{{Key: "pool", Value: "agents", Effect: corev1.TaintEffectNoSchedule}}, p.Runner.Tolerations)
	require.Equal(t, []string{"gvisor"}, p.Runner.RuntimeClassNames)

	own, err := plan.Parse([]byte(`{"environments": 5, "build": {"resources": {"limits": {"memory": "256Mi"}}}}`), p)
	require.NoError(t, err)
	require.EqualValues(t, 5, own.Environments)
	require.Equal(t, p.Runner, own.Runner)
	require.Equal(t, "1Gi", p.Build.Limits.Memory().String(), "the plan it starts from is not changed")
}

func TestParse_EmptyTextIsBase(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "\n", "# nothing\n", "---\n", "{}", "runner:\n", "runner: {tolerations: null}"} {
		p, err := plan.Parse([]byte(text), plan.Default())
		require.NoError(t, err, "%q", text)
		require.Equal(t, plan.Default(), p, "%q", text)
	}
}

func TestParse_NamesProblems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"environments: 0":                                               "environments must be 1 to 1000",
		"environments: 1001":                                            "environments must be 1 to 1000",
		"backlogRuns: 0":                                                "backlogRuns must be 1 to 10000000",
		"backlogInput: 0":                                               "backlogInput must be more than 0",
		"storage: -1Gi":                                                 "storage must be more than 0",
		"environments: many":                                            "environments must be a whole number, not a string",
		"environments: 2\nenvironments: 3":                              `already set`,
		"environment: 3":                                                `unknown field "environment"`,
		"requestsPerHour: 3":                                            `unknown field "requestsPerHour"`,
		"requestsPerMinute: 0":                                          "requestsPerMinute must be 1 to 10000",
		"requestsPerMinute: 10001":                                      "requestsPerMinute must be 1 to 10000",
		"environments: 3\n---\nenvironments: 4":                         "more than one document",
		"environments: [":                                               "it is not YAML",
		"- 3":                                                           "must be a map",
		"runner: {labels: all}":                                         "runner.labels must be a list",
		"runner: {resources: {limits: {memory: much}}}":                 "quantities must match",
		"runner: {resources: {limits: {memory: 0}}}":                    "runner.resources.limits.memory must be more than 0",
		"runner: {resources: {limits: {memory: null}}}":                 "runner.resources.limits.memory must be more than 0",
		"runner: {resources: {limits: {memory: 8Gi}}}":                  "runner.resources.limits.memory must not be more than runner.maxResources.memory, which is 4Gi",
		"runner: {maxResources: {memory: 256Mi}}":                       "runner.resources.limits.memory must not be more than runner.maxResources.memory, which is 256Mi",
		"runner: {resources: {limits: {nvidia.com/gpu: 1}}}":            "runner.resources.limits.nvidia.com/gpu needs runner.maxResources.nvidia.com/gpu",
		"build: {resources: {requests: {cpu: 2}}}":                      "build.resources.requests.cpu must not be more than build.resources.limits.cpu, which is 1",
		"build: {resources: {limits: {cpu: -1}}}":                       "build.resources.limits.cpu must be more than 0",
		"build: {resources: {claims: []}}":                              `unknown field "claims"`,
		"runner: {annotations: [a b]}":                                  `runner.annotations: "a b" is neither a key`,
		"runner: {labels: ['*/inject']}":                                `runner.labels: "*/inject" is neither a key`,
		"runner: {labels: ['']}":                                        `runner.labels: "" is neither a key`,
		"runner: {tolerations: [{value: x}]}":                           "runner.tolerations[0].key is missing",
		"runner: {tolerations: [{key: x, operator: Exists, value: z}]}": "runner.tolerations[0].value cannot be combined",
		"runner: {tolerations: [{key: x, operator: Gt, value: '3'}]}":   "runner.tolerations[0].operator must be",
		"runner: {tolerations: [{key: x, effect: Never}]}":              "runner.tolerations[0].effect must be",
		"runner: {tolerations: [{key: x, effect: NoExecute, tolerationSeconds: 3}]}": "runner.tolerations[0].tolerationSeconds",
		"runner: {runtimeClassNames: [gVisor]}":                                      `runner.runtimeClassNames: "gVisor"`,
		"# " + strings.Repeat("x", 64<<10):                                           "at most 65536",
	} {
		t.Run(fmt.Sprintf("%.60s", text), func(t *testing.T) {
			_, err := plan.Parse([]byte(text), plan.Default())
			require.ErrorContains(t, err, want, "%.80q", text)
		})
	}
}

func TestLoad_ReadsFile(t *testing.T) {
	t.Parallel()
	p, err := plan.Load("")
	require.NoError(t, err)
	require.Equal(t, plan.Default(), p)
	file := filepath.Join(t.TempDir(), "plan.yaml")
	_, err = plan.Load(file)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(file, []byte("environments: 7"), 0o600))
	p, err = plan.Load(file)
	require.NoError(t, err)
	require.EqualValues(t, 7, p.Environments)
	require.NoError(t, os.WriteFile(file, []byte("environments: seven"), 0o600))
	_, err = plan.Load(file)
	require.ErrorContains(t, err, file)
}

func TestLowered_OnlyLowersLimits(t *testing.T) {
	t.Parallel()
	p := plan.Default()
	require.EqualValues(t, 20, p.Lowered(v1alpha1.ProjectLimits{}).Environments)
	require.EqualValues(t, 2, p.Lowered(v1alpha1.ProjectLimits{Environments: ptr.To(int32(2))}).Environments)
	require.EqualValues(t, 20, p.Lowered(v1alpha1.ProjectLimits{Environments: ptr.To(int32(900))}).Environments)
	require.EqualValues(t, 120, p.Lowered(v1alpha1.ProjectLimits{}).RequestsPerMinute)
	require.EqualValues(t, 12, p.Lowered(v1alpha1.ProjectLimits{RequestsPerMinute: ptr.To(int32(12))}).RequestsPerMinute)
	require.EqualValues(t, 120, p.Lowered(v1alpha1.ProjectLimits{RequestsPerMinute: ptr.To(int32(600))}).RequestsPerMinute)
	require.EqualValues(t, 12, *p.Lowered(v1alpha1.ProjectLimits{RequestsPerMinute: ptr.To(int32(12))}).Limits().RequestsPerMinute)
}

// Any text is rejected, or gives a plan that parses to itself and limits each pod.
func FuzzParse(f *testing.F) {
	f.Add(everything)
	f.Add("environments: 1")
	f.Add("runner: {tolerations: [{operator: Exists}]}")
	f.Add("a: &a [*a]")
	f.Add("runner: {resources: {limits: {cpu: 1e9}}}")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := plan.Parse([]byte(text), plan.Default())
		if err != nil {
			return
		}
		if p.Environments < 1 {
			t.Fatalf("no environments: %+v", p)
		}
		again, err := plan.Parse(nil, p)
		if err != nil {
			t.Fatalf("a plan that is valid once only: %v", err)
		}
		for _, limits := range []corev1.ResourceList{
			again.Build.Limits, again.Runner.Fill(corev1.ResourceRequirements{}).Limits,
		} {
			if limits.Cpu().Sign() <= 0 || limits.Memory().Sign() <= 0 {
				t.Fatalf("a pod without limits: %+v", limits)
			}
		}
		_ = again.Runner.Check(v1alpha1.RunnerPool{Tolerations: again.Runner.Tolerations})
	})
}
