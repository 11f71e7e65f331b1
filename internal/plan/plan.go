// SPDX-License-Identifier: Apache-2.0

// Package plan contains the platform operator's limits for a project: numbers and lists that
// project members can use or lower, but never raise.
//
// The platform's plan comes from a file. An annotation on the Namespace, which tenants cannot
// write, overrides it for a project. Default has the remaining values. A plan contains only limits
// that are enforced.
package plan

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// Annotation is the annotation of a Namespace with the overrides of its project's plan; see Parse.
const Annotation = "agentplatform.dev/plan"

// Plan contains the limits of a project. Each number is set.
type Plan struct {
	// Environments limits the environments, at least 1.
	Environments int32
	// RequestsPerMinute limits the requests to the REST API in any 60 seconds, for all keys and all
	// replicas together.
	RequestsPerMinute int32
	// BacklogRuns and BacklogInput limit the open runs of an environment and the bytes of their
	// inputs.
	BacklogRuns  int64
	BacklogInput resource.Quantity
	// Storage limits the stored bytes of the project.
	Storage resource.Quantity
	// Build are the limits of builds.
	Build Build
	// Runner are the limits of spec.runner of an Environment.
	Runner Runner
}

// Resources are requests and limits. A request never exceeds its limit. CPU and memory always have
// both.
type Resources struct {
	Requests corev1.ResourceList `json:"requests"`
	Limits   corev1.ResourceList `json:"limits"`
}

// Build are the limits of a build.
type Build struct {
	// Resources apply to each container of a build pod.
	Resources
	// TimeoutSeconds limits a build from the start of its Job, including the wait for a node.
	TimeoutSeconds int64
}

// Runner are the limits of a pool of runner pods.
type Runner struct {
	// Resources are the defaults of a runner.
	Resources Resources
	// MaxResources limits the resources of a runner. Other resources are not allowed.
	MaxResources corev1.ResourceList
	// Annotations and Labels are the allowed keys on runner pods. An entry that ends in * allows
	// all keys with that prefix.
	Annotations, Labels []string
	// Tolerations cover the allowed tolerations of runner pods; see covers.
	Tolerations []corev1.Toleration
	// RuntimeClassNames are the allowed runtime classes.
	RuntimeClassNames []string
}

// Default is the plan without any configuration. It is enough for small agents and gives no pod
// special access to the cluster.
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

// Lowered returns the plan with the project's own limits.
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
	p.BacklogInput = leastOf(p.BacklogInput, limits.BacklogInput)
	p.Storage = leastOf(p.Storage, limits.Storage)
	return p
}

func leastOf(of resource.Quantity, lower *resource.Quantity) resource.Quantity {
	if lower != nil && lower.Cmp(of) < 0 {
		return lower.DeepCopy()
	}
	return of
}

// Limits returns the limits that a project can lower.
func (p Plan) Limits() v1alpha1.ProjectLimits {
	return v1alpha1.ProjectLimits{
		Environments: &p.Environments, RequestsPerMinute: &p.RequestsPerMinute,
		BacklogRuns: &p.BacklogRuns, BacklogInput: &p.BacklogInput, Storage: &p.Storage,
	}
}

// Requirements returns the resources in the form of a container.
func (r Resources) Requirements() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: maps.Clone(r.Requests), Limits: maps.Clone(r.Limits)}
}

// Fill adds defaults to the resources of a runner that Check allowed. If a default request and a
// limit conflict, the given value takes precedence.
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

// deepCopy returns a deep copy.
func (p Plan) deepCopy() Plan {
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
