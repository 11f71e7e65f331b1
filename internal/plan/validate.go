// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxEnvironments is the maximum in the API of a Project.
const maxEnvironments = 1000

// maxRequestsPerMinute and maxBacklogRuns are the maximums in the API of a Project.
const maxRequestsPerMinute, maxBacklogRuns = 10_000, 10_000_000

// Limits of build.timeoutSeconds.
const minBuildTimeout, maxBuildTimeout = 60, 24 * 60 * 60

// validate returns all problems of a plan.
func (p Plan) validate() error {
	var problems []error
	if p.Environments < 1 || p.Environments > maxEnvironments {
		problems = append(problems, fmt.Errorf("environments must be 1 to %d", maxEnvironments))
	}
	if p.RequestsPerMinute < 1 || p.RequestsPerMinute > maxRequestsPerMinute {
		problems = append(problems, fmt.Errorf("requestsPerMinute must be 1 to %d", maxRequestsPerMinute))
	}
	if p.BacklogRuns < 1 || p.BacklogRuns > maxBacklogRuns {
		problems = append(problems, fmt.Errorf("backlogRuns must be 1 to %d", maxBacklogRuns))
	}
	if p.BacklogInput.Sign() <= 0 {
		problems = append(problems, errors.New("backlogInput must be more than 0"))
	}
	if p.Storage.Sign() <= 0 {
		problems = append(problems, errors.New("storage must be more than 0"))
	}
	if t := p.Build.TimeoutSeconds; t < minBuildTimeout || t > maxBuildTimeout {
		problems = append(problems, fmt.Errorf("build.timeoutSeconds must be %d to %d", minBuildTimeout, maxBuildTimeout))
	}
	problems = append(problems,
		p.Build.validate("build.resources"),
		p.Runner.Resources.validate("runner.resources"),
		positive("runner.maxResources", p.Runner.MaxResources),
		checkWithin("runner.resources.limits", p.Runner.Resources.Limits, "runner.maxResources", p.Runner.MaxResources),
		checkAllowedKeys("runner.annotations", p.Runner.Annotations),
		checkAllowedKeys("runner.labels", p.Runner.Labels),
		tolerations(p.Runner.Tolerations),
		classes(p.Runner.RuntimeClassNames),
	)
	return errors.Join(problems...)
}

func (r Resources) validate(field string) error {
	return errors.Join(
		positive(field+".limits", r.Limits),
		positive(field+".requests", r.Requests),
		checkWithin(field+".requests", r.Requests, field+".limits", r.Limits),
	)
}

// positive rejects quantities of 0 and less.
func positive(field string, list corev1.ResourceList) error {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if quantity := list[name]; quantity.Sign() <= 0 {
			return fmt.Errorf("%s.%s must be more than 0", field, name)
		}
	}
	return nil
}

// checkWithin rejects quantities beyond their limit or without a limit.
func checkWithin(field string, list corev1.ResourceList, boundField string, bounds corev1.ResourceList) error {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		bound, ok := bounds[name]
		if !ok {
			return fmt.Errorf("%s.%s needs %s.%s", field, name, boundField, name)
		}
		if quantity.Cmp(bound) > 0 {
			return fmt.Errorf("%s.%s must not be more than %s.%s, which is %s", field, name, boundField, name, bound.String())
		}
	}
	return nil
}

func checkAllowedKeys(field string, allowed []string) error {
	for _, key := range allowed {
		prefix, all := strings.CutSuffix(key, "*")
		if all && !strings.Contains(prefix, "*") {
			continue
		}
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return fmt.Errorf("%s: %q is neither a key nor a prefix with a * at its end: %s", field, key, problems[0])
		}
	}
	return nil
}

func tolerations(allowed []corev1.Toleration) error {
	for i, t := range allowed {
		field := fmt.Sprintf("runner.tolerations[%d]", i)
		switch t.Operator {
		case "", corev1.TolerationOpEqual:
			if t.Key == "" {
				return fmt.Errorf("%s.key is missing; only the operator Exists does not need it", field)
			}
		case corev1.TolerationOpExists:
			if t.Value != "" {
				return fmt.Errorf("%s.value cannot be combined with operator Exists", field)
			}
		default:
			return fmt.Errorf("%s.operator must be Equal or Exists", field)
		}
		switch t.Effect {
		case "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			return fmt.Errorf("%s.effect must be NoSchedule, PreferNoSchedule or NoExecute", field)
		}
		if t.TolerationSeconds != nil {
			return fmt.Errorf("%s.tolerationSeconds cannot be limited by a plan; remove it", field)
		}
	}
	return nil
}

func classes(names []string) error {
	for _, name := range names {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return fmt.Errorf("runner.runtimeClassNames: %q is not the name of a RuntimeClass: %s", name, problems[0])
		}
	}
	return nil
}
