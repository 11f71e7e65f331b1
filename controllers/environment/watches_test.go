// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/controllertest"
)

// Environments are reconciled for each field that they read of a project or a deployment, and for no
// other field.
func TestWatches_PassRelevantChanges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   func(*v1alpha1.Project)
		enqueued bool
	}{
		"another spec":                  {func(p *v1alpha1.Project) { p.Generation++ }, true},
		"its ID":                        {func(p *v1alpha1.Project) { p.Status.ID = "a" }, true},
		"its network condition":         {(*v1alpha1.Project).MarkNetworkReady, true},
		"its default environment":       {func(p *v1alpha1.Project) { p.Status.DefaultEnvironment = "dev" }, true},
		"its progress condition":        {func(p *v1alpha1.Project) { v1alpha1.MarkReconciling(p, "Progressing", "m") }, false},
		"an annotation":                 {func(p *v1alpha1.Project) { p.Annotations = map[string]string{"a": "b"} }, false},
		"its network policy is missing": {func(p *v1alpha1.Project) { p.MarkNetworkMissing(v1alpha1.ReasonNameCollision, "m") }, false},
		"no change":                     {func(*v1alpha1.Project) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := &v1alpha1.Project{}
			after := before.DeepCopy()
			c.change(after)
			require.Equal(t, c.enqueued, base.Changed(projectState).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}))
		})
	}
	for name, c := range map[string]struct {
		change   func(*v1alpha1.Deployment)
		enqueued bool
	}{
		"its phase":     {func(d *v1alpha1.Deployment) { d.Status.Phase = v1alpha1.DeploymentDeployed }, true},
		"its live flag": {func(d *v1alpha1.Deployment) { d.Status.Live = true }, true},
		"its step":      {func(d *v1alpha1.Deployment) { d.Status.Step = v1alpha1.StepPacking }, false},
		"its agents":    {func(d *v1alpha1.Deployment) { d.Status.AgentCount = 3 }, false},
		"its message":   {func(d *v1alpha1.Deployment) { d.Status.Message = "m" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := &v1alpha1.Deployment{}
			after := before.DeepCopy()
			c.change(after)
			require.Equal(t, c.enqueued, base.Changed(liveState).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}))
		})
	}
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
	r := &Reconciler{Base: &base.Base{Client: controllertest.Cached(t, project,
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
