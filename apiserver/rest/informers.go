// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/internal/namespaces"
)

// kind is a kind of objects for informers.
type kind struct {
	// name is the name in texts, such as API keys.
	name     string
	object   client.Object
	list     func() client.ObjectList
	indexers cache.Indexers
}

// informedObjects are the objects of a kind in informers. They can be stale by a moment.
type informedObjects struct {
	kind
	client     client.WithWatch
	namespaces []string
	logger     *slog.Logger
	informers  []cache.SharedIndexInformer
	// refused reports per informer that Kubernetes denies its list.
	refused []atomic.Bool
}

// newInformedObjects returns informers that run starts. An empty set stands for all namespaces.
func newInformedObjects(c client.WithWatch, within namespaces.Set, logger *slog.Logger, k kind) *informedObjects {
	w := &informedObjects{kind: k, client: c, namespaces: within, logger: logger}
	if len(within) == 0 {
		w.namespaces = []string{metav1.NamespaceAll}
	}
	w.refused = make([]atomic.Bool, len(w.namespaces))
	for _, namespace := range w.namespaces {
		w.informers = append(w.informers, w.informer(namespace))
	}
	return w
}

func (w *informedObjects) informer(namespace string) cache.SharedIndexInformer {
	options := func(o metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{Namespace: namespace, Raw: &o}
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := w.list()
			return list, w.client.List(ctx, list, options(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return w.client.Watch(ctx, w.list(), options(o))
		},
	}
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(source, w.client), w.object, 0, w.indexers)
}

// run updates the objects until ctx ends. A namespace that Kubernetes denies does not block the others.
func (w *informedObjects) run(ctx context.Context) error {
	var group errgroup.Group
	for i, informer := range w.informers {
		namespace := w.namespaces[i]
		if err := informer.SetTransform(dropUnused); err != nil {
			return fmt.Errorf("starting to read %s: %w", w.name, err)
		}
		err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
			if apierrors.IsForbidden(err) {
				w.refused[i].Store(true)
			}
			if ctx.Err() == nil && !apierrors.IsResourceExpired(err) {
				w.logger.WarnContext(ctx, "reading from Kubernetes failed; the informer retries", "what", w.name, "namespace", namespace, "error", err)
			}
		})
		if err != nil {
			return fmt.Errorf("starting to read %s: %w", w.name, err)
		}
		group.Go(func() error {
			informer.RunWithContext(ctx)
			return nil
		})
	}
	return group.Wait()
}

// synced returns an error until all informers have synced, except informers that Kubernetes denies.
func (w *informedObjects) synced() error {
	for i, informer := range w.informers {
		if !informer.HasSynced() && !w.refused[i].Load() {
			return fmt.Errorf("the informer of %s in namespace %q has not synced yet", w.name, w.namespaces[i])
		}
	}
	return nil
}

// dropUnused drops fields that nothing reads and that tenants can make large.
func dropUnused(o any) (any, error) {
	if object, err := meta.Accessor(o); err == nil {
		object.SetManagedFields(nil)
		object.SetAnnotations(nil)
	}
	return o, nil
}

// byIndex returns the objects with a value in an index. The caller must not modify them.
func (w *informedObjects) byIndex(index, value string) (found []any) {
	for _, informer := range w.informers {
		if objects, err := informer.GetIndexer().ByIndex(index, value); err == nil { // the index exists
			found = append(found, objects...)
		}
	}
	return found
}
