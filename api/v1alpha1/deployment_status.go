// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ObjectKind returns "Deployment".
func (d *Deployment) ObjectKind() string { return "Deployment" }

// SpecID returns spec.id, or "" if it is not set.
func (d *Deployment) SpecID() string { return string(d.Spec.ID) }

// CommonStatus returns the part of the status that all kinds share.
func (d *Deployment) CommonStatus() *ObjectStatus { return &d.Status.ObjectStatus }

// Terminal reports whether the phase is final.
func (p DeploymentPhase) Terminal() bool {
	return p == DeploymentDeployed || p == DeploymentFailed || p == DeploymentCancelled
}

// MarkPending reports that the deployment is queued.
func (d *Deployment) MarkPending(message string) {
	d.Status.Phase, d.Status.Step = DeploymentPending, ""
	MarkReconciling(d, ReasonPending, message)
}

// Doing describes a step for people, or returns "" for no step.
func (s DeploymentStep) Doing() string {
	for _, known := range deploymentSteps {
		if known.step == s {
			return known.doing
		}
	}
	return ""
}

// MarkBuilding reports the current step of the build, or "" before the first one. Conditions of
// earlier steps become True.
func (d *Deployment) MarkBuilding(step DeploymentStep) {
	d.Status.Phase, d.Status.Step = DeploymentBuilding, step
	if step == "" {
		MarkReconciling(d, ReasonBuilding, "starting the build")
		return
	}
	for _, s := range deploymentSteps {
		if s.step == step {
			d.passBefore(s.condition)
			setCondition(d, s.condition, metav1.ConditionUnknown, string(step), s.doing)
			MarkReconciling(d, string(step), s.doing)
		}
	}
}

// passBefore sets the conditions of the steps before condition to True.
func (d *Deployment) passBefore(condition string) {
	for _, s := range deploymentSteps {
		if s.condition == condition {
			return
		}
		if !d.Status.IsTrue(s.condition) {
			d.markPassed(s.condition, s.reason, s.done)
		}
	}
}

// markPassed sets the condition of a step to True. For tests it adds their number.
func (d *Deployment) markPassed(condition, reason, message string) {
	switch tests := d.Status.Tests; {
	case condition != ConditionTestsPassed:
	case tests != nil:
		reason, message = ReasonSucceeded, fmt.Sprintf("all test cases passed: %d", tests.Total)
	case d.Spec.SkipTests:
		message = "the test phase was skipped because of spec.skipTests"
	}
	setCondition(d, condition, metav1.ConditionTrue, reason, message)
}

// deploymentSteps lists the steps and their conditions in order.
var deploymentSteps = []struct {
	step      DeploymentStep
	condition string
	doing     string
	// reason and done apply to the condition after the step.
	reason, done string
}{
	{StepFetching, ConditionSourceFetched, "fetching the source", ReasonSucceeded, "the source was fetched"},
	{StepPacking, ConditionBuilt, "validating and packing the repository", ReasonSucceeded, "the bundle is stored"},
	{StepTesting, ConditionTestsPassed, "running the tests", ReasonSkipped, "the repository has no tests"},
	{StepConnecting, ConditionConnectorsApplied, "going live", "", ""}, // see MarkConnectors
}

// MarkDeployed reports a successful build. The caller sets status.bundle and status.tests before,
// and calls MarkConnectors.
func (d *Deployment) MarkDeployed() {
	d.Status.Phase, d.Status.Step, d.Status.FailureReason = DeploymentDeployed, "", ""
	for _, s := range deploymentSteps {
		if s.step != StepConnecting {
			d.markPassed(s.condition, s.reason, s.done)
		}
	}
	MarkReady(d, "deployed")
}

// AppliedConnectors is the effect of an activation on connectors.
type AppliedConnectors struct {
	// Live is true after an activation.
	Live bool
	// Applied counts the connectors that match the code, Retired the ones that the code no longer
	// has.
	Applied, Retired int
	// Left are the connectors that could not be applied and did not change, each with the reason.
	Left []string
}

func (c AppliedConnectors) String() string {
	said := fmt.Sprintf("live with %d connectors from the code", c.Applied)
	if c.Retired > 0 {
		said += fmt.Sprintf("; %d retired", c.Retired)
	}
	if len(c.Left) > 0 {
		said += "; unchanged, because they could not be applied: " + strings.Join(c.Left, "; ")
	}
	return said
}

// MarkConnectors reports the effect on connectors.
func (d *Deployment) MarkConnectors(c AppliedConnectors) {
	switch {
	case len(c.Left) > 0:
		setCondition(d, ConditionConnectorsApplied, metav1.ConditionFalse, ReasonConnectorsFailed, truncateMessage(c.String()))
	case c.Applied+c.Retired > 0:
		setCondition(d, ConditionConnectorsApplied, metav1.ConditionTrue, ReasonSucceeded, c.String())
	case !c.Live:
		setCondition(d, ConditionConnectorsApplied, metav1.ConditionTrue, ReasonSkipped, "no connectors were applied, because the deployment has not been live")
	default:
		setCondition(d, ConditionConnectorsApplied, metav1.ConditionTrue, ReasonSkipped, "the code has no connectors")
	}
}

// MarkFailed reports a final failure. The condition of the failed step becomes False: the step
// that the failure names, else the current step. Conditions of earlier steps become True.
func (d *Deployment) MarkFailed(failure DeploymentFailure, message string) {
	condition, reason := d.failedCondition(failure)
	if d.Status.Step != "" {
		d.passBefore(condition)
	}
	setCondition(d, condition, metav1.ConditionFalse, reason, message)
	d.Status.Phase, d.Status.Step, d.Status.FailureReason = DeploymentFailed, "", failure
	d.Status.Message = truncateMessage(message)
	MarkStalled(d, string(failure), message)
}

// failedCondition returns the condition and the reason of a failure. If the step is unknown,
// earlier conditions do not change.
func (d *Deployment) failedCondition(failure DeploymentFailure) (condition, reason string) {
	switch failure {
	case FailureTests:
		return ConditionTestsPassed, string(failure)
	case FailureConnectors, FailureModelProvider:
		return ConditionConnectorsApplied, string(failure)
	}
	condition = ConditionBuilt
	if failure == FailureBuild && d.Status.Commit == "" {
		condition = ConditionSourceFetched
	}
	for _, s := range deploymentSteps {
		known := d.Status.Condition(s.condition)
		if s.step == d.Status.Step || d.Status.Step == "" && known != nil && known.Status == metav1.ConditionFalse {
			condition = s.condition
			break
		}
	}
	switch {
	case failure == FailureBuild && condition == ConditionSourceFetched:
		return condition, ReasonFetchFailed
	case failure == FailureBuild: // at any step
		return ConditionBuilt, string(failure)
	default:
		return condition, string(failure)
	}
}

// MarkCancelled reports that the deployment was cancelled or superseded, as the message says. This
// is no failure, because it was requested.
func (d *Deployment) MarkCancelled(message string) {
	for _, s := range deploymentSteps {
		if s.step == d.Status.Step {
			d.passBefore(s.condition)
			setCondition(d, s.condition, metav1.ConditionFalse, ReasonCancelled, message)
		}
	}
	d.Status.Phase, d.Status.Step = DeploymentCancelled, ""
	d.Status.Message = truncateMessage(message)
	markEnded(d, ReasonCancelled, "nothing was deployed: "+message)
}

// MarkLive reports that the environment runs this version since at, after the activation with that
// rank.
func (d *Deployment) MarkLive(at metav1.Time, rank int64) {
	d.Status.Live = true
	d.Status.ActivatedAt, d.Status.ActivationRank = &at, rank
	setCondition(d, ConditionLive, metav1.ConditionTrue, ReasonActivated, fmt.Sprintf("live in Environment %q", d.Spec.Environment))
}

// MarkNotLive reports that the environment runs another deployment or none. The environment names
// it, because it changes without an update of this object.
func (d *Deployment) MarkNotLive() {
	d.Status.Live = false
	setCondition(d, ConditionLive, metav1.ConditionFalse, ReasonNotLive, fmt.Sprintf("Environment %q runs another deployment: see its status.liveDeployment", d.Spec.Environment))
}

// MarkActivation records the result of the request in spec.activation, which must be set.
func (d *Deployment) MarkActivation(result ActivationResult, message string) {
	d.Status.Activation = &DeploymentActivationStatus{
		RequestedAt: d.Spec.Activation.RequestedAt,
		Result:      result,
		Message:     truncateMessage(message),
	}
}

// ActivationPending reports whether spec.activation has a request without a result.
func (d *Deployment) ActivationPending() bool {
	asked, answered := d.Spec.Activation, d.Status.Activation
	return asked != nil && (answered == nil || !answered.RequestedAt.Equal(&asked.RequestedAt))
}

// activationAhead is the tolerated difference between a client's clock and the platform's.
const activationAhead = 5 * time.Minute

// IsAhead reports whether the requested time is in the future by more than activationAhead. No
// later request would be possible.
func (a *DeploymentActivation) IsAhead(now time.Time) bool {
	return a != nil && a.RequestedAt.Sub(now) > activationAhead
}

// MarkActivationAhead rejects a request with a time in the future.
func (d *Deployment) MarkActivationAhead() {
	d.MarkActivation(ActivationFailed, fmt.Sprintf("spec.activation.requestedAt is more than %v ahead of the platform's clock: "+
		"remove spec.activation, then request the activation with the current time", activationAhead))
}

// MarkNameReused reports that the store has the deployment's ID with another source.
func (d *Deployment) MarkNameReused() {
	MarkStalled(d, ReasonNameReused,
		"a deployment with this ID exists with another source or environment; create the Deployment with another name")
}

// MarkBuildBlocked reports that the build's pod does not run because of problem.
func (d *Deployment) MarkBuildBlocked(problem string) {
	MarkReconciling(d, ReasonBuildBlocked, "the build does not run: "+problem)
}

// BuildProblem returns the problem in the status that keeps the build's pod from running, or "".
func (d *Deployment) BuildProblem() string {
	ready := d.Status.Condition(ConditionReady)
	if ready == nil || ready.Reason != ReasonBuildBlocked {
		return ""
	}
	return ready.Message
}
