// SPDX-License-Identifier: Apache-2.0

package object

import (
	"cmp"
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// Enqueue is an event handler that queues those objects in the namespace of what
// changed, or in the Namespace that changed, that concerned picks.
func Enqueue[L client.ObjectList](
	c client.Reader, newList func() L, items func(L) []v1alpha1.ConditionedObject,
	concerned func(changed client.Object, candidate v1alpha1.ConditionedObject) bool,
) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, changed client.Object) []ctrl.Request {
		list := newList()
		if err := c.List(ctx, list, client.InNamespace(cmp.Or(changed.GetNamespace(), changed.GetName()))); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "listing what a change concerns")
			return nil
		}
		var requests []ctrl.Request
		for _, o := range items(list) {
			if concerned(changed, o) {
				requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o.(client.Object))})
			}
		}
		return requests
	})
}

// ComesOrGoes lets through what concerns those that name an object: it is there,
// holds its id, or is gone.
var ComesOrGoes = builder.WithPredicates(predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, isObject := e.ObjectOld.(v1alpha1.ConditionedObject)
		after, isToo := e.ObjectNew.(v1alpha1.ConditionedObject)
		return isObject && isToo && before.CommonStatus().ID != after.CommonStatus().ID
	},
	GenericFunc: func(event.GenericEvent) bool { return false },
})

// Environments are the environments of a list.
func Environments(list *v1alpha1.EnvironmentList) []v1alpha1.ConditionedObject {
	out := make([]v1alpha1.ConditionedObject, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out
}

// Deployments are the deployments of a list.
func Deployments(list *v1alpha1.DeploymentList) []v1alpha1.ConditionedObject {
	out := make([]v1alpha1.ConditionedObject, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out
}

// Connectors are the connectors of a list.
func Connectors(list *v1alpha1.ConnectorList) []v1alpha1.ConditionedObject {
	out := make([]v1alpha1.ConditionedObject, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out
}

// Links are the links of a list.
func Links(list *v1alpha1.ConnectorLinkList) []v1alpha1.ConditionedObject {
	out := make([]v1alpha1.ConditionedObject, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out
}

// Always picks every candidate.
func Always(client.Object, v1alpha1.ConditionedObject) bool { return true }

// DeploysTo picks the environment of a deployment.
func DeploysTo(deployment client.Object, environment v1alpha1.ConditionedObject) bool {
	d, ok := deployment.(*v1alpha1.Deployment)
	return ok && string(d.Spec.Environment) == environment.GetName()
}
