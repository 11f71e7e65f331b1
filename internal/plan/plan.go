// SPDX-License-Identifier: Apache-2.0

// Package plan is what the operator allows a project: figures and lists that the
// project's members may use up, or lower, and never raise.
//
// The platform's plan comes from a file, a project's own figures from an
// annotation on its Namespace, which tenants cannot write; what neither says is
// as Default has it. A plan holds only what is enforced.
package plan

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// Annotation of a Namespace holds what its project's plan has other than the
// platform's; see Parse.
const Annotation = "agentplatform.dev/plan"

// Plan is what a project may have. Every figure is filled.
type Plan struct {
	// Environments is the most environments, at least 1.
	Environments int32
	// RequestsPerMinute is how many requests to the REST API the project may make in
	// any 60 seconds, with all its keys and over all replicas.
	RequestsPerMinute int32
	// BacklogRuns and BacklogInput are how many runs of an environment may be open,
	// and how many bytes their inputs may have, when another webhook is taken.
	BacklogRuns  int64
	BacklogInput resource.Quantity
	// Storage is how many bytes of ended runs the project may have.
	Storage resource.Quantity
	// Build is what builds may have.
	Build Build
	// Runner is what spec.runner of an Environment may ask for.
	Runner Runner
}

// Resources are requests and limits; a request is never more than its limit, and
// cpu and memory always have both.
type Resources struct {
	Requests corev1.ResourceList `json:"requests"`
	Limits   corev1.ResourceList `json:"limits"`
}

// Build is what a build may have.
type Build struct {
	// Resources are those of each container of a build pod.
	Resources
	// TimeoutSeconds ends a build that hangs: from the start of its Job, with what
	// its pod waits for a place.
	TimeoutSeconds int64
}

// Runner is what a pool of runner pods may ask for.
type Runner struct {
	// Resources are those of a runner that asks for nothing.
	Resources Resources
	// MaxResources is the most that a runner may ask for; what it does not name
	// cannot be asked for.
	MaxResources corev1.ResourceList
	// Annotations and Labels are the keys that runner pods may have; an entry that
	// ends in * stands for every key with that beginning.
	Annotations, Labels []string
	// Tolerations cover those that runner pods may have; see covers.
	Tolerations []corev1.Toleration
	// RuntimeClassNames are the runtime classes that may be chosen.
	RuntimeClassNames []string
}

// Default is the plan of an operator who says nothing: enough for small agents,
// and nothing by which a pod gets more of the cluster than others have.
func Default() Plan {
	return Plan{
		Environments:      20,
		RequestsPerMinute: 120,
		BacklogRuns:       100_000,
		BacklogInput:      resource.MustParse("4Gi"),
		Storage:           resource.MustParse("50Gi"),
		Build: Build{
			Resources: Resources{
				Requests: resources("100m", "128Mi"),
				Limits:   resources("1", "512Mi"),
			},
			TimeoutSeconds: 15 * 60,
		},
		Runner: Runner{
			Resources: Resources{
				Requests: resources("50m", "64Mi"),
				Limits:   resources("1", "512Mi"),
			},
			MaxResources: resources("4", "4Gi"),
			Labels:       []string{"app.kubernetes.io/part-of", "app.kubernetes.io/version"},
		},
	}
}

func resources(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}
}

// Lowered is the plan with the limits that the project sets itself.
func (p Plan) Lowered(limits v1alpha1.ProjectLimits) Plan {
	if limits.Environments != nil {
		p.Environments = min(p.Environments, *limits.Environments)
	}
	if limits.RequestsPerMinute != nil {
		p.RequestsPerMinute = min(p.RequestsPerMinute, *limits.RequestsPerMinute)
	}
	if limits.BacklogRuns != nil {
		p.BacklogRuns = min(p.BacklogRuns, *limits.BacklogRuns)
	}
	p.BacklogInput = least(p.BacklogInput, limits.BacklogInput)
	p.Storage = least(p.Storage, limits.Storage)
	return p
}

func least(of resource.Quantity, lower *resource.Quantity) resource.Quantity {
	if lower != nil && lower.Cmp(of) < 0 {
		return lower.DeepCopy()
	}
	return of
}

// Limits are the figures of the plan that a project may lower.
func (p Plan) Limits() v1alpha1.ProjectLimits {
	return v1alpha1.ProjectLimits{
		Environments: &p.Environments, RequestsPerMinute: &p.RequestsPerMinute,
		BacklogRuns: &p.BacklogRuns, BacklogInput: &p.BacklogInput, Storage: &p.Storage,
	}
}

// Requirements are the resources as a container takes them.
func (r Resources) Requirements() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: maps.Clone(r.Requests), Limits: maps.Clone(r.Limits)}
}

// Fill adds to what a runner asks for, which Check allowed, what it leaves open. A
// request stays within its limit: of the two, what was asked for counts.
func (r Runner) Fill(asked corev1.ResourceRequirements) corev1.ResourceRequirements {
	out := r.Resources.Requirements()
	maps.Copy(out.Requests, asked.Requests)
	maps.Copy(out.Limits, asked.Limits)
	for name, limit := range out.Limits {
		request, ok := out.Requests[name]
		if !ok || request.Cmp(limit) <= 0 {
			continue
		}
		if _, ok := asked.Limits[name]; !ok {
			out.Limits[name] = request
		} else if _, ok := asked.Requests[name]; !ok {
			out.Requests[name] = limit
		}
	}
	return out
}

// clone shares nothing with p.
func (p Plan) clone() Plan {
	out := p
	out.BacklogInput, out.Storage = p.BacklogInput.DeepCopy(), p.Storage.DeepCopy()
	for _, list := range []*corev1.ResourceList{
		&out.Build.Requests, &out.Build.Limits,
		&out.Runner.Resources.Requests, &out.Runner.Resources.Limits, &out.Runner.MaxResources,
	} {
		*list = maps.Clone(*list)
	}
	out.Runner.Annotations = slices.Clone(p.Runner.Annotations)
	out.Runner.Labels = slices.Clone(p.Runner.Labels)
	out.Runner.Tolerations = slices.Clone(p.Runner.Tolerations)
	out.Runner.RuntimeClassNames = slices.Clone(p.Runner.RuntimeClassNames)
	return out
}
