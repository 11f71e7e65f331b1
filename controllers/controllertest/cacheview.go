// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
)

// AsCache returns a client that reads objects like a cache with these options: only selected objects,
// without stripped fields. A test with it fails if a reconciler reads fields that the cache does not
// have.
func AsCache(c client.Client, opts cache.Options) client.Client {
	kinds := map[schema.GroupVersionKind]cache.ByObject{}
	for o, of := range opts.ByObject {
		if gvk, err := apiutil.GVKForObject(o, c.Scheme()); err == nil {
			kinds[gvk] = of
		}
	}
	return &cacheView{Client: c, kinds: kinds}
}

type cacheView struct {
	client.Client
	kinds map[schema.GroupVersionKind]cache.ByObject
}

// hasObject strips an object, and reports whether the cache has it.
func (v *cacheView) hasObject(o client.Object, gvk schema.GroupVersionKind) (bool, error) {
	of := v.kinds[gvk]
	if of.Label != nil && !of.Label.Matches(labels.Set(o.GetLabels())) {
		return false, nil
	}
	if of.Transform == nil {
		return true, nil
	}
	_, err := of.Transform(o)
	return true, err
}

// Get implements client.Reader.
func (v *cacheView) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := v.Client.Get(ctx, key, o, opts...); err != nil {
		return err
	}
	gvk, err := apiutil.GVKForObject(o, v.Scheme())
	if err != nil {
		return err
	}
	there, err := v.hasObject(o, gvk)
	if err == nil && !there {
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
	}
	return err
}

// List implements client.Reader.
func (v *cacheView) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := v.Client.List(ctx, list, opts...); err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	var kept []runtime.Object
	for _, item := range items {
		o := item.(client.Object)
		gvk, err := apiutil.GVKForObject(o, v.Scheme())
		if err != nil {
			return err
		}
		there, err := v.hasObject(o, gvk)
		if err != nil {
			return err
		}
		if there {
			kept = append(kept, item)
		}
	}
	return meta.SetList(list, kept)
}

// Cached returns a client with the indexes of the cache, for tests of the map functions of watches,
// which need no cluster.
func Cached(t testing.TB, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatalf("making the scheme: %v", err)
		}
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
	if err := base.IndexFields(t.Context(), indexer{builder}); err != nil {
		t.Fatalf("indexing: %v", err)
	}
	return builder.Build()
}

// indexer registers the indexes of the cache with a fake client.
type indexer struct{ *fake.ClientBuilder }

// IndexField implements client.FieldIndexer.
func (i indexer) IndexField(_ context.Context, o client.Object, field string, extract client.IndexerFunc) error {
	i.WithIndex(o, field, extract)
	return nil
}

// Names returns the names of the requests, in their order.
func Names(requests []ctrl.Request) (names []string) {
	for _, r := range requests {
		names = append(names, r.Name)
	}
	return names
}
