// SPDX-License-Identifier: Apache-2.0

// Package namespaces limits a program to the namespaces of a cluster with RoleBindings that grant
// its permissions. It sends no cluster-wide requests.
package namespaces

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Set is the namespaces of a program. The empty set means all namespaces.
type Set []string

// New returns a set without duplicates. The error names an invalid namespace.
func New(names []string) (Set, error) {
	for _, name := range names {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return nil, fmt.Errorf("--watch-namespaces: %q cannot be the name of a namespace: %s", name, problems[0])
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(names))), nil
}

// Has reports whether the program works in a namespace.
func (s Set) Has(namespace string) bool { return len(s) == 0 || slices.Contains(s, namespace) }

// Limit restricts caches to these namespaces.
func (s Set) Limit(opts *cache.Options) {
	if len(s) == 0 {
		return
	}
	opts.DefaultNamespaces = map[string]cache.Config{}
	for _, namespace := range s {
		opts.DefaultNamespaces[namespace] = cache.Config{}
	}
}

// Readable returns the namespaces that let r list objects of all kinds. An administrator of a
// namespace can delete or reduce its RoleBinding. This must not stop the program in other
// namespaces.
func (s Set) Readable(ctx context.Context, r client.Reader, kinds ...client.ObjectList) (readable, forbidden Set, err error) {
	for _, namespace := range s {
		err := mayList(ctx, r, namespace, kinds)
		switch {
		case apierrors.IsForbidden(err):
			forbidden = append(forbidden, namespace)
		case err != nil:
			return nil, nil, fmt.Errorf("checking read access in namespace %q: %w", namespace, err)
		default:
			readable = append(readable, namespace)
		}
	}
	return readable, forbidden, nil
}

func mayList(ctx context.Context, r client.Reader, namespace string, kinds []client.ObjectList) error {
	for _, kind := range kinds {
		if err := r.List(ctx, kind.DeepCopyObject().(client.ObjectList), client.InNamespace(namespace), client.Limit(1)); err != nil {
			return err
		}
	}
	return nil
}

// Reader returns a reader that lists each namespace for a cluster-wide list.
func (s Set) Reader(r client.Reader) client.Reader {
	if len(s) == 0 {
		return r
	}
	return reader{r, s}
}

// Client returns a client that lists like Reader.
func (s Set) Client(c client.Client) client.Client {
	if len(s) == 0 {
		return c
	}
	return limited{c, reader{c, s}}
}

// limited is a client with the lists of a reader.
type limited struct {
	client.Client
	lists reader
}

// List lists each namespace.
func (l limited) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return l.lists.List(ctx, list, opts...)
}

type reader struct {
	client.Reader
	namespaces Set
}

// List lists each namespace, or the requested one. It does not support paging.
func (r reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	asked := (&client.ListOptions{}).ApplyOptions(opts)
	if asked.Namespace != "" {
		return r.Reader.List(ctx, list, opts...)
	}
	if asked.Continue != "" {
		return fmt.Errorf("listing in %d namespaces: paging is not supported", len(r.namespaces))
	}
	var all []runtime.Object
	for _, namespace := range r.namespaces {
		part := list.DeepCopyObject().(client.ObjectList)
		if err := r.Reader.List(ctx, part, append(slices.Clone(opts), client.InNamespace(namespace))...); err != nil {
			return err
		}
		items, err := meta.ExtractList(part)
		if err != nil {
			return fmt.Errorf("listing in namespace %q: %w", namespace, err)
		}
		all = append(all, items...)
	}
	return meta.SetList(list, all)
}
