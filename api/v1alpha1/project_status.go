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

// MarkNetworkMissing: what stands around the project's pods is not there, for a
// reason that message says.
func (p *Project) MarkNetworkMissing(reason, message string) {
	set(p, ConditionNetworkReady, metav1.ConditionFalse, reason, "no pod is made: "+message)
}
