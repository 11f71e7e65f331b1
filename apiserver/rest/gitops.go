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

// FieldManager owns what the facade writes.
const FieldManager = "agentplatform-apiserver"

// DefaultGitOpsManagers are the field managers of Argo CD and of Flux.
var DefaultGitOpsManagers = []string{"argocd-controller", "kustomize-controller", "helm-controller"}

// CheckOwnership answers 409 where a change of an object touches a field of the spec that a
// GitOps manager owns: it would be undone with the manager's next look at Git. The
// fields of everybody else are taken over. An after of nil is the deletion.
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
			i := slices.IndexFunc(owned, func(field []string) bool { return begins(field, path) })
			if i >= 0 {
				return managed(before, entry.Manager, strings.Join(owned[i], "."), after == nil)
			}
		}
	}
	return nil
}

// lastApplied is the manifest that a client-side apply notes in the object; nil for
// none. What was created so owns the defaults too, of which the manifest says nothing
// and that nobody would put back.
func lastApplied(o v1alpha1.ConditionedObject) (manifest map[string]any) {
	text, there := o.GetAnnotations()[corev1.LastAppliedConfigAnnotation]
	if !there || json.Unmarshal([]byte(text), &manifest) != nil {
		return nil
	}
	return manifest
}

// managed is the answer that names manager and field.
func managed(o v1alpha1.ConditionedObject, manager, field string, deletion bool) Problem {
	remedy := "change it where that takes it from"
	if deletion {
		remedy = "remove the object where that takes it from"
	}
	p := NewProblem(http.StatusConflict, httpserver.CodeGitOps,
		fmt.Sprintf("%s owns %s of %s %q and would undo this: %s", manager, field, o.ObjectKind(), o.GetName(), remedy))
	if !deletion {
		p.Errors = []FieldError{{Location: location(o.ObjectKind(), field), Message: "is owned by " + manager}}
	}
	return p
}

// ownedFields are the fields that an entry names. Of what lies in a list it names the
// list.
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

// specOf is the spec of an object as it is written in JSON.
func specOf(o v1alpha1.ConditionedObject) (any, error) {
	all, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("reading the spec of %s %q: %w", o.ObjectKind(), o.GetName(), err)
	}
	return all["spec"], nil
}

// differences are the paths at which two values differ, as deep as both are objects.
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

// begins says whether a path begins with another one, or is that.
func begins(path, with []string) bool {
	return len(path) >= len(with) && slices.Equal(path[:len(with)], with)
}
