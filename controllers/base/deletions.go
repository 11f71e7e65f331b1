// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// deletions has the deleted objects whose rows are still in the store.
type deletions struct {
	mu    sync.Mutex
	known map[objectName][]store.ObjectRef
}

type objectName struct {
	kind string
	name types.NamespacedName
}

// Deleted returns an event handler that records the UID of a deleted object and queues its name.
// Reconcile then removes the object from the store, and retries on errors. The store finds the row by
// name, so the last status of the object does not matter.
func (b *Base) Deleted() handler.EventHandler {
	return handler.Funcs{
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			o, ok := e.Object.(v1alpha1.ConditionedObject)
			if !ok {
				return
			}
			name := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
			b.deletions.addDeletion(objectName{o.ObjectKind(), name}, b.Ref(o))
			queue.Add(ctrl.Request{NamespacedName: name})
		},
	}
}

func (d *deletions) addDeletion(of objectName, ref store.ObjectRef) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil {
		d.known = map[objectName][]store.ObjectRef{}
	}
	d.known[of] = append(d.known[of], ref)
}

func (d *deletions) takeDeletions(of objectName) []store.ObjectRef {
	d.mu.Lock()
	defer d.mu.Unlock()
	taken := d.known[of]
	delete(d.known, of)
	return taken
}

// removeDeleted removes from the store the rows of deleted objects with this name.
func (b *Base) removeDeleted(ctx context.Context, kind string, name types.NamespacedName) error {
	of := objectName{kind, name}
	gone := b.deletions.takeDeletions(of)
	for i, ref := range gone {
		if err := b.Store.Remove(ctx, b.ProjectID(name.Namespace), ref); err != nil {
			for _, left := range gone[i:] {
				b.deletions.addDeletion(of, left)
			}
			return fmt.Errorf("removing %s from the store: %w", ref, err)
		}
	}
	return nil
}
