// SPDX-License-Identifier: Apache-2.0

package base

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// Fields that the cache indexes objects by. The first two are selectable fields of the API server too.
const (
	// ByEnvironment finds Connectors and Deployments.
	ByEnvironment = "spec.environment"
	// ByConnector finds ConnectorLinks.
	ByConnector = "spec.connector"
	// BySource finds the ConnectorLinks that send the results of runs which a Connector started.
	BySource = "spec.outbound.sourceConnectors"
	// BySecret finds the Connectors whose secretRef or headersSecretRef names a Secret.
	BySecret = "spec.secretRef.name" //nolint:gosec // a path of a field
)

// IndexFields adds the indexes to the cache.
func IndexFields(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range []struct {
		object client.Object
		field  string
		values func(client.Object) []string
	}{
		{&v1alpha1.Connector{}, ByEnvironment, func(o client.Object) []string { return []string{string(o.(*v1alpha1.Connector).Spec.Environment)} }},
		{&v1alpha1.Deployment{}, ByEnvironment, func(o client.Object) []string { return []string{string(o.(*v1alpha1.Deployment).Spec.Environment)} }},
		{&v1alpha1.ConnectorLink{}, ByConnector, func(o client.Object) []string { return []string{string(o.(*v1alpha1.ConnectorLink).Spec.Connector)} }},
		{&v1alpha1.ConnectorLink{}, BySource, func(o client.Object) (names []string) {
			if policy := o.(*v1alpha1.ConnectorLink).Spec.Outbound; policy != nil {
				for _, name := range policy.SourceConnectors {
					names = append(names, string(name))
				}
			}
			return names
		}},
		{&v1alpha1.Connector{}, BySecret, func(o client.Object) (names []string) {
			spec := o.(*v1alpha1.Connector).Spec
			for _, ref := range []*v1alpha1.SecretReference{spec.SecretRef, spec.HeadersSecretRef} {
				if ref != nil {
					names = append(names, string(ref.Name))
				}
			}
			return names
		}},
	} {
		err := indexer.IndexField(ctx, index.object, index.field, index.values)
		if err != nil {
			return fmt.Errorf("indexing objects by %s: %w", index.field, err)
		}
	}
	return nil
}

// Filter reports whether a change concerns an object.
type Filter func(changed client.Object, candidate v1alpha1.ConditionedObject) bool

// Enqueue returns an event handler that queues objects of the list's kind, in the namespace of the
// changed object or in the changed Namespace. It queues the objects that pick selects, or all if pick
// is nil.
func (b *Base) Enqueue(kind client.ObjectList, pick Filter) handler.EventHandler {
	return b.enqueue(kind, pick, func(client.Object) []client.ListOption { return nil })
}

// EnqueueBy is Enqueue for the objects whose indexed field has the name of the changed object.
func (b *Base) EnqueueBy(field string, kind client.ObjectList, pick Filter) handler.EventHandler {
	return b.enqueue(kind, pick, func(changed client.Object) []client.ListOption {
		return []client.ListOption{client.MatchingFields{field: changed.GetName()}}
	})
}

func (b *Base) enqueue(kind client.ObjectList, pick Filter, narrow func(client.Object) []client.ListOption) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, changed client.Object) (requests []ctrl.Request) {
		list := kind.DeepCopyObject().(client.ObjectList)
		opts := append(narrow(changed), client.InNamespace(cmp.Or(changed.GetNamespace(), changed.GetName())))
		err := b.Client.List(ctx, list, opts...)
		if err == nil {
			err = meta.EachListItem(list, func(o runtime.Object) error {
				if candidate := o.(v1alpha1.ConditionedObject); pick == nil || pick(changed, candidate) {
					requests = append(requests, Request(candidate))
				}
				return nil
			})
		}
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "listing the objects for a change")
		}
		return requests
	})
}

// Request returns the request to reconcile an object.
func Request(o v1alpha1.ConditionedObject) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o.(client.Object))}
}

// WatchSecrets watches the child Secrets of a controller, and calls changed for all other Secrets. It
// watches metadata only, because values are read when they are needed.
func WatchSecrets(to *builder.Builder, changed handler.EventHandler) *builder.Builder {
	return to.Owns(&corev1.Secret{}, builder.OnlyMetadata).Watches(&corev1.Secret{}, changed, builder.OnlyMetadata)
}

// IDChanged passes the events that matter to objects which name this one: creation, a new ID, and
// deletion.
var IDChanged = builder.WithPredicates(Changed(func(o v1alpha1.ConditionedObject) any { return o.CommonStatus().ID }))

// removalDelay is the usual time until the store has removed the row of a deleted object.
const removalDelay = time.Second

// EnqueueAfterRemoval queues the objects that wait for a claim of another object when that object changes, and
// again after its deletion, when the store has removed its row. An object that is queued too early
// retries after MaxRetryInterval.
func EnqueueAfterRemoval(waiting handler.MapFunc) handler.EventHandler {
	enqueue := func(ctx context.Context, o client.Object, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
		for _, r := range waiting(ctx, o) {
			queue.AddAfter(r, removalDelay)
		}
	}
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			enqueue(ctx, e.ObjectNew, queue)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			enqueue(ctx, e.Object, queue)
		},
	}
}

// Changed passes creations, deletions, and updates of an O that change the result of the function.
func Changed[O v1alpha1.ConditionedObject](of func(O) any) predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, isObject := e.ObjectOld.(O)
			after, isToo := e.ObjectNew.(O)
			return isObject && isToo && of(before) != of(after)
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// IsEnvironmentOf picks the environment of a deployment.
func IsEnvironmentOf(deployment client.Object, environment v1alpha1.ConditionedObject) bool {
	d, ok := deployment.(*v1alpha1.Deployment)
	return ok && string(d.Spec.Environment) == environment.GetName()
}

// Queue sends an object to the channel of a controller, which reconciles it.
func Queue(ctx context.Context, changed chan<- event.GenericEvent, o client.Object) error {
	select {
	case changed <- event.GenericEvent{Object: o}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
