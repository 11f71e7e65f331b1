// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ObjectKind returns "Deployment".
func (d *Deployment) ObjectKind() string { return "Deployment" }

// SpecID returns spec.id, "" where it is not set.
func (d *Deployment) SpecID() string { return string(d.Spec.ID) }

// CommonStatus returns what every status has.
func (d *Deployment) CommonStatus() *ObjectStatus { return &d.Status.ObjectStatus }

// MarkReady: the deployment is in effect as asked. An empty message gets a plain one.
func (d *Deployment) MarkReady(message string) { markReady(d, message) }

// MarkReconciling: work is under way.
func (d *Deployment) MarkReconciling(reason, message string) {
	markReconciling(d, metav1.ConditionUnknown, reason, message)
}

// MarkStalled: nothing goes on until somebody changes something.
func (d *Deployment) MarkStalled(reason, message string) { markStalled(d, reason, message) }

// MarkIDTaken: the id is held by holder, `Kind namespace/name`.
func (d *Deployment) MarkIDTaken(holder string) { markIDTaken(d, holder) }

// MarkReferenceMissing: an object that the spec names does not exist (yet).
func (d *Deployment) MarkReferenceMissing(kind, name string) { markReferenceMissing(d, kind, name) }

// MarkSecretMissing: a Secret that the spec names does not exist (yet).
func (d *Deployment) MarkSecretMissing(name string) { markSecretMissing(d, name) }

// MarkSecretInvalid: a Secret that the spec names cannot be used.
func (d *Deployment) MarkSecretInvalid(name, problem string) { markSecretInvalid(d, name, problem) }

// MarkProjectMissing: the namespace has no Project that is ready (yet).
func (d *Deployment) MarkProjectMissing() { markProjectMissing(d) }

// MarkStoreUnavailable: the data store does not answer; it is tried again.
func (d *Deployment) MarkStoreUnavailable() { markStoreUnavailable(d) }

// IsReady says whether Ready is True for the current generation.
func (d *Deployment) IsReady() bool { return isTrueNow(d, ConditionReady) }

// IsStalled says whether Stalled is True for the current generation.
func (d *Deployment) IsStalled() bool { return isTrueNow(d, ConditionStalled) }

// Terminal says that a deployment in this phase never changes it again.
func (p DeploymentPhase) Terminal() bool {
	return p == DeploymentDeployed || p == DeploymentFailed || p == DeploymentCancelled
}

// DeploymentStepOf turns a phase of store and REST API ("fetching", …) into the
// step; "" for anything else.
func DeploymentStepOf(phase string) DeploymentStep {
	for _, s := range []DeploymentStep{StepFetching, StepPacking, StepTesting, StepConnecting} {
		if strings.ToLower(string(s)) == phase {
			return s
		}
	}
	return ""
}

// DeploymentFailureOf turns a failure reason of store and REST API
// ("build_failed", …) into that of the status; "" for anything else.
func DeploymentFailureOf(reason string) DeploymentFailure {
	return map[string]DeploymentFailure{
		"build_failed":      FailureBuild,
		"tests_failed":      FailureTests,
		"connectors_failed": FailureConnectors,
		"deadline_exceeded": FailureDeadline,
		"store_restored":    FailureStoreRestored,
	}[reason]
}

// MarkPending: the deployment waits for its turn.
func (d *Deployment) MarkPending(message string) {
	d.Status.Phase, d.Status.Step = DeploymentPending, ""
	d.MarkReconciling(ReasonPending, message)
}

// MarkBuilding: the build is at that step ("" before it says). Conditions of the
// steps before become True.
func (d *Deployment) MarkBuilding(step DeploymentStep) {
	d.Status.Phase, d.Status.Step = DeploymentBuilding, step
	if step == "" {
		d.MarkReconciling(ReasonBuilding, "the build is being started")
		return
	}
	before := true
	for _, s := range deploymentSteps {
		if s.step == step {
			before = false
			set(d, s.condition, metav1.ConditionUnknown, string(step), s.doing)
			d.MarkReconciling(string(step), s.doing)
			continue
		}
		if before && !d.Status.IsTrue(s.condition) {
			set(d, s.condition, metav1.ConditionTrue, s.reason, s.done)
		}
	}
}

// deploymentSteps are the steps in their order with their conditions. A build
// refuses a repository that has tests or connectors: in this release those two
// steps have nothing to look at.
var deploymentSteps = []struct {
	step      DeploymentStep
	condition string
	doing     string
	// reason and done are those of the condition once the step is behind.
	reason, done string
}{
	{StepFetching, ConditionSourceFetched, "fetching the source", ReasonSucceeded, "the source is there"},
	{StepPacking, ConditionBuilt, "validating and packing the repository", ReasonSucceeded, "the bundle is stored"},
	{StepTesting, ConditionTestsPassed, "looking for tests", ReasonSkipped, "nothing to do: the repository has no tests"},
	{StepConnecting, ConditionConnectorsApplied, "going live", ReasonSkipped, "nothing to do: the repository has no connectors"},
}

// MarkDeployed: the build came to a good end, and the bundle can be live. Call
// it with status.bundle and status.tests filled.
func (d *Deployment) MarkDeployed() {
	d.Status.Phase, d.Status.Step, d.Status.FailureReason = DeploymentDeployed, "", ""
	for _, s := range deploymentSteps {
		set(d, s.condition, metav1.ConditionTrue, s.reason, s.done)
	}
	d.MarkReady("deployed")
}

// MarkFailed: the deployment failed for good. The condition of the step that
// failed becomes False: of tests or connectors when failure names them, else of
// the step that the status was at.
func (d *Deployment) MarkFailed(failure DeploymentFailure, message string) {
	condition, reason := d.failedCondition(failure)
	set(d, condition, metav1.ConditionFalse, reason, message)
	d.Status.Phase, d.Status.Step, d.Status.FailureReason = DeploymentFailed, "", failure
	d.Status.Message = clip(message)
	d.MarkStalled(string(failure), message)
}

// failedCondition tells which condition a failure concerns, and its reason.
func (d *Deployment) failedCondition(failure DeploymentFailure) (condition, reason string) {
	switch {
	case failure == FailureTests:
		return ConditionTestsPassed, string(failure)
	case failure == FailureConnectors:
		return ConditionConnectorsApplied, string(failure)
	case failure == FailureBuild && (d.Status.Step == StepFetching || d.Status.Step == "" && d.Status.Commit == ""):
		return ConditionSourceFetched, ReasonFetchFailed
	case failure == FailureBuild:
		return ConditionBuilt, string(failure)
	}
	for _, s := range deploymentSteps {
		if s.step == d.Status.Step {
			return s.condition, string(failure)
		}
	}
	return ConditionBuilt, string(failure)
}

// MarkCancelled: the deployment was cancelled or superseded; message says which.
func (d *Deployment) MarkCancelled(message string) {
	for _, s := range deploymentSteps {
		if s.step == d.Status.Step {
			set(d, s.condition, metav1.ConditionFalse, ReasonCancelled, message)
		}
	}
	d.Status.Phase, d.Status.Step = DeploymentCancelled, ""
	d.Status.Message = clip(message)
	d.MarkStalled(ReasonCancelled, message)
}

// MarkLive: this is the version that the environment runs since at.
func (d *Deployment) MarkLive(at metav1.Time) {
	d.Status.Live = true
	d.Status.ActivatedAt = &at
	set(d, ConditionLive, metav1.ConditionTrue, ReasonActivated, fmt.Sprintf("live in Environment %q", d.Spec.Environment))
}

// MarkNotLive: another deployment, by, took over, or was live all along; ""
// when the environment runs none.
func (d *Deployment) MarkNotLive(by string) {
	d.Status.Live = false
	message := fmt.Sprintf("Environment %q runs no deployment", d.Spec.Environment)
	if by != "" {
		message = fmt.Sprintf("Environment %q runs Deployment %s", d.Spec.Environment, by)
	}
	set(d, ConditionLive, metav1.ConditionFalse, ReasonNotLive, message)
}

// MarkActivation records what became of the request in spec.activation. The
// request must be there.
func (d *Deployment) MarkActivation(result ActivationResult, message string) {
	d.Status.Activation = &DeploymentActivationStatus{
		RequestedAt: d.Spec.Activation.RequestedAt,
		Result:      result,
		Message:     clip(message),
	}
}

// ActivationPending says that spec.activation asks for something that the status
// has no answer to yet.
func (d *Deployment) ActivationPending() bool {
	asked, answered := d.Spec.Activation, d.Status.Activation
	return asked != nil && (answered == nil || !answered.RequestedAt.Equal(&asked.RequestedAt))
}

// MarkNameReused: the store knows the deployment's id with another source.
func (d *Deployment) MarkNameReused() {
	d.MarkStalled(ReasonNameReused,
		"a deployment with this id was made from another source before, and its outcome is kept; create the Deployment under another name")
}

// MarkGitMissing: the project has no git repository to build from.
func (d *Deployment) MarkGitMissing() {
	d.MarkStalled(ReasonGitMissing, fmt.Sprintf(
		"the project has no git repository: set spec.git of Project %q and create another Deployment, or deploy an uploaded bundle", ProjectName))
}
