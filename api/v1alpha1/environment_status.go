// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ObjectKind returns "Environment".
func (e *Environment) ObjectKind() string { return "Environment" }

// SpecID returns spec.id, "" where it is not set.
func (e *Environment) SpecID() string { return string(e.Spec.ID) }

// CommonStatus returns what every status has.
func (e *Environment) CommonStatus() *ObjectStatus { return &e.Status.ObjectStatus }

// MarkReady: the environment is in effect as asked. An empty message gets a plain one.
func (e *Environment) MarkReady(message string) { markReady(e, message) }

// MarkReconciling: work is under way.
func (e *Environment) MarkReconciling(reason, message string) {
	markReconciling(e, metav1.ConditionUnknown, reason, message)
}

// MarkStalled: nothing goes on until somebody changes something.
func (e *Environment) MarkStalled(reason, message string) { markStalled(e, reason, message) }

// MarkIDTaken: the id is held by holder, `Kind namespace/name`.
func (e *Environment) MarkIDTaken(holder string) { markIDTaken(e, holder) }

// MarkReferenceMissing: an object that the spec names does not exist (yet).
func (e *Environment) MarkReferenceMissing(kind, name string) { markReferenceMissing(e, kind, name) }

// MarkSecretMissing: a Secret that the spec names does not exist (yet).
func (e *Environment) MarkSecretMissing(name string) { markSecretMissing(e, name) }

// MarkSecretInvalid: a Secret that the spec names cannot be used.
func (e *Environment) MarkSecretInvalid(name, problem string) { markSecretInvalid(e, name, problem) }

// MarkProjectMissing: the namespace has no Project that is ready (yet).
func (e *Environment) MarkProjectMissing() { markProjectMissing(e) }

// MarkStoreUnavailable: the data store does not answer; it is tried again.
func (e *Environment) MarkStoreUnavailable() { markStoreUnavailable(e) }

// IsReady says whether Ready is True for the current generation.
func (e *Environment) IsReady() bool { return isTrueNow(e, ConditionReady) }

// IsStalled says whether Stalled is True for the current generation.
func (e *Environment) IsStalled() bool { return isTrueNow(e, ConditionStalled) }

// MarkSlugTaken: an older environment, holder, has the slug.
func (e *Environment) MarkSlugTaken(slug, holder string) {
	e.Status.Slug = ""
	markStalled(e, ReasonSlugTaken, fmt.Sprintf("the slug %q is held by the older %s; choose another spec.displayName", slug, holder))
}

// MarkLimitReached: the project may not have more than limit environments. One
// that is not in effect at all has neither id nor slug to show.
func (e *Environment) MarkLimitReached(limit int32, inEffect bool) {
	effect := "this one stays as it is, without new deployments, until one is deleted"
	if !inEffect {
		effect = "this one comes into effect when one is deleted"
		e.Status.ID, e.Status.Slug, e.Status.Default = "", "", false
	}
	markStalled(e, ReasonLimitReached, fmt.Sprintf("the project has the %d environments that it may have; %s, or when the limit is raised: "+
		"spec.limits.environments of the Project, up to what the operator's plan allows", limit, effect))
}

// IsBeyondLimit says whether the project's limit keeps the environment back.
func (e *Environment) IsBeyondLimit() bool {
	stalled := e.Status.Condition(ConditionStalled)
	return stalled != nil && stalled.Reason == ReasonLimitReached
}

// MarkSuspended: spec.suspend holds the controllers back.
func (e *Environment) MarkSuspended() {
	set(e, ConditionReady, metav1.ConditionTrue, ReasonSuspended, "suspended: no deployments are started and runner pods stay as they are")
	remove(e, ConditionReconciling)
	remove(e, ConditionStalled)
	e.Status.ObservedGeneration = e.Generation
}

// MarkRunnersReady: the pool has the runners that it asks for.
func (e *Environment) MarkRunnersReady(ready int32) {
	set(e, ConditionRunnersReady, metav1.ConditionTrue, ReasonSucceeded, fmt.Sprintf("runners ready: %d", ready))
}

// MarkRunnersStarting: some of the pool's runners do not take runs yet.
func (e *Environment) MarkRunnersStarting(ready, want int32) {
	message := fmt.Sprintf("%d of %d runners ready", ready, want)
	set(e, ConditionRunnersReady, metav1.ConditionFalse, ReasonRunnersStarting, message)
	markWaiting(e, ReasonRunnersStarting, message)
}

// MarkRunnersFailing: runner pods cannot be started, because of problem.
func (e *Environment) MarkRunnersFailing(problem string) {
	set(e, ConditionRunnersReady, metav1.ConditionFalse, ReasonRunnersFailing, problem)
	markWaiting(e, ReasonRunnersFailing, problem)
}

// Title is the environment's name for people: spec.displayName, else its name.
func (e *Environment) Title() string { return cmp.Or(string(e.Spec.DisplayName), e.Name) }

// WantedSlug is the slug of the environment's title; the object's name where
// the title holds no letter or digit that a slug can have.
func (e *Environment) WantedSlug() string { return cmp.Or(Slug(e.Title()), e.Name) }

// Replicas returns minReplicas, 1 where it is not set.
func (p *RunnerPool) Replicas() int32 {
	if p.MinReplicas == nil {
		return 1
	}
	return *p.MinReplicas
}

// Requirements are the resources as a container has them.
func (r *RunnerResources) Requirements() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: r.Requests, Limits: r.Limits}
}
