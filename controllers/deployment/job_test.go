// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/internal/plan"
)

func job(from source, in buildSettings) corev1.PodSpec {
	d := &v1alpha1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "v1", Namespace: "team"}, Spec: v1alpha1.DeploymentSpec{Environment: "dev"}}
	return buildJob(d, from, in, base.PodOptions{Image: "platform:1", DispatchURL: "http://dispatch"}).Spec.Template.Spec
}

// The Job has the plan's timeout, retries lost pods, is deleted an hour after its end, and has labels.
func TestBuildJob_HasLimitsAndLabels(t *testing.T) {
	t.Parallel()
	d := &v1alpha1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "v1", Namespace: "team"}, Spec: v1alpha1.DeploymentSpec{Environment: "dev"}}
	j := buildJob(d, source{URL: "u"}, buildSettings{Build: plan.Build{TimeoutSeconds: 77}}, base.PodOptions{})
	require.EqualValues(t, 77, *j.Spec.ActiveDeadlineSeconds)
	require.EqualValues(t, 3600, *j.Spec.TTLSecondsAfterFinished)
	require.EqualValues(t, 2, *j.Spec.BackoffLimit)
	require.Equal(t, corev1.RestartPolicyNever, j.Spec.Template.Spec.RestartPolicy)
	require.Equal(t, jobReference(d).Name, j.Name)
	for _, labels := range []map[string]string{j.Labels, j.Spec.Template.Labels} {
		require.Equal(t, "v1", labels[v1alpha1.LabelDeployment])
		require.Equal(t, "dev", labels[v1alpha1.LabelEnvironment])
		require.Equal(t, component, labels[base.LabelComponent], "NetworkPolicies select by it")
		require.Equal(t, base.ManagedBy, labels[base.LabelManagedBy], "else the cache would not have it")
	}
}

// Only the fetch container has the Git credentials, and only the pack container has the token.
func TestBuildJob_SeparatesCredentials(t *testing.T) {
	t.Parallel()
	spec := job(source{URL: "https://a", Branch: "main", Commit: "c", Path: "p", Secret: "git"}, buildSettings{Tests: "dev", Build: plan.Build{TimeoutSeconds: 900}})
	mounts := func(c corev1.Container) (names []string) {
		for _, m := range c.VolumeMounts {
			names = append(names, m.Name)
		}
		return names
	}
	fetch, pack := spec.InitContainers[0], spec.Containers[0]
	require.Equal(t, []string{"workspace", "tmp", "git"}, mounts(fetch))
	require.Equal(t, []string{"workspace", "tmp", "token", "config"}, mounts(pack))
	require.Equal(t, []string{
		"build", "fetch", "--dir=/workspace", "--url=https://a", "--allow-egress=", "--deny-egress=", "--branch=main", "--commit=c", "--path=p", "--credentials=" + credentialsFolder,
	}, fetch.Args)
	require.Contains(t, pack.Args, "--dispatch-url=http://dispatch")
	require.NotContains(t, fetch.Args, "--dispatch-url=http://dispatch")
	secrets := map[string]string{}
	for _, v := range spec.Volumes {
		if v.Secret != nil {
			secrets[v.Name] = v.Secret.SecretName
		}
		if v.EmptyDir != nil {
			require.Equal(t, resource.MustParse("1Gi"), *v.EmptyDir.SizeLimit, v.Name)
		}
	}
	require.Equal(t, map[string]string{"token": "v1-build-token", "git": "git", "config": "dev-runner-config"}, secrets)
	require.True(t, *configVolume("dev").Secret.Optional, "who mocks all models needs none")
	require.Subset(t, pack.Args, []string{"--providers=/etc/agentplatform/config/providers.json", "--variables=/etc/agentplatform/config/variables.json", "--test-timeout=600s", "--allow-egress=", "--deny-egress="})

	require.NotContains(t, pack.Args, "--skip-tests")

	plain := job(source{URL: "https://a"}, buildSettings{})
	require.Contains(t, plain.Containers[0].Args, "--skip-tests")
	require.Equal(t, []string{"workspace", "tmp", "token", "config"}, mounts(plain.Containers[0]))
	require.Contains(t, plain.Containers[0].Args, "--variables=/etc/agentplatform/config/variables.json")
	for _, v := range plain.Volumes {
		if v.Name == "config" {
			require.Equal(t, []corev1.KeyToPath{{Key: "variables.json", Path: "variables.json"}}, v.Secret.Items, "without tests no key of a model")
			require.True(t, *v.Secret.Optional)
		}
	}
	require.Equal(t, []string{"build", "fetch", "--dir=/workspace", "--url=https://a", "--allow-egress=", "--deny-egress="}, plain.InitContainers[0].Args)
	require.Len(t, plain.Volumes, 4)
}

// The build of an upload has one container, which fetches with its token. It has no Git credentials.
func TestBuildJob_FetchesUploads(t *testing.T) {
	t.Parallel()
	spec := job(source{Upload: "sha256:abc"}, buildSettings{})
	require.Empty(t, spec.InitContainers)
	require.Len(t, spec.Containers, 1)
	require.Subset(t, spec.Containers[0].Args, []string{"pack", "--upload=sha256:abc", "--dispatch-url=http://dispatch"})
	require.Len(t, spec.Volumes, 4)
	for _, arg := range job(source{URL: "u"}, buildSettings{}).Containers[0].Args {
		require.NotContains(t, arg, "--upload")
	}
}

// A suspended Job is reported at once, and a Job without a pod after a while.
func TestBuildProblem_ReportsMissingPod(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	for name, c := range map[string]struct {
		change func(*batchv1.Job)
		want   string
	}{
		"a new Job without a start time":  {func(j *batchv1.Job) { j.CreationTimestamp = ago(time.Second) }, ""},
		"a Job that started a second ago": {func(j *batchv1.Job) { j.Status.StartTime = ptr.To(ago(time.Second)) }, ""},
		"a Job that no controller starts": {func(*batchv1.Job) {}, "creates no pod"},
		"a started Job without a pod":     {func(j *batchv1.Job) { j.Status.StartTime = ptr.To(ago(time.Minute)) }, "creates no pod"},
		"a new Job with suspend true":     {func(j *batchv1.Job) { j.CreationTimestamp, j.Spec.Suspend = ago(0), ptr.To(true) }, "is suspended"},
		"a new Job with suspend false":    {func(j *batchv1.Job) { j.CreationTimestamp, j.Spec.Suspend = ago(0), ptr.To(false) }, ""},
		"a Job suspended for hours": {func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}}
		}, "kubectl patch job v1-build --type=merge"},
		"a resumed Job": {func(j *batchv1.Job) {
			j.Status.StartTime = ptr.To(ago(0))
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionFalse}}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			j := jobReference(&v1alpha1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "v1", Namespace: "team"}})
			j.CreationTimestamp = ago(time.Hour)
			c.change(j)
			r := &Reconciler{Base: &base.Base{Client: controllertest.Cached(t), Clock: clocktesting.NewFakePassiveClock(now)}}
			problem, err := r.buildProblem(t.Context(), j)
			require.NoError(t, err)
			require.Equal(t, c.want == "", problem == "", "%s", problem)
			require.Contains(t, problem, c.want)
		})
	}
}

// Builds have the scheduling of runners, and the plan's resources in each container.
func TestBuildJob_UsesPlacementAndPlan(t *testing.T) {
	t.Parallel()
	build := plan.Default().Build
	spec := job(source{URL: "u"}, buildSettings{Build: build, Runner: v1alpha1.RunnerPool{
		NodeSelector: map[string]string{"a": "b"}, Tolerations: []corev1.Toleration{{Key: "k"}}, RuntimeClassName: "gvisor",
		ImagePullSecrets: []v1alpha1.SecretReference{{Name: "registry"}},
		Affinity:         &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}},
	}})
	require.Equal(t, map[string]string{"a": "b"}, spec.NodeSelector)
	require.Equal(t, "k", spec.Tolerations[0].Key)
	require.Equal(t, "gvisor", *spec.RuntimeClassName)
	require.Equal(t, "registry", spec.ImagePullSecrets[0].Name)
	require.NotNil(t, spec.Affinity.NodeAffinity)
	require.Nil(t, spec.Affinity.PodAntiAffinity, "a build is no runner")
	require.False(t, *spec.AutomountServiceAccountToken)
	require.True(t, *spec.SecurityContext.RunAsNonRoot)
	for _, c := range append(spec.InitContainers, spec.Containers...) {
		require.Equal(t, build.Requirements(), c.Resources, c.Name)
		require.Equal(t, "platform:1", c.Image)
		require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
		require.Empty(t, c.Env)
	}
}
