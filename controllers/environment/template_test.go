// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/controllers/object"
)

func options() poolOptions {
	return poolOptions{
		PodOptions: object.PodOptions{Image: "platform:1", DispatchURL: "http://dispatch"}, ProjectID: "the-project", ConfigDigest: "digest",
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
			v1alpha1.RunnerPool{Labels: map[string]string{v1alpha1.LabelProject: "x", object.LabelComponent: "x"}},
			func(p corev1.PodTemplateSpec) any {
				return p.Labels[v1alpha1.LabelProject] + " " + p.Labels[object.LabelComponent]
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
	require.Equal(t, object.ManagedBy, p.Labels[object.LabelManagedBy], "else the cache would not have it")
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
	for name, change := range map[string]func(*object.PodOptions){
		"image": func(o *object.PodOptions) { o.Image = "platform:2" }, "dispatch": func(o *object.PodOptions) { o.DispatchURL += "x" },
		"trust": func(o *object.PodOptions) { o.TrustDispatchCA = !o.TrustDispatchCA }, "egress": func(o *object.PodOptions) { o.Egress.Allow += "x" },
	} {
		t.Run(name, func(t *testing.T) {
			changed := options().PodOptions
			change(&changed)
			require.NotEqual(t, digest, platformDigest(changed))
		})
	}
}

// Environments are reconciled for each field that they read of a project or a deployment, and for no
// other field.
func TestWatches_PassRelevantChanges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*v1alpha1.Project)
		told   bool
	}{
		"another spec":   {func(p *v1alpha1.Project) { p.Generation++ }, true},
		"its id":         {func(p *v1alpha1.Project) { p.Status.ID = "a" }, true},
		"its network":    {(*v1alpha1.Project).MarkNetworkReady, true},
		"the default":    {func(p *v1alpha1.Project) { p.Status.DefaultEnvironment = "dev" }, true},
		"that it waits":  {func(p *v1alpha1.Project) { v1alpha1.MarkReconciling(p, "Progressing", "m") }, false},
		"an annotation":  {func(p *v1alpha1.Project) { p.Annotations = map[string]string{"a": "b"} }, false},
		"a bad network":  {func(p *v1alpha1.Project) { p.MarkNetworkMissing(v1alpha1.ReasonNameCollision, "m") }, false},
		"nothing at all": {func(*v1alpha1.Project) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := &v1alpha1.Project{}
			after := before.DeepCopy()
			c.change(after)
			require.Equal(t, c.told, object.Changed(projectState).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}))
		})
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.Deployment)
		told   bool
	}{
		"its phase":   {func(d *v1alpha1.Deployment) { d.Status.Phase = v1alpha1.DeploymentDeployed }, true},
		"being live":  {func(d *v1alpha1.Deployment) { d.Status.Live = true }, true},
		"its step":    {func(d *v1alpha1.Deployment) { d.Status.Step = v1alpha1.StepPacking }, false},
		"its agents":  {func(d *v1alpha1.Deployment) { d.Status.AgentCount = 3 }, false},
		"its message": {func(d *v1alpha1.Deployment) { d.Status.Message = "m" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := &v1alpha1.Deployment{}
			after := before.DeepCopy()
			c.change(after)
			require.Equal(t, c.told, object.Changed(liveState).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}))
		})
	}
	require.Nil(t, projectState(&v1alpha1.Deployment{}))
	require.Nil(t, liveState(&v1alpha1.Project{}))
}

// usersOf returns the environments of a project whose model providers use the Secret, and those with a
// variable from it.
func TestUsersOf_FindsEnvironments(t *testing.T) {
	t.Parallel()
	at := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	project := &v1alpha1.Project{ObjectMeta: at("team", "project"), Spec: v1alpha1.ProjectSpec{ModelProviders: []v1alpha1.ModelProvider{
		{Prefix: "a"}, {Prefix: "b", APIKeySecretRef: &v1alpha1.SecretKeyReference{Name: "llm", Key: "key"}},
	}}}
	value := "key"
	withVariables := v1alpha1.EnvironmentSpec{Variables: []v1alpha1.EnvironmentVariable{
		{Name: "A", Value: &value}, {Name: "B", SecretKeyRef: &v1alpha1.SecretKeyReference{Name: "crm", Key: "token"}},
	}}
	r := &Reconciler{Base: &object.Base{Client: controllertest.Cached(t, project,
		&v1alpha1.Environment{ObjectMeta: at("team", "dev")}, &v1alpha1.Environment{ObjectMeta: at("team", "prod"), Spec: withVariables},
		&v1alpha1.Environment{ObjectMeta: at("other", "dev")},
	)}}
	for _, c := range []struct {
		secret metav1.ObjectMeta
		want   []string
	}{
		{at("team", "llm"), []string{"dev", "prod"}}, {at("team", "key"), nil}, {at("other", "llm"), nil},
		{at("team", "crm"), []string{"prod"}}, {at("other", "crm"), nil},
	} {
		t.Run(c.secret.Namespace+"/"+c.secret.Name, func(t *testing.T) {
			require.Equal(t, c.want, controllertest.Names(r.usersOf(t.Context(), &corev1.Secret{ObjectMeta: c.secret})), "%s/%s", c.secret.Namespace, c.secret.Name)
		})
	}
}
