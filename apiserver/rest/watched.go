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

// kind is what objects are watched, and how they are found again.
type kind struct {
	// name is theirs for people: API keys.
	name     string
	object   client.Object
	list     func() client.ObjectList
	indexers cache.Indexers
}

// watched are the objects of a kind as informers know them: a moment late, and at
// no cost.
type watched struct {
	kind
	client     client.WithWatch
	namespaces []string
	logger     *slog.Logger
	informers  []cache.SharedIndexInformer
	// refused says of each informer that Kubernetes refuses it.
	refused []atomic.Bool
}

// newWatched knows nothing before run. The empty set stands for all namespaces.
func newWatched(c client.WithWatch, within namespaces.Set, logger *slog.Logger, k kind) *watched {
	w := &watched{kind: k, client: c, namespaces: within, logger: logger}
	if len(within) == 0 {
		w.namespaces = []string{metav1.NamespaceAll}
	}
	w.refused = make([]atomic.Bool, len(w.namespaces))
	for _, namespace := range w.namespaces {
		w.informers = append(w.informers, w.informer(namespace))
	}
	return w
}

func (w *watched) informer(namespace string) cache.SharedIndexInformer {
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

// run keeps the objects up to date until ctx ends. A namespace that may not be
// read holds up no other one.
func (w *watched) run(ctx context.Context) error {
	var group errgroup.Group
	for i, informer := range w.informers {
		namespace := w.namespaces[i]
		if err := informer.SetTransform(lean); err != nil {
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

// synced is an error until all objects are known, but for those of namespaces that
// may not be read.
func (w *watched) synced() error {
	for i, informer := range w.informers {
		if !informer.HasSynced() && !w.refused[i].Load() {
			return fmt.Errorf("the informer of %s in namespace %q has not synced yet", w.name, w.namespaces[i])
		}
	}
	return nil
}

// lean leaves out what nobody asks of these objects, and tenants may make large.
func lean(o any) (any, error) {
	if object, err := meta.Accessor(o); err == nil {
		object.SetManagedFields(nil)
		object.SetAnnotations(nil)
	}
	return o, nil
}

// by are the objects with a value in an index; they must not be changed.
func (w *watched) by(index, value string) (found []any) {
	for _, informer := range w.informers {
		if objects, err := informer.GetIndexer().ByIndex(index, value); err == nil { // there is such an index
			found = append(found, objects...)
		}
	}
	return found
}
