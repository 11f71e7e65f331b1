// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WriteStatus writes those fields of a status that changed since the object was read, whatever others
// have become. They are that very object's: one that was made anew under its name is left alone, and so
// is nothing written where it is gone. kube-apiserver looks at no uid in a merge patch of a status; and
// a resourceVersion would refuse what is written by a cache that is a moment behind, whose work is done.
func (b *Base) WriteStatus(ctx context.Context, before, after client.Object) (written bool, err error) {
	patch, err := statusPatch(before, after)
	if err != nil || patch == nil {
		return false, err
	}
	err = b.Client.Status().Patch(ctx, after.DeepCopyObject().(client.Object), patch, client.FieldOwner(FieldManager))
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsNotFound(err): // deleted meanwhile
		return false, nil
	case apierrors.IsInvalid(err): // as a test of a JSON patch that fails is, and a value that is not allowed
		current := after.DeepCopyObject().(client.Object)
		unread := b.Reader.Get(ctx, client.ObjectKeyFromObject(current), current)
		if apierrors.IsNotFound(unread) || unread == nil && current.GetUID() != after.GetUID() {
			return false, nil
		}
	}
	return false, fmt.Errorf("writing the status of %T %q: %w", after, after.GetName(), err)
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// statusPatch is the JSON patch by which the status of an object changes; nil where it does not.
func statusPatch(before, after client.Object) (client.Patch, error) {
	was, err := statusOf(before)
	if err != nil {
		return nil, err
	}
	is, err := statusOf(after)
	if err != nil {
		return nil, err
	}
	fields := maps.Clone(was)
	maps.Copy(fields, is)
	operations := []operation{{"test", "/metadata/uid", after.GetUID()}}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		value, has := is[field]
		if old, had := was[field]; had == has && equality.Semantic.DeepEqual(old, value) {
			continue
		}
		operations = append(operations, operation{"add", "/status/" + field, value})
		if !has { // it may be missing already, and then cannot be removed
			operations = append(operations, operation{Op: "remove", Path: "/status/" + field})
		}
	}
	if len(operations) == 1 {
		return nil, nil
	}
	patch, err := json.Marshal(operations)
	return client.RawPatch(types.JSONPatchType, patch), err
}

// statusOf are the fields of an object's status.
func statusOf(o client.Object) (map[string]any, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("reading the status of %T %q: %w", o, o.GetName(), err)
	}
	status, _ := fields["status"].(map[string]any)
	return status, nil
}
