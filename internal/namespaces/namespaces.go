// SPDX-License-Identifier: Apache-2.0

// Package namespaces limits a program to some namespaces of a cluster, in which
// RoleBindings give it its rights: nothing is asked of the whole cluster.
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

// Set is the namespaces that a program works in. The empty set is all of them.
type Set []string

// New is the set of those names, each once; an error names one that cannot be a
// namespace's.
func New(names []string) (Set, error) {
	for _, name := range names {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return nil, fmt.Errorf("--watch-namespaces: %q cannot be the name of a namespace: %s", name, problems[0])
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(names))), nil
}

// Has says whether the program works in a namespace.
func (s Set) Has(namespace string) bool { return len(s) == 0 || slices.Contains(s, namespace) }

// Limit lets caches hold objects of these namespaces alone.
func (s Set) Limit(opts *cache.Options) {
	if len(s) == 0 {
		return
	}
	opts.DefaultNamespaces = map[string]cache.Config{}
	for _, namespace := range s {
		opts.DefaultNamespaces[namespace] = cache.Config{}
	}
}

// Readable tells in which namespaces r may list objects of all these kinds. A
// RoleBinding lies in its namespace, where whoever administers that namespace may
// delete it, or bind something less: this must not keep a program from its work in
// the others.
func (s Set) Readable(ctx context.Context, r client.Reader, kinds ...client.ObjectList) (readable, forbidden Set, err error) {
	for _, namespace := range s {
		err := mayList(ctx, r, namespace, kinds)
		switch {
		case apierrors.IsForbidden(err):
			forbidden = append(forbidden, namespace)
		case err != nil:
			return nil, nil, fmt.Errorf("asking what may be read in namespace %q: %w", namespace, err)
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

// Reader lists one namespace after the other where the whole cluster is asked for.
func (s Set) Reader(r client.Reader) client.Reader {
	if len(s) == 0 {
		return r
	}
	return reader{r, s}
}

// Client is a client that lists as Reader does.
func (s Set) Client(c client.Client) client.Client {
	if len(s) == 0 {
		return c
	}
	return limited{c, reader{c, s}}
}

// limited is a client whose lists are a reader's.
type limited struct {
	client.Client
	lists reader
}

// List lists one namespace after the other.
func (l limited) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return l.lists.List(ctx, list, opts...)
}

type reader struct {
	client.Reader
	namespaces Set
}

// List lists one namespace after the other, unless one is asked for. It knows no
// pages.
func (r reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	asked := (&client.ListOptions{}).ApplyOptions(opts)
	if asked.Namespace != "" {
		return r.Reader.List(ctx, list, opts...)
	}
	if asked.Continue != "" {
		return fmt.Errorf("listing in %d namespaces: there are no pages over namespaces", len(r.namespaces))
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
