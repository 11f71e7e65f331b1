// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/plan"
)

const (
	component         = "build"
	workspace         = "/workspace"
	credentialsFolder = "/etc/agentplatform/git"   //nolint:gosec // a folder
	tokenFolder       = "/etc/agentplatform/token" //nolint:gosec // a folder
	configFolder      = "/etc/agentplatform/config"
	// jobSeconds is the TTL of an ended Job and its pods, for debugging. The store has the log. The
	// build's token is deleted with the Job.
	jobSeconds int32 = 3600
	// podTimeout is the tolerated time until Kubernetes has created a pod.
	podTimeout = 15 * time.Second
	// retries is the number of retries for evicted or lost pods. A repository that cannot be built is
	// an outcome, not a failed pod.
	retries int32 = 2
)

func jobName(d *v1alpha1.Deployment) string   { return base.ChildName(d.Name, "build") }
func tokenName(d *v1alpha1.Deployment) string { return base.ChildName(d.Name, "build-token") }

// jobReference returns a Job that has only the name of the build Job.
func jobReference(d *v1alpha1.Deployment) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: jobName(d)}}
}

// buildSettings is the scheduling and the resources of a build.
type buildSettings struct {
	Runner v1alpha1.RunnerPool
	Build  plan.Build
	// Tests is the environment whose configuration the tests use, or empty if tests are skipped.
	Tests string
}

// buildSettings returns the scheduling of the environment and the resources of the plan. It returns
// *base.MissingError while the environment may not have builds; the environment reports the reason.
func (r *Reconciler) buildSettings(ctx context.Context, v *deploymentState) (buildSettings, error) {
	if err := base.NetworkReady(v.project); err != nil {
		return buildSettings{}, err
	}
	allowed, _, err := r.Plan(ctx, v.project)
	if err != nil {
		return buildSettings{}, err
	}
	runner := v.environment.Spec.Runner
	if v.environment.IsBeyondLimit() || allowed.Runner.Check(runner) != nil {
		return buildSettings{}, &base.MissingError{Kind: v.environment.ObjectKind(), Name: v.environment.Name, Unready: true}
	}
	tests, err := r.testEnvironment(ctx, v)
	return buildSettings{Runner: runner, Build: allowed.Build, Tests: tests}, err
}

// buildJob returns the build Job. An init container fetches the commit, and only it has the Git
// credentials. The main container packs and tests, and only it has the dispatch token and the
// configuration of runners. It fetches an upload with that token.
func buildJob(d *v1alpha1.Deployment, from source, in buildSettings, opts base.PodOptions) *batchv1.Job {
	labels := base.Labels(component, d.Name)
	labels[v1alpha1.LabelDeployment] = d.Name
	labels[v1alpha1.LabelEnvironment] = string(d.Spec.Environment)
	deadline, backoff, keep := in.Build.TimeoutSeconds, retries, jobSeconds
	size := resource.MustParse("1Gi")
	spec := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{packContainer(from, in, opts)},
		Volumes: []corev1.Volume{
			{Name: "workspace", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}},
			{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}},
			base.SecretVolume("token", tokenName(d)),
		},
	}
	if from.Upload == "" {
		spec.InitContainers = []corev1.Container{fetchContainer(from, opts)}
	}
	if from.Secret != "" {
		spec.Volumes = append(spec.Volumes, base.SecretVolume("git", from.Secret))
	}
	if in.Tests != "" {
		spec.Volumes = append(spec.Volumes, configVolume(in.Tests))
	} else {
		spec.Volumes = append(spec.Volumes, variablesVolume(string(d.Spec.Environment)))
	}
	opts.ConnectDispatch(&spec, &spec.Containers[0])
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i].Resources = in.Build.Requirements()
		}
	}
	base.SetScheduling(&spec, in.Runner)
	base.SetSecurity(&spec)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: jobName(d), Namespace: d.Namespace, Labels: labels,
		},
		Spec: batchv1.JobSpec{
			BackoffLimit: &backoff, ActiveDeadlineSeconds: &deadline, TTLSecondsAfterFinished: &keep,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
}

func fetchContainer(from source, opts base.PodOptions) corev1.Container {
	args := append([]string{"build", "fetch", "--dir=" + workspace, "--url=" + from.URL}, opts.Egress.Args()...)
	for _, option := range []struct{ flag, value string }{
		{"--branch=", from.Branch}, {"--commit=", from.Commit}, {"--path=", from.Path},
	} {
		if option.value != "" {
			args = append(args, option.flag+option.value)
		}
	}
	mounts := workMounts()
	if from.Secret != "" {
		args = append(args, "--credentials="+credentialsFolder)
		mounts = append(mounts, corev1.VolumeMount{Name: "git", MountPath: credentialsFolder, ReadOnly: true})
	}
	return corev1.Container{
		Name: "fetch", Image: opts.Image, Command: []string{"/usr/local/bin/runner"}, Args: args, VolumeMounts: mounts,
	}
}

func packContainer(from source, in buildSettings, opts base.PodOptions) corev1.Container {
	args := []string{"build", "pack", "--dir=" + workspace, "--token-file=" + tokenFolder + "/" + base.TokenKey}
	if from.Upload != "" {
		args = append(args, "--upload="+from.Upload)
	}
	mounts := append(workMounts(), corev1.VolumeMount{Name: "token", MountPath: tokenFolder, ReadOnly: true},
		corev1.VolumeMount{Name: "config", MountPath: configFolder, ReadOnly: true})
	if in.Tests == "" {
		args = append(args, "--skip-tests", variablesArg)
	} else {
		args = append(args, testArgs(in.Build)...)
	}
	args = append(args, opts.Egress.Args()...)
	return corev1.Container{
		Name: "pack", Image: opts.Image, Command: []string{"/usr/local/bin/runner"}, Args: args, VolumeMounts: mounts,
	}
}

// workMounts returns the writable folders of both containers.
func workMounts() []corev1.VolumeMount {
	return []corev1.VolumeMount{{Name: "workspace", MountPath: workspace}, {Name: "tmp", MountPath: "/tmp"}}
}
