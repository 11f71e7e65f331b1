// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
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

// IgnoreForeign is nil for the errors of a child that is not the owner's.
func IgnoreForeign(err error) error {
	var (
		collision *NameCollisionError
		leftover  *LeftoverError
	)
	if errors.As(err, &collision) || errors.As(err, &leftover) {
		return nil
	}
	return err
}

// Child looks past the cache for the child of owner that has the kind and name
// of child, and returns its metadata; nil when there is none. It is owner's only
// when owner controls it: *NameCollisionError or *LeftoverError otherwise.
func (k *Keeper) Child(
	ctx context.Context, owner v1alpha1.ConditionedObject, child client.Object,
) (*metav1.PartialObjectMetadata, error) {
	gvk, err := apiutil.GVKForObject(child, k.Client.Scheme())
	if err != nil {
		return nil, fmt.Errorf("looking for child %q: %w", child.GetName(), err)
	}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(gvk)
	err = k.Reader.Get(ctx, client.ObjectKeyFromObject(child), found)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for %s %q: %w", gvk.Kind, child.GetName(), err)
	}
	if err := controls(owner, gvk.Kind, found); err != nil {
		return nil, err
	}
	return found, nil
}

// controls is nil where owner, in this incarnation, controls found.
func controls(owner v1alpha1.ConditionedObject, kind string, found metav1.Object) error {
	ref := metav1.GetControllerOf(found)
	switch {
	case ref != nil && ref.UID == owner.GetUID():
		return nil
	case ref != nil && sameName(ref, owner):
		return &LeftoverError{Kind: kind, Name: found.GetName()}
	default:
		return &NameCollisionError{Kind: kind, Name: found.GetName()}
	}
}

// sameName says whether ref names owner or an earlier object of its name.
func sameName(ref *metav1.OwnerReference, owner v1alpha1.ConditionedObject) bool {
	group, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && group.Group == v1alpha1.GroupVersion.Group &&
		ref.Kind == owner.ObjectKind() && ref.Name == owner.GetName()
}
