// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
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
