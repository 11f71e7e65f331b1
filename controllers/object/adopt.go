// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// NameCollisionError says that somebody else's object has the name of a child.
type NameCollisionError struct{ Kind, Name string }

// Error names the object and the remedy.
func (e *NameCollisionError) Error() string {
	return fmt.Sprintf("%s %q exists and was not made for this object, so it is neither used nor changed; "+
		"delete or rename it, or give this object another name", e.Kind, e.Name)
}

// LeftoverError says that the child of an object of the same name, which was
// deleted, has not been garbage-collected yet.
type LeftoverError struct{ Kind, Name string }

// Error names the child.
func (e *LeftoverError) Error() string {
	return fmt.Sprintf("%s %q belongs to an earlier object of this name; waiting for Kubernetes to collect it", e.Kind, e.Name)
}

// Child looks past the cache for the child of owner that has the kind and name
// of child, and returns its metadata; nil when there is none. It is owner's only
// when owner controls it: *NameCollisionError or *LeftoverError otherwise. One that somebody has
// taken the label from by which it is cached gets that back: it would be looked for for ever.
func (b *Base) Child(ctx context.Context, owner, child client.Object) (*metav1.PartialObjectMetadata, error) {
	gvk, err := apiutil.GVKForObject(child, b.Client.Scheme())
	if err != nil {
		return nil, fmt.Errorf("looking for child %q: %w", child.GetName(), err)
	}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(gvk)
	err = b.Reader.Get(ctx, client.ObjectKeyFromObject(child), found)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for %s %q: %w", gvk.Kind, child.GetName(), err)
	}
	if err := b.controls(owner, gvk.Kind, found); err != nil {
		return nil, err
	}
	return found, b.label(ctx, gvk.Kind, found)
}

// label gives a child its LabelManagedBy back.
func (b *Base) label(ctx context.Context, kind string, child client.Object) error {
	if IsLabelled(child) {
		return nil
	}
	before := child.DeepCopyObject().(client.Object)
	labels := maps.Clone(child.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelManagedBy] = ManagedBy
	child.SetLabels(labels)
	err := b.Client.Patch(ctx, child, client.MergeFrom(before), client.FieldOwner(FieldManager))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("labelling %s %q: %w", kind, child.GetName(), err)
	}
	return nil
}

// IsLabelled says whether a child has the label by which it is cached.
func IsLabelled(child metav1.Object) bool { return child.GetLabels()[LabelManagedBy] == ManagedBy }

// IsScaled says whether somebody else has set how many replicas a child has, through
// its scale subresource, as autoscalers do.
func IsScaled(child metav1.Object) bool {
	return slices.ContainsFunc(child.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Subresource == "scale" && f.FieldsV1 != nil && hasField(f.FieldsV1.GetRawBytes(), []string{"f:spec", "f:replicas"})
	})
}

// IsOthers says whether somebody else has set a field of a child, of that path as managedFields
// have it, such as f:spec and f:template, or one below it.
func IsOthers(child metav1.Object, path ...string) bool {
	return slices.ContainsFunc(child.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager != FieldManager && f.FieldsV1 != nil && hasField(f.FieldsV1.GetRawBytes(), path)
	})
}

func hasField(fields []byte, path []string) bool {
	if len(path) == 0 {
		return true
	}
	below := map[string]json.RawMessage{}
	if json.Unmarshal(fields, &below) != nil {
		return false
	}
	next, ok := below[path[0]]
	return ok && hasField(next, path[1:])
}

// controls is nil where owner, in this incarnation, controls found.
func (b *Base) controls(owner client.Object, kind string, found metav1.Object) error {
	ref := metav1.GetControllerOf(found)
	switch {
	case ref != nil && ref.UID == owner.GetUID():
		return nil
	case ref != nil && b.sameName(ref, owner):
		return &LeftoverError{Kind: kind, Name: found.GetName()}
	default:
		return &NameCollisionError{Kind: kind, Name: found.GetName()}
	}
}

// sameName says whether ref names owner or an earlier object of its name.
func (b *Base) sameName(ref *metav1.OwnerReference, owner client.Object) bool {
	gvk, err := apiutil.GVKForObject(owner, b.Client.Scheme())
	group, invalid := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && invalid == nil && group.Group == gvk.Group && ref.Kind == gvk.Kind && ref.Name == owner.GetName()
}
