// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// NotAllowedError lists the fields of an Environment that the plan does not allow, and the allowed
// values.
type NotAllowedError struct{ Problems []string }

// Error lists the problems.
func (e *NotAllowedError) Error() string {
	return strings.Join(e.Problems, "; ") + "; ask the operator for a plan that allows more"
}

func (e *NotAllowedError) addProblem(field, problem string, allowed []string) {
	list := "none"
	if len(allowed) > 0 {
		list = strings.Join(allowed, ", ")
	}
	e.Problems = append(e.Problems, fmt.Sprintf("spec.runner.%s: %s; the plan allows: %s", field, problem, list))
}

// Check returns a *NotAllowedError if the plan does not allow a pool.
func (r Runner) Check(pool v1alpha1.RunnerPool) error {
	refused := &NotAllowedError{}
	checkKeys(refused, "annotations", pool.Annotations, r.Annotations)
	checkKeys(refused, "labels", pool.Labels, r.Labels)
	r.checkTolerations(refused, pool.Tolerations)
	r.checkResources(refused, pool.Resources.Requirements())
	checkAffinity(refused, pool.Affinity)
	if class := string(pool.RuntimeClassName); class != "" && !slices.Contains(r.RuntimeClassNames, class) {
		refused.addProblem("runtimeClassName", fmt.Sprintf("%q is not allowed", class), r.RuntimeClassNames)
	}
	if len(refused.Problems) > 0 {
		return refused
	}
	return nil
}

func checkKeys(refused *NotAllowedError, field string, asked map[string]string, allowed []string) {
	for _, key := range slices.Sorted(maps.Keys(asked)) {
		if !slices.ContainsFunc(allowed, func(entry string) bool { return matches(entry, key) }) {
			refused.addProblem(field, fmt.Sprintf("key %q is not allowed", key), allowed)
		}
	}
}

// matches reports whether an entry of a list of keys includes a key.
func matches(entry, key string) bool {
	if prefix, all := strings.CutSuffix(entry, "*"); all {
		return strings.HasPrefix(key, prefix)
	}
	return entry == key
}

func (r Runner) checkTolerations(refused *NotAllowedError, asked []corev1.Toleration) {
	var allowed []string
	for _, t := range r.Tolerations {
		allowed = append(allowed, formatToleration(t))
	}
	for i, t := range asked {
		if !slices.ContainsFunc(r.Tolerations, func(of corev1.Toleration) bool { return tolerates(of, t) }) {
			refused.addProblem(fmt.Sprintf("tolerations[%d]", i), fmt.Sprintf("%q is not allowed", formatToleration(t)), allowed)
		}
	}
}

// tolerates reports whether allowed tolerates each taint that asked tolerates.
func tolerates(allowed, asked corev1.Toleration) bool {
	if allowed.Key != "" && allowed.Key != asked.Key {
		return false
	}
	if allowed.Effect != "" && allowed.Effect != asked.Effect {
		return false
	}
	if allowed.Operator == corev1.TolerationOpExists {
		return true
	}
	return (asked.Operator == "" || asked.Operator == corev1.TolerationOpEqual) && allowed.Value == asked.Value
}

// formatToleration formats a toleration like a taint in kubectl.
func formatToleration(t corev1.Toleration) string {
	out := t.Key
	if t.Key == "" {
		out = "(any key)"
	}
	if t.Operator != corev1.TolerationOpExists {
		out += "=" + t.Value
	}
	if t.Effect != "" {
		out += ":" + string(t.Effect)
	}
	return out
}

func (r Runner) checkResources(refused *NotAllowedError, asked corev1.ResourceRequirements) {
	var allowed []string
	for _, name := range slices.Sorted(maps.Keys(r.MaxResources)) {
		most := r.MaxResources[name]
		allowed = append(allowed, fmt.Sprintf("%s up to %s", name, most.String()))
	}
	for _, part := range []struct {
		name string
		list corev1.ResourceList
	}{{"requests", asked.Requests}, {"limits", asked.Limits}} {
		for _, name := range slices.Sorted(maps.Keys(part.list)) {
			quantity := part.list[name]
			if most, ok := r.MaxResources[name]; !ok || quantity.Cmp(most) > 0 {
				refused.addProblem("resources."+part.name, fmt.Sprintf("%s of %s is not allowed", quantity.String(), name), allowed)
			}
		}
	}
}

// checkAffinity rejects terms about pods of other namespaces, because they would reveal and
// influence where those pods run.
func checkAffinity(refused *NotAllowedError, affinity *corev1.Affinity) {
	if affinity == nil {
		return
	}
	own := []string{"pods of the project's own namespace"}
	check := func(field string, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		for _, weighted := range preferred {
			required = append(slices.Clip(required), weighted.PodAffinityTerm)
		}
		for _, term := range required {
			if len(term.Namespaces) > 0 || term.NamespaceSelector != nil {
				refused.addProblem("affinity."+field, "namespaces and namespaceSelector are not allowed", own)
				return
			}
		}
	}
	if a := affinity.PodAffinity; a != nil {
		check("podAffinity", a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := affinity.PodAntiAffinity; a != nil {
		check("podAntiAffinity", a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}
