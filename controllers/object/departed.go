// SPDX-License-Identifier: Apache-2.0

package object

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

// departed are objects that were seen deleted and are still in the store.
type departed struct {
	mu    sync.Mutex
	known map[grave][]store.ObjectRef
}

type grave struct {
	kind string
	name types.NamespacedName
}

// Deleted is the event handler that notes which incarnation of an object went,
// and queues its name, so that Reconcile removes it from the store and tries
// again where that fails. The store finds it by its name: whatever the object's
// status said, or had no time to say, does not matter.
func (k *Keeper) Deleted() handler.EventHandler {
	return handler.Funcs{
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			o, ok := e.Object.(v1alpha1.ConditionedObject)
			if !ok {
				return
			}
			name := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
			k.departed.add(grave{o.ObjectKind(), name}, k.Ref(o))
			queue.Add(ctrl.Request{NamespacedName: name})
		},
	}
}

func (d *departed) add(g grave, ref store.ObjectRef) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil {
		d.known = map[grave][]store.ObjectRef{}
	}
	d.known[g] = append(d.known[g], ref)
}

func (d *departed) take(g grave) []store.ObjectRef {
	d.mu.Lock()
	defer d.mu.Unlock()
	taken := d.known[g]
	delete(d.known, g)
	return taken
}

// bury removes from the store what went under a name.
func (k *Keeper) bury(ctx context.Context, kind string, name types.NamespacedName) error {
	g := grave{kind, name}
	gone := k.departed.take(g)
	for i, ref := range gone {
		if err := k.Store.Remove(ctx, k.ProjectID(name.Namespace), ref); err != nil {
			for _, left := range gone[i:] {
				k.departed.add(g, left)
			}
			return fmt.Errorf("removing %s from the store: %w", ref, err)
		}
	}
	return nil
}
