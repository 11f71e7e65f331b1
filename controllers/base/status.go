// SPDX-License-Identifier: Apache-2.0

package base

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

// WriteStatus writes the fields of a status that changed since the object was read, and keeps
// concurrent changes of other fields. It writes only to the object with the same UID: it changes
// nothing if the object was deleted or re-created. It uses a JSON patch because kube-apiserver does not
// check the UID in a merge patch of a status. A resourceVersion would reject the write if the cache is
// slightly stale, although the work is done.
func (b *Base) WriteStatus(ctx context.Context, before, after client.Object) (written bool, err error) {
	patch, err := statusPatch(before, after)
	if err != nil || patch == nil {
		return false, err
	}
	err = b.Client.Status().Patch(ctx, after.DeepCopyObject().(client.Object), patch, client.FieldOwner(FieldManager))
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsNotFound(err): // deleted since the read
		return false, nil
	case apierrors.IsInvalid(err): // a failed test of the JSON patch, or an invalid value
		current := after.DeepCopyObject().(client.Object)
		unread := b.Reader.Get(ctx, client.ObjectKeyFromObject(current), current)
		if apierrors.IsNotFound(unread) || unread == nil && current.GetUID() != after.GetUID() {
			return false, nil
		}
	}
	return false, fmt.Errorf("writing the status of %T %q: %w", after, after.GetName(), err)
}

// operation is an operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// statusPatch returns the JSON patch for the changes of an object's status, or nil if there are none.
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
		if !has { // it may be missing already, and removing it would fail
			operations = append(operations, operation{Op: "remove", Path: "/status/" + field})
		}
	}
	if len(operations) == 1 {
		return nil, nil
	}
	patch, err := json.Marshal(operations)
	return client.RawPatch(types.JSONPatchType, patch), err
}

// statusOf returns the status fields of an object.
func statusOf(o client.Object) (map[string]any, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("reading the status of %T %q: %w", o, o.GetName(), err)
	}
	status, _ := fields["status"].(map[string]any)
	return status, nil
}
