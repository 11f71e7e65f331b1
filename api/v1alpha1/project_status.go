// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ObjectKind returns "Project".
func (p *Project) ObjectKind() string { return "Project" }

// SpecID returns "": a project's id follows from its namespace.
func (p *Project) SpecID() string { return "" }

// CommonStatus returns what every status has.
func (p *Project) CommonStatus() *ObjectStatus { return &p.Status.ObjectStatus }

// MarkReady: the project is in effect as asked. An empty message gets a plain one.
func (p *Project) MarkReady(message string) { markReady(p, message) }

// MarkReconciling: work is under way.
func (p *Project) MarkReconciling(reason, message string) {
	markReconciling(p, metav1.ConditionUnknown, reason, message)
}

// MarkStalled: nothing goes on until somebody changes something.
func (p *Project) MarkStalled(reason, message string) { markStalled(p, reason, message) }

// MarkPlanInvalid: the Namespace's annotation with the plan cannot be read,
// because of problem.
func (p *Project) MarkPlanInvalid(annotation string, problem error) {
	set(p, ConditionPlanInvalid, metav1.ConditionTrue, ReasonInvalidPlan,
		fmt.Sprintf("the platform's plan holds, for the operator's annotation %s of the Namespace cannot be read: %v", annotation, problem))
}

// MarkPlanValid: the Namespace's annotation can be read, or says nothing.
func (p *Project) MarkPlanValid() { remove(p, ConditionPlanInvalid) }

// MarkNetworkReady: NetworkPolicies and certificate are there.
func (p *Project) MarkNetworkReady() {
	set(p, ConditionNetworkReady, metav1.ConditionTrue, ReasonSucceeded, "pods may be made")
}

// MarkNetworkCollision: somebody else's object, which message names, stands where
// the controller's would.
func (p *Project) MarkNetworkCollision(message string) {
	set(p, ConditionNetworkReady, metav1.ConditionFalse, ReasonNameCollision, "no pod is made: "+message)
}

// MarkIDTaken: the id is held by holder, `Kind namespace/name`.
func (p *Project) MarkIDTaken(holder string) { markIDTaken(p, holder) }

// MarkReferenceMissing: an object that the spec names does not exist (yet).
func (p *Project) MarkReferenceMissing(kind, name string) { markReferenceMissing(p, kind, name) }

// MarkSecretMissing: a Secret that the spec names does not exist (yet).
func (p *Project) MarkSecretMissing(name string) { markSecretMissing(p, name) }

// MarkSecretInvalid: a Secret that the spec names cannot be used.
func (p *Project) MarkSecretInvalid(name, problem string) { markSecretInvalid(p, name, problem) }

// MarkProjectMissing: the namespace has no Project that is ready (yet).
func (p *Project) MarkProjectMissing() { markProjectMissing(p) }

// MarkStoreUnavailable: the data store does not answer; it is tried again.
func (p *Project) MarkStoreUnavailable() { markStoreUnavailable(p) }

// IsReady says whether Ready is True for the current generation.
func (p *Project) IsReady() bool { return isTrueNow(p, ConditionReady) }

// IsStalled says whether Stalled is True for the current generation.
func (p *Project) IsStalled() bool { return isTrueNow(p, ConditionStalled) }
