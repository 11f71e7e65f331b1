// SPDX-License-Identifier: Apache-2.0

package base_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
)

// problems has all waiting reasons that do not resolve themselves.
var problems = []string{
	"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable",
	"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff",
}

// waits returns the status of a waiting container.
func waits(reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: "main", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "because"},
	}}
}

func TestPodProblem_KnowsWaitingReasons(t *testing.T) {
	t.Parallel()
	for _, reason := range problems {
		want := `container "main": ` + reason + ": because"
		status := []corev1.ContainerStatus{waits(reason)}
		require.Equal(t, want, base.PodProblem(&corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: status}}))
		require.Equal(t, want, base.PodProblem(&corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: status}}), "an init container")
	}
	for _, reason := range []string{"ContainerCreating", "PodInitializing", ""} {
		require.Empty(t, base.PodProblem(&corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waits(reason)}}}), reason)
	}
}

func TestPodProblem_ReportsReason(t *testing.T) {
	t.Parallel()
	crashed := waits("CrashLoopBackOff")
	crashed.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error", Message: " no such flag\n"}
	scheduled := func(status corev1.ConditionStatus, reason string) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.PodScheduled, Status: status, Reason: reason, Message: "0/3 nodes"}}
	}
	for name, c := range map[string]struct {
		status corev1.PodStatus
		want   string
	}{
		"no status":                      {corev1.PodStatus{}, ""},
		"running container":              {corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "main"}}}, ""},
		"no node":                        {corev1.PodStatus{Conditions: scheduled(corev1.ConditionFalse, corev1.PodReasonUnschedulable)}, "no node can run the pod: 0/3 nodes"},
		"scheduled":                      {corev1.PodStatus{Conditions: scheduled(corev1.ConditionTrue, "")}, ""},
		"gated":                          {corev1.PodStatus{Conditions: scheduled(corev1.ConditionFalse, corev1.PodReasonSchedulingGated)}, ""},
		"crashing container":             {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{crashed}}, `container "main": CrashLoopBackOff: because; main: Error (exit code 2): no such flag`},
		"first container with a problem": {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waits("PodInitializing"), waits("ErrImagePull")}}, `container "main": ErrImagePull: because`},
		"evicted":                        {corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on memory"}, "the pod was stopped: Evicted: low on memory"},
		"failed":                         {corev1.PodStatus{Phase: corev1.PodFailed}, ""},
		"reason without a message":       {corev1.PodStatus{Phase: corev1.PodRunning, Reason: "NodeLost"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, base.PodProblem(&corev1.Pod{Status: c.status}))
		})
	}
}

// Each container meets the standard, including init containers.
func TestRestrict_MeetsPodSecurityStandard(t *testing.T) {
	t.Parallel()
	spec := corev1.PodSpec{InitContainers: []corev1.Container{{Name: "a"}}, Containers: []corev1.Container{{Name: "b"}, {Name: "c"}}}
	base.SetSecurity(&spec)
	require.False(t, *spec.AutomountServiceAccountToken)
	require.False(t, *spec.EnableServiceLinks)
	require.True(t, *spec.SecurityContext.RunAsNonRoot)
	require.NotZero(t, *spec.SecurityContext.RunAsUser)
	require.Equal(t, spec.SecurityContext.RunAsUser, spec.SecurityContext.RunAsGroup)
	require.Equal(t, spec.SecurityContext.RunAsUser, spec.SecurityContext.FSGroup)
	require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, spec.SecurityContext.SeccompProfile.Type)
	for _, c := range append(spec.InitContainers, spec.Containers...) {
		require.False(t, *c.SecurityContext.AllowPrivilegeEscalation, c.Name)
		require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, c.Name)
		require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, c.Name)
		require.Equal(t, corev1.TerminationMessageFallbackToLogsOnError, c.TerminationMessagePolicy, c.Name)
		require.Equal(t, corev1.PullIfNotPresent, c.ImagePullPolicy, c.Name)
	}
}

func TestSecretVolume_HasPrivateMode(t *testing.T) {
	t.Parallel()
	volume := base.SecretVolume("git", "credentials")
	require.Equal(t, "git", volume.Name)
	require.Equal(t, "credentials", volume.Secret.SecretName)
	require.EqualValues(t, 0o440, *volume.Secret.DefaultMode)
}

// A missing or outdated condition does not count.
func TestNetworkReady_RequiresCondition(t *testing.T) {
	t.Parallel()
	project := &v1alpha1.Project{}
	var missing *base.MissingError
	require.ErrorAs(t, base.NetworkReady(project), &missing)
	require.True(t, missing.Unready)
	project.MarkNetworkReady()
	require.NoError(t, base.NetworkReady(project))
	project.MarkNetworkMissing(v1alpha1.ReasonNameCollision, "somebody else's")
	require.ErrorAs(t, base.NetworkReady(project), &missing)
}

// Builds have the scheduling of runners, except for affinity to pods of the pool.
func TestPlace_CopiesSchedulingOfRunners(t *testing.T) {
	t.Parallel()
	node, pods := &corev1.NodeAffinity{}, &corev1.PodAffinity{}
	runner := v1alpha1.RunnerPool{
		NodeSelector: map[string]string{"disk": "fast"}, Tolerations: []corev1.Toleration{{Key: "a"}}, RuntimeClassName: "gvisor",
		Affinity: &corev1.Affinity{NodeAffinity: node, PodAffinity: pods}, ImagePullSecrets: []v1alpha1.SecretReference{{Name: "one"}, {Name: "two"}},
	}
	var spec corev1.PodSpec
	base.SetScheduling(&spec, runner)
	require.Equal(t, runner.NodeSelector, spec.NodeSelector)
	require.Equal(t, runner.Tolerations, spec.Tolerations)
	require.Equal(t, "gvisor", *spec.RuntimeClassName)
	require.Same(t, node, spec.Affinity.NodeAffinity)
	require.Nil(t, spec.Affinity.PodAffinity)
	require.Equal(t, []corev1.LocalObjectReference{{Name: "one"}, {Name: "two"}}, spec.ImagePullSecrets)

	spec = corev1.PodSpec{}
	base.SetScheduling(&spec, v1alpha1.RunnerPool{Affinity: &corev1.Affinity{PodAffinity: pods}})
	require.Equal(t, corev1.PodSpec{}, spec, "the cluster decides fields that the spec omits")
}

func TestChildName_FitsLabel(t *testing.T) {
	t.Parallel()
	require.Equal(t, "dev-runner", base.ChildName("dev", "runner"))
	most := strings.Repeat("a", 63-len("-runner"))
	require.Equal(t, most+"-runner", base.ChildName(most, "runner"))
	names := map[string]bool{}
	for _, suffix := range []string{"runner", "runner-token", "build"} {
		for _, end := range []string{"x", "y", "xx"} {
			name := base.ChildName(strings.Repeat("a", 250)+end, suffix)
			require.LessOrEqual(t, len(name), 63)
			require.True(t, strings.HasSuffix(name, "-"+suffix), name)
			names[name] = true
		}
	}
	require.Len(t, names, 9, "cut names stay different")
}

func TestLabels_OfChildren(t *testing.T) {
	t.Parallel()
	require.Equal(t, map[string]string{
		"app.kubernetes.io/managed-by": "agentplatform", "app.kubernetes.io/name": "agentplatform-runner",
		"app.kubernetes.io/component": "runner", "app.kubernetes.io/instance": "dev",
	}, base.Labels("runner", "dev"))
}

// A pod mounts the platform's CA if there is one, and otherwise names no file.
func TestConnectDispatch_MountsCA(t *testing.T) {
	t.Parallel()
	var plain, trusting corev1.PodSpec
	var c corev1.Container
	base.PodOptions{DispatchURL: "http://dispatch:8081"}.ConnectDispatch(&plain, &c)
	require.Equal(t, []string{"--dispatch-url=http://dispatch:8081"}, c.Args)
	require.Empty(t, plain.Volumes)
	require.Empty(t, c.VolumeMounts)

	c = corev1.Container{}
	base.PodOptions{DispatchURL: "https://dispatch:8081", TrustDispatchCA: true}.ConnectDispatch(&trusting, &c)
	require.Equal(t, []string{
		"--dispatch-url=https://dispatch:8081", "--dispatch-ca-file=" + c.VolumeMounts[0].MountPath + "/" + base.DispatchCAKey,
	}, c.Args)
	require.Equal(t, trusting.Volumes[0].Name, c.VolumeMounts[0].Name)
	require.Equal(t, base.DispatchCA, trusting.Volumes[0].ConfigMap.Name)
}
