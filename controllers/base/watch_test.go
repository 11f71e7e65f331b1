// SPDX-License-Identifier: Apache-2.0

package base_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/store"
)

// queue is a queue that records additions, including delayed ones.
type queue struct {
	workqueue.TypedRateLimitingInterface[ctrl.Request]
	names []string
	after time.Duration
}

func (q *queue) Add(r ctrl.Request) { q.names = append(q.names, r.Namespace+"/"+r.Name) }

func (q *queue) AddAfter(r ctrl.Request, after time.Duration) {
	q.after = after
	q.Add(r)
}

// at returns the metadata of an object in a namespace.
func at(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func connector(namespace, name string, spec v1alpha1.ConnectorSpec) *v1alpha1.Connector {
	return &v1alpha1.Connector{ObjectMeta: at(namespace, name), Spec: spec}
}

// Objects are selected by an index, by namespace, and by a pick function.
func TestEnqueue_SelectsObjects(t *testing.T) {
	t.Parallel()
	dev, prod := v1alpha1.ConnectorSpec{Environment: "dev"}, v1alpha1.ConnectorSpec{Environment: "prod"}
	named := v1alpha1.ConnectorSpec{Environment: "prod", SecretRef: &v1alpha1.SecretReference{Name: "dev"}}
	keeper := &base.Base{Client: Cached(t,
		connector("team", "a", dev), connector("team", "b", prod), connector("team", "c", named), connector("other", "d", dev),
		&v1alpha1.ConnectorLink{ObjectMeta: at("team", "l"), Spec: v1alpha1.ConnectorLinkSpec{Connector: "dev"}},
		&v1alpha1.Deployment{ObjectMeta: at("team", "v1"), Spec: v1alpha1.DeploymentSpec{Environment: "dev"}},
	)}
	connectors := &v1alpha1.ConnectorList{}
	notA := func(_ client.Object, c v1alpha1.ConditionedObject) bool { return c.GetName() != "a" }
	changed := &v1alpha1.Environment{ObjectMeta: at("team", "dev")}
	for name, c := range map[string]struct {
		handler handler.EventHandler
		changed client.Object
		want    []string
	}{
		"all of the namespace":             {keeper.Enqueue(connectors, nil), changed, []string{"team/a", "team/b", "team/c"}},
		"the Namespace itself":             {keeper.Enqueue(connectors, nil), &corev1.Namespace{ObjectMeta: at("", "team")}, []string{"team/a", "team/b", "team/c"}},
		"all selected objects":             {keeper.Enqueue(connectors, notA), changed, []string{"team/b", "team/c"}},
		"by environment":                   {keeper.EnqueueBy(base.ByEnvironment, connectors, nil), changed, []string{"team/a"}},
		"by Secret":                        {keeper.EnqueueBy(base.BySecret, connectors, nil), &corev1.Secret{ObjectMeta: at("team", "dev")}, []string{"team/c"}},
		"by a Secret that no object names": {keeper.EnqueueBy(base.BySecret, connectors, nil), &corev1.Secret{ObjectMeta: at("team", "x")}, nil},
		"by environment, none selected":    {keeper.EnqueueBy(base.ByEnvironment, connectors, notA), changed, nil},
		"links by connector":               {keeper.EnqueueBy(base.ByConnector, &v1alpha1.ConnectorLinkList{}, nil), connector("team", "dev", dev), []string{"team/l"}},
		"deployments":                      {keeper.EnqueueBy(base.ByEnvironment, &v1alpha1.DeploymentList{}, nil), changed, []string{"team/v1"}},
		"same name in another namespace":   {keeper.EnqueueBy(base.ByEnvironment, connectors, nil), &v1alpha1.Environment{ObjectMeta: at("x", "dev")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			q := &queue{}
			c.handler.Create(t.Context(), event.CreateEvent{Object: c.changed}, q)
			require.Equal(t, c.want, q.names)
		})
	}
}

// Creations and deletions always pass. Updates pass if the function's result changed.
func TestChanged_ComparesFields(t *testing.T) {
	t.Parallel()
	id := func(o v1alpha1.ConditionedObject) any { return o.CommonStatus().ID }
	predicate := base.Changed(id)
	before := &v1alpha1.Environment{}
	after := before.DeepCopy()
	require.True(t, predicate.Create(event.CreateEvent{Object: before}))
	require.True(t, predicate.Delete(event.DeleteEvent{Object: before}))
	require.False(t, predicate.Generic(event.GenericEvent{Object: before}))
	update := func() bool { return predicate.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) }
	after.Status.Runner.ReadyReplicas, after.Generation = 7, 7
	require.False(t, update(), "what nobody reads")
	after.Status.ID = "a"
	require.True(t, update())
	require.False(t, predicate.Update(event.UpdateEvent{ObjectOld: &corev1.Pod{}, ObjectNew: after}), "an object of another kind")
}

// Waiting objects are queued after a deletion, with a delay, and not after a creation.
func TestAfterwards_QueuesAfterRemoval(t *testing.T) {
	t.Parallel()
	gone := connector("team", "a", v1alpha1.ConnectorSpec{})
	waiting := base.EnqueueAfterRemoval(func(_ context.Context, o client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: "waits-for-" + o.GetName()}}}
	})
	q := &queue{}
	waiting.Create(t.Context(), event.CreateEvent{Object: gone}, q)
	require.Empty(t, q.names)
	waiting.Update(t.Context(), event.UpdateEvent{ObjectOld: connector("team", "before", v1alpha1.ConnectorSpec{}), ObjectNew: gone}, q)
	waiting.Delete(t.Context(), event.DeleteEvent{Object: gone}, q)
	require.Equal(t, []string{"team/waits-for-a", "team/waits-for-a"}, q.names)
	require.Equal(t, time.Second, q.after)
}

// A deletion is recorded with its UID, whatever watch reports it.
func TestDeleted_RecordsUID(t *testing.T) {
	t.Parallel()
	removed := &removals{}
	keeper := &base.Base{Client: Cached(t), Reader: Cached(t), Store: removed}
	q := &queue{}
	for _, uid := range []types.UID{"first", "second"} {
		e := &v1alpha1.Environment{ObjectMeta: at("team", "dev")}
		e.UID = uid
		keeper.Deleted().Delete(t.Context(), event.DeleteEvent{Object: e}, q)
	}
	keeper.Deleted().Delete(t.Context(), event.DeleteEvent{Object: &corev1.Pod{}}, q)
	require.Equal(t, []string{"team/dev", "team/dev"}, q.names)
	request := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: "dev"}}

	removed.fail = store.ErrConflict
	_, err := keeper.Reconcile(t.Context(), request, &v1alpha1.Environment{}, nil)
	require.ErrorIs(t, err, store.ErrConflict)
	_, err = keeper.Reconcile(t.Context(), request, &v1alpha1.Connector{}, nil)
	require.NoError(t, err, "another kind of that name has nothing to remove")
	removed.fail = nil
	for range 2 {
		_, err = keeper.Reconcile(t.Context(), request, &v1alpha1.Environment{}, nil)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"first", "second"}, removed.uids, "each of them once")
}

// removals is a store that records removals.
type removals struct {
	base.Store
	fail error
	uids []string
}

// Remove implements base.Store.
func (r *removals) Remove(_ context.Context, _ uuid.UUID, ref store.ObjectRef) error {
	if r.fail == nil {
		r.uids = append(r.uids, ref.ObjectUID)
	}
	return r.fail
}

// An object sends one event per reason and minute.
func TestEvent_OnePerReasonAndMinute(t *testing.T) {
	t.Parallel()
	clock, events := clocktesting.NewFakeClock(time.Now()), &Events{}
	keeper := &base.Base{Clock: clock, Events: events}
	a, b := &v1alpha1.Environment{}, &v1alpha1.Environment{}
	a.UID, b.UID = "a", "b"
	for range 100 {
		keeper.Event(a, corev1.EventTypeNormal, "Up", "m")
		keeper.Event(a, corev1.EventTypeNormal, "Down", "m")
		keeper.Event(b, corev1.EventTypeNormal, "Up", "m")
		clock.Step(time.Second / 2)
	}
	require.Len(t, events.Sent(), 3, "in 50 seconds")
	clock.Step(10 * time.Second)
	keeper.Event(a, corev1.EventTypeNormal, "Up", strings.Repeat("x", 5000))
	again := events.Sent()
	require.Len(t, again, 1, "a minute later")
	require.LessOrEqual(t, len(again[0]), len("Normal Up: ")+1000)
	(&base.Base{}).Event(a, corev1.EventTypeNormal, "Up", "m") // does nothing without a recorder
}
