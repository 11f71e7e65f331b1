// SPDX-License-Identifier: Apache-2.0

package base

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

// NameCollisionError reports that an object of another owner has the name of a child.
type NameCollisionError struct{ Kind, Name string }

// Error names the object and the remedy.
func (e *NameCollisionError) Error() string {
	return fmt.Sprintf("%s %q exists and does not belong to this object, so it is neither used nor changed; "+
		"delete or rename it, or give this object another name", e.Kind, e.Name)
}

// LeftoverError reports that garbage collection has not yet deleted a child of an earlier object with
// the same name.
type LeftoverError struct{ Kind, Name string }

// Error names the child.
func (e *LeftoverError) Error() string {
	return fmt.Sprintf("%s %q belongs to an earlier object with this name; waiting for Kubernetes to delete it", e.Kind, e.Name)
}

// Child returns the metadata of the child of owner with the kind and name of child, or nil if there is
// none. It reads without a cache. If owner does not control the found object, it returns
// *NameCollisionError or *LeftoverError. It restores LabelManagedBy if it is missing, because the cache
// selects children by this label.
func (b *Base) Child(ctx context.Context, owner, child client.Object) (*metav1.PartialObjectMetadata, error) {
	gvk, err := apiutil.GVKForObject(child, b.Client.Scheme())
	if err != nil {
		return nil, fmt.Errorf("reading child %q: %w", child.GetName(), err)
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
	if err := b.checkController(owner, gvk.Kind, found); err != nil {
		return nil, err
	}
	return found, b.restoreLabel(ctx, gvk.Kind, found)
}

// restoreLabel restores LabelManagedBy of a child.
func (b *Base) restoreLabel(ctx context.Context, kind string, child client.Object) error {
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

// IsLabelled reports whether a child has the label that the cache selects by.
func IsLabelled(child metav1.Object) bool { return child.GetLabels()[LabelManagedBy] == ManagedBy }

// HasOtherReplicas reports whether another field manager has set the replicas of a child through its scale
// subresource, as autoscalers do.
func HasOtherReplicas(child metav1.Object) bool {
	return slices.ContainsFunc(child.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Subresource == "scale" && f.FieldsV1 != nil && hasField(f.FieldsV1.GetRawBytes(), []string{"f:spec", "f:replicas"})
	})
}

// HasOtherManager reports whether another field manager owns a field of a child, or a field below it. The path
// has the format of managedFields, such as f:spec and f:template.
func HasOtherManager(child metav1.Object, path ...string) bool {
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

// checkController returns nil if owner controls found, with the same UID.
func (b *Base) checkController(owner client.Object, kind string, found metav1.Object) error {
	ref := metav1.GetControllerOf(found)
	switch {
	case ref != nil && ref.UID == owner.GetUID():
		return nil
	case ref != nil && b.hasName(ref, owner):
		return &LeftoverError{Kind: kind, Name: found.GetName()}
	default:
		return &NameCollisionError{Kind: kind, Name: found.GetName()}
	}
}

// hasName reports whether ref names owner or an earlier object with the same name.
func (b *Base) hasName(ref *metav1.OwnerReference, owner client.Object) bool {
	gvk, err := apiutil.GVKForObject(owner, b.Client.Scheme())
	group, invalid := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && invalid == nil && group.Group == gvk.Group && ref.Kind == gvk.Kind && ref.Name == owner.GetName()
}
