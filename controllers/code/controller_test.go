// SPDX-License-Identifier: Apache-2.0

package code

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
)

// environmentOf returns the environment of a deployment and of a mirror of its code.
func TestEnvironmentOf_FindsEnvironment(t *testing.T) {
	t.Parallel()
	labels := map[string]string{v1alpha1.LabelDefinedInCode: "true", v1alpha1.LabelEnvironment: "dev"}
	named := func(name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "team", Name: name, Labels: labels}
	}
	at := func(labels map[string]string) metav1.ObjectMeta { return named("a", labels) }
	for name, c := range map[string]struct {
		object client.Object
		want   []string
	}{
		"a deployment":       {&v1alpha1.Deployment{ObjectMeta: at(nil), Spec: v1alpha1.DeploymentSpec{Environment: "prod"}}, []string{"prod"}},
		"a mirror":           {&v1alpha1.Connector{ObjectMeta: at(labels), Spec: v1alpha1.ConnectorSpec{Environment: "dev"}}, []string{"dev"}},
		"its link":           {&v1alpha1.ConnectorLink{ObjectMeta: at(labels)}, []string{"dev"}},
		"a user's connector": {&v1alpha1.Connector{ObjectMeta: at(nil), Spec: v1alpha1.ConnectorSpec{Environment: "dev"}}, nil},
		"a user's link":      {&v1alpha1.ConnectorLink{ObjectMeta: at(nil)}, nil},
		"a user's connector with a mirror's name": {&v1alpha1.Connector{ObjectMeta: named("dev.ask", nil), Spec: v1alpha1.ConnectorSpec{Environment: "prod"}}, []string{"dev"}},
		"mirror label of another environment": {
			&v1alpha1.Connector{ObjectMeta: named("dev.ask", labels), Spec: v1alpha1.ConnectorSpec{Environment: "prod"}}, []string{"prod", "dev"},
		},
		"link with a mirror label of another environment": {&v1alpha1.ConnectorLink{ObjectMeta: named("prod.ask.hello", labels)}, []string{"dev", "prod"}},
	} {
		t.Run(name, func(t *testing.T) {
			var want []ctrl.Request
			for _, one := range c.want {
				want = append(want, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "team", Name: one}})
			}
			require.Equal(t, want, environmentOf(t.Context(), c.object))
		})
	}
}

// The watches pass changes of the live deployment and of mirrors.
func TestWatches_PassRelevantChanges(t *testing.T) {
	t.Parallel()
	changed := func(of predicate.Predicate, before, after client.Object) bool {
		return of.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
	}
	mirrors, environments, deployments := base.Changed(generationAndLabels), base.Changed(liveDeployment), base.Changed(liveSince)
	mirror := func(change func(*v1alpha1.Connector)) *v1alpha1.Connector {
		c := &v1alpha1.Connector{ObjectMeta: metav1.ObjectMeta{Generation: 1, Labels: map[string]string{v1alpha1.LabelDefinedInCode: "true"}}}
		change(c)
		return c
	}
	asIs := mirror(func(*v1alpha1.Connector) {})
	require.True(t, changed(mirrors, asIs, mirror(func(c *v1alpha1.Connector) { c.Generation++ })))
	require.True(t, changed(mirrors, asIs, mirror(func(c *v1alpha1.Connector) { c.Labels = nil })))
	require.False(t, changed(mirrors, asIs, mirror(func(c *v1alpha1.Connector) { v1alpha1.MarkReady(c, "") })))

	e := &v1alpha1.Environment{}
	live := e.DeepCopy()
	live.Status.LiveDeploymentID = "a"
	require.True(t, changed(environments, e, live))
	require.False(t, changed(environments, live, live.DeepCopy()))

	d := &v1alpha1.Deployment{}
	activated := d.DeepCopy()
	activated.MarkLive(metav1.NewTime(time.Unix(1, 0)), 4)
	again := activated.DeepCopy()
	again.MarkLive(metav1.NewTime(time.Unix(1, 0)), 5)
	require.True(t, changed(deployments, d, activated))
	require.True(t, changed(deployments, activated, again), "the same, by another activation in the same second")
	require.False(t, changed(deployments, d, d.DeepCopy()))
}

func TestLeftAsTheyAre_FindsUnappliedConnectors(t *testing.T) {
	t.Parallel()
	require.Equal(t, map[string]bool{"a": true, "b": true, "c": false},
		unappliedConnectors(json.RawMessage(`[{"connector":"a","action":"skipped"},{"connector":"b","action":"failed"},{"connector":"c","action":"created"}]`)))
	require.Empty(t, unappliedConnectors(nil))
	require.Empty(t, unappliedConnectors(json.RawMessage(`{`)))
}
