// SPDX-License-Identifier: Apache-2.0

package runnerpool

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
)

func options() poolOptions {
	return poolOptions{
		PodOptions: base.PodOptions{Image: "platform:1", DispatchURL: "http://dispatch"}, ProjectID: "the-project", ConfigDigest: "digest",
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}},
	}
}

func environment(runner v1alpha1.RunnerPool) *v1alpha1.Environment {
	return &v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "dev"}, Spec: v1alpha1.EnvironmentSpec{Runner: runner}}
}

// Each field of an Environment's runner settings is in its pods.
func TestPool_HasEveryRunnerField(t *testing.T) {
	t.Parallel()
	affinity := &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}
	for name, c := range map[string]struct {
		runner v1alpha1.RunnerPool
		seen   func(pod corev1.PodTemplateSpec) any
		want   any
	}{
		"nothing: concurrency": {v1alpha1.RunnerPool{}, func(p corev1.PodTemplateSpec) any { return p.Spec.Containers[0].Args[4] }, "--concurrency=1"},
		"concurrency":          {v1alpha1.RunnerPool{Concurrency: 7}, func(p corev1.PodTemplateSpec) any { return p.Spec.Containers[0].Args[4] }, "--concurrency=7"},
		"node selector":        {v1alpha1.RunnerPool{NodeSelector: map[string]string{"a": "b"}}, func(p corev1.PodTemplateSpec) any { return p.Spec.NodeSelector["a"] }, "b"},
		"tolerations":          {v1alpha1.RunnerPool{Tolerations: []corev1.Toleration{{Key: "a"}}}, func(p corev1.PodTemplateSpec) any { return p.Spec.Tolerations[0].Key }, "a"},
		"affinity":             {v1alpha1.RunnerPool{Affinity: affinity}, func(p corev1.PodTemplateSpec) any { return p.Spec.Affinity }, affinity},
		"runtime class":        {v1alpha1.RunnerPool{RuntimeClassName: "gvisor"}, func(p corev1.PodTemplateSpec) any { return *p.Spec.RuntimeClassName }, "gvisor"},
		"pull secrets":         {v1alpha1.RunnerPool{ImagePullSecrets: []v1alpha1.SecretReference{{Name: "a"}}}, func(p corev1.PodTemplateSpec) any { return p.Spec.ImagePullSecrets[0].Name }, "a"},
		"labels":               {v1alpha1.RunnerPool{Labels: map[string]string{"a": "b"}}, func(p corev1.PodTemplateSpec) any { return p.Labels["a"] }, "b"},
		"annotations":          {v1alpha1.RunnerPool{Annotations: map[string]string{"a": "b"}}, func(p corev1.PodTemplateSpec) any { return p.Annotations["a"] }, "b"},
		"a label of ours": {
			v1alpha1.RunnerPool{Labels: map[string]string{v1alpha1.LabelProject: "x", base.LabelComponent: "x"}},
			func(p corev1.PodTemplateSpec) any {
				return p.Labels[v1alpha1.LabelProject] + " " + p.Labels[base.LabelComponent]
			}, "the-project runner",
		},
		"an annotation of ours": {
			v1alpha1.RunnerPool{Annotations: map[string]string{annotationConfig: "x"}},
			func(p corev1.PodTemplateSpec) any { return p.Annotations[annotationConfig] }, "digest",
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, c.seen(podTemplate(environment(c.runner), options())))
		})
	}
}

// The pool selects its own pods, adds a pod before it removes one, and gives runs the time of the pod's
// grace period.
func TestPool_HasSelectorAndStrategy(t *testing.T) {
	t.Parallel()
	e := environment(v1alpha1.RunnerPool{MinReplicas: ptr.To(int32(3))})
	p := newPool(e, options())
	require.EqualValues(t, 3, *p.Spec.Replicas)
	require.Equal(t, "dev-runner", p.Name)
	require.Equal(t, base.ManagedBy, p.Labels[base.LabelManagedBy], "else the cache would not have it")
	selects, err := metav1.LabelSelectorAsSelector(p.Spec.Selector)
	require.NoError(t, err)
	require.True(t, selects.Matches(labels.Set(p.Spec.Template.Labels)))
	require.False(t, selects.Matches(labels.Set(newPool(&v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}, options()).Spec.Template.Labels)))
	require.Equal(t, selects.String(), selector(e), "what the scale subresource shows")
	require.Equal(t, 1, p.Spec.Strategy.RollingUpdate.MaxSurge.IntValue())
	require.Zero(t, p.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue())
	spec := p.Spec.Template.Spec
	require.EqualValues(t, 45, *spec.TerminationGracePeriodSeconds)
	require.Contains(t, spec.Containers[0].Args, "--grace=30s")
	require.Contains(t, spec.Containers[0].Args, "--dispatch-url=http://dispatch")
	require.Equal(t, options().Resources, spec.Containers[0].Resources)
	require.True(t, *spec.SecurityContext.RunAsNonRoot)
	mounted := map[string]string{}
	for _, v := range spec.Volumes {
		mounted[v.Name] = v.Secret.SecretName
	}
	require.Equal(t, map[string]string{"token": "dev-runner-token", "config": "dev-runner-config"}, mounted)
	for _, m := range spec.Containers[0].VolumeMounts {
		require.True(t, m.ReadOnly, m.Name)
	}

	digest := platformDigest(options().PodOptions)
	require.Equal(t, digest, platformDigest(options().PodOptions))
	for name, change := range map[string]func(*base.PodOptions){
		"image": func(o *base.PodOptions) { o.Image = "platform:2" }, "dispatch": func(o *base.PodOptions) { o.DispatchURL += "x" },
		"trust": func(o *base.PodOptions) { o.TrustDispatchCA = !o.TrustDispatchCA }, "egress": func(o *base.PodOptions) { o.Egress.Allow += "x" },
	} {
		t.Run(name, func(t *testing.T) {
			changed := options().PodOptions
			change(&changed)
			require.NotEqual(t, digest, platformDigest(changed))
		})
	}
}
