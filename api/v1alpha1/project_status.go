// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ObjectKind returns "Project".
func (p *Project) ObjectKind() string { return "Project" }

// SpecID returns "", because a project's ID derives from its namespace.
func (p *Project) SpecID() string { return "" }

// CommonStatus returns the part of the status that all kinds share.
func (p *Project) CommonStatus() *ObjectStatus { return &p.Status.ObjectStatus }

// MarkPlanInvalid reports that the plan in the Namespace's annotation cannot be read.
func (p *Project) MarkPlanInvalid(annotation string, problem error) {
	setCondition(p, ConditionPlanInvalid, metav1.ConditionTrue, ReasonInvalidPlan,
		fmt.Sprintf("the platform's plan applies, because the annotation %s of the Namespace is invalid: %v", annotation, problem))
}

// MarkPlanValid reports that the annotation can be read or is absent.
func (p *Project) MarkPlanValid() { removeCondition(p, ConditionPlanInvalid) }

// MarkNetworkReady reports that the NetworkPolicies and the certificate exist.
func (p *Project) MarkNetworkReady() {
	setCondition(p, ConditionNetworkReady, metav1.ConditionTrue, ReasonSucceeded, "pods can be created")
}

// MarkNetworkMissing reports that a NetworkPolicy or the certificate is missing.
func (p *Project) MarkNetworkMissing(reason, message string) {
	setCondition(p, ConditionNetworkReady, metav1.ConditionFalse, reason, "no pods are created: "+message)
}
