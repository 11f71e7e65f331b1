// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// FieldManager is the field manager of the facade.
const FieldManager = "agentplatform-apiserver"

// DefaultGitOpsManagers are the field managers of Argo CD and of Flux.
var DefaultGitOpsManagers = []string{"argocd-controller", "kustomize-controller", "helm-controller"}

// CheckOwnership returns 409 if a change of the spec touches a field of a GitOps manager, which would undo the change at
// its next sync. Fields of other managers are taken over. A nil after stands for the deletion.
func (s *Service) CheckOwnership(before, after v1alpha1.ConditionedObject) error {
	changed := [][]string{{"spec"}}
	if after != nil {
		was, err := specOf(before)
		if err != nil {
			return err
		}
		is, err := specOf(after)
		if err != nil {
			return err
		}
		changed = differences([]string{"spec"}, was, is)
	}
	for _, entry := range before.GetManagedFields() {
		if entry.Subresource != "" || entry.FieldsV1 == nil || !slices.Contains(s.GitOpsManagers, entry.Manager) {
			continue
		}
		owned, err := ownedFields(entry)
		if err != nil {
			return fmt.Errorf("reading which fields of %s %q %q owns: %w", before.ObjectKind(), before.GetName(), entry.Manager, err)
		}
		if named := lastApplied(before); named != nil && entry.Operation == metav1.ManagedFieldsOperationUpdate {
			owned = slices.DeleteFunc(owned, func(field []string) bool {
				_, there, err := unstructured.NestedFieldNoCopy(named, field...)
				return err != nil || !there
			})
		}
		for _, path := range changed {
			i := slices.IndexFunc(owned, func(field []string) bool { return hasPrefix(field, path) })
			if i >= 0 {
				return ownedProblem(before, entry.Manager, strings.Join(owned[i], "."), after == nil)
			}
		}
	}
	return nil
}

// lastApplied returns the manifest that a client-side apply stored in the object, or nil. Such a manager also owns
// defaulted fields that are not in the manifest, and does not restore them.
func lastApplied(o v1alpha1.ConditionedObject) (manifest map[string]any) {
	text, there := o.GetAnnotations()[corev1.LastAppliedConfigAnnotation]
	if !there || json.Unmarshal([]byte(text), &manifest) != nil {
		return nil
	}
	return manifest
}

// ownedProblem returns the response, which names manager and field.
func ownedProblem(o v1alpha1.ConditionedObject, manager, field string, deletion bool) Problem {
	remedy := "change the field in its source"
	if deletion {
		remedy = "remove the object from its source"
	}
	p := NewProblem(http.StatusConflict, httpserver.CodeGitOps,
		fmt.Sprintf("%s owns %s of %s %q and would undo this change: %s", manager, field, o.ObjectKind(), o.GetName(), remedy))
	if !deletion {
		p.Errors = []FieldError{{Location: location(o.ObjectKind(), field), Message: "is owned by " + manager}}
	}
	return p
}

// ownedFields returns the fields of an entry. For a field inside a list it returns the list.
func ownedFields(entry metav1.ManagedFieldsEntry) (fields [][]string, err error) {
	var set fieldpath.Set
	if err := set.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
		return nil, err
	}
	set.Iterate(func(path fieldpath.Path) {
		var names []string
		for _, element := range path {
			if element.FieldName == nil {
				break
			}
			names = append(names, *element.FieldName)
		}
		fields = append(fields, names)
	})
	return fields, nil
}

// specOf returns the spec of an object in its JSON form.
func specOf(o v1alpha1.ConditionedObject) (any, error) {
	all, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("reading the spec of %s %q: %w", o.ObjectKind(), o.GetName(), err)
	}
	return all["spec"], nil
}

// differences returns the paths at which two values differ. It descends while both values are objects.
func differences(at []string, was, is any) (paths [][]string) {
	before, object := was.(map[string]any)
	after, still := is.(map[string]any)
	if !object || !still {
		if !reflect.DeepEqual(was, is) {
			paths = append(paths, at)
		}
		return paths
	}
	for name, value := range before {
		paths = append(paths, differences(append(slices.Clone(at), name), value, after[name])...)
	}
	for name, value := range after {
		if _, there := before[name]; !there {
			paths = append(paths, differences(append(slices.Clone(at), name), nil, value)...)
		}
	}
	slices.SortFunc(paths, slices.Compare)
	return paths
}

// hasPrefix reports whether a path begins with another one or is equal to it.
func hasPrefix(path, with []string) bool {
	return len(path) >= len(with) && slices.Equal(path[:len(with)], with)
}
