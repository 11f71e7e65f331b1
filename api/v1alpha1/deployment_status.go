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

// SpecID returns spec.id, "" where it is not set.
func (d *Deployment) SpecID() string { return string(d.Spec.ID) }

// CommonStatus returns what every status has.
func (d *Deployment) CommonStatus() *ObjectStatus { return &d.Status.ObjectStatus }

// Terminal says that a deployment in this phase never changes it again.
func (p DeploymentPhase) Terminal() bool {
	return p == DeploymentDeployed || p == DeploymentFailed || p == DeploymentCancelled
}

// MarkPending: the deployment waits for its turn.
func (d *Deployment) MarkPending(message string) {
	d.Status.Phase, d.Status.Step = DeploymentPending, ""
	MarkReconciling(d, ReasonPending, message)
}

// Doing says to a person what a build is at in a step; "" of no step.
func (s DeploymentStep) Doing() string {
	for _, known := range deploymentSteps {
		if known.step == s {
			return known.doing
		}
	}
	return ""
}

// MarkBuilding: the build is at that step ("" before it says). Conditions of the
// steps before become True.
func (d *Deployment) MarkBuilding(step DeploymentStep) {
	d.Status.Phase, d.Status.Step = DeploymentBuilding, step
	if step == "" {
		MarkReconciling(d, ReasonBuilding, "the build is being started")
		return
	}
	for _, s := range deploymentSteps {
		if s.step == step {
			d.passBefore(s.condition)
			set(d, s.condition, metav1.ConditionUnknown, string(step), s.doing)
			MarkReconciling(d, string(step), s.doing)
		}
	}
}

// passBefore makes the conditions of the steps before that of condition True.
func (d *Deployment) passBefore(condition string) {
	for _, s := range deploymentSteps {
		if s.condition == condition {
			return
		}
		if !d.Status.IsTrue(s.condition) {
			d.pass(s.condition, s.reason, s.done)
		}
	}
}

// pass makes the condition of a step True; that of the tests says what was tested.
func (d *Deployment) pass(condition, reason, message string) {
	switch tests := d.Status.Tests; {
	case condition != ConditionTestsPassed:
	case tests != nil:
		reason, message = ReasonSucceeded, fmt.Sprintf("all test cases passed: %d", tests.Total)
	case d.Spec.SkipTests:
		message = "the test phase was left out, as spec.skipTests asks"
	}
	set(d, condition, metav1.ConditionTrue, reason, message)
}

// deploymentSteps are the steps in their order with their conditions.
var deploymentSteps = []struct {
	step      DeploymentStep
	condition string
	doing     string
	// reason and done are those of the condition once the step is behind.
	reason, done string
}{
	{StepFetching, ConditionSourceFetched, "fetching the source", ReasonSucceeded, "the source is there"},
	{StepPacking, ConditionBuilt, "validating and packing the repository", ReasonSucceeded, "the bundle is stored"},
	{StepTesting, ConditionTestsPassed, "running the tests", ReasonSkipped, "nothing to do: the repository has no tests"},
	{StepConnecting, ConditionConnectorsApplied, "going live", "", ""}, // see MarkConnectors
}

// MarkDeployed: the build came to a good end, and the bundle can be live. Call
// it with status.bundle and status.tests filled, and MarkConnectors with it.
func (d *Deployment) MarkDeployed() {
	d.Status.Phase, d.Status.Step, d.Status.FailureReason = DeploymentDeployed, "", ""
	for _, s := range deploymentSteps {
		if s.step != StepConnecting {
			d.pass(s.condition, s.reason, s.done)
		}
	}
	MarkReady(d, "deployed")
}

// AppliedConnectors are what became of connectors when a deployment went live.
type AppliedConnectors struct {
	// Live: it has been.
	Live bool
	// Applied are how many are as its code has them, Retired how many its code has no more.
	Applied, Retired int
	// Left are those that could not be applied and stayed as they were, each with the reason.
	Left []string
}

func (c AppliedConnectors) String() string {
	said := fmt.Sprintf("it went live with %d connectors as the code has them", c.Applied)
	if c.Retired > 0 {
		said += fmt.Sprintf(", and retired %d that it does not have", c.Retired)
	}
	if len(c.Left) > 0 {
		said += "; left as they were, for they could not be applied: " + strings.Join(c.Left, "; ")
	}
	return said
}

// MarkConnectors tells what became of connectors.
func (d *Deployment) MarkConnectors(c AppliedConnectors) {
	switch {
	case len(c.Left) > 0:
		set(d, ConditionConnectorsApplied, metav1.ConditionFalse, ReasonConnectorsFailed, clip(c.String()))
	case c.Applied+c.Retired > 0:
		set(d, ConditionConnectorsApplied, metav1.ConditionTrue, ReasonSucceeded, c.String())
	case !c.Live:
		set(d, ConditionConnectorsApplied, metav1.ConditionTrue, ReasonSkipped, "it has not been live, so that no connectors were applied")
	default:
		set(d, ConditionConnectorsApplied, metav1.ConditionTrue, ReasonSkipped, "no connectors were to be applied")
	}
}

// MarkFailed: the deployment failed for good. The condition of the step that
// failed becomes False: of tests or connectors when failure names them, else of
// the step that the status is at. Those of the steps before it become True.
func (d *Deployment) MarkFailed(failure DeploymentFailure, message string) {
	condition, reason := d.failedCondition(failure)
	if d.Status.Step != "" {
		d.passBefore(condition)
	}
	set(d, condition, metav1.ConditionFalse, reason, message)
	d.Status.Phase, d.Status.Step, d.Status.FailureReason = DeploymentFailed, "", failure
	d.Status.Message = clip(message)
	MarkStalled(d, string(failure), message)
}

// failedCondition tells which condition a failure concerns, and its reason. Where
// nobody knows the step, one that was marked before stays where it was.
func (d *Deployment) failedCondition(failure DeploymentFailure) (condition, reason string) {
	switch failure {
	case FailureTests:
		return ConditionTestsPassed, string(failure)
	case FailureConnectors:
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
	case failure == FailureBuild: // whichever step it was at
		return ConditionBuilt, string(failure)
	default:
		return condition, string(failure)
	}
}

// MarkCancelled: the deployment was cancelled or superseded; message says which.
// Both are what somebody asked for, and nobody has to do anything: it is no failure.
func (d *Deployment) MarkCancelled(message string) {
	for _, s := range deploymentSteps {
		if s.step == d.Status.Step {
			d.passBefore(s.condition)
			set(d, s.condition, metav1.ConditionFalse, ReasonCancelled, message)
		}
	}
	d.Status.Phase, d.Status.Step = DeploymentCancelled, ""
	d.Status.Message = clip(message)
	markEnded(d, ReasonCancelled, "nothing was deployed: "+message)
}

// MarkLive: this is the version that the environment runs since at, by the activation of that rank.
func (d *Deployment) MarkLive(at metav1.Time, rank int64) {
	d.Status.Live = true
	d.Status.ActivatedAt, d.Status.ActivationRank = &at, rank
	set(d, ConditionLive, metav1.ConditionTrue, ReasonActivated, fmt.Sprintf("live in Environment %q", d.Spec.Environment))
}

// MarkNotLive: the environment runs another deployment, or none. Which, the environment says: it
// changes without this one's being looked at.
func (d *Deployment) MarkNotLive() {
	d.Status.Live = false
	set(d, ConditionLive, metav1.ConditionFalse, ReasonNotLive, fmt.Sprintf("not what Environment %q runs: see its status.liveDeployment", d.Spec.Environment))
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

// activationAhead is how far ahead of the platform's clock somebody else's may be.
const activationAhead = 5 * time.Minute

// IsAhead says whether an activation was asked for at a time that is yet to come, by more than a
// clock may be ahead: no later one could be asked for.
func (a *DeploymentActivation) IsAhead(now time.Time) bool {
	return a != nil && a.RequestedAt.Sub(now) > activationAhead
}

// MarkActivationAhead: what is asked for is refused, for IsAhead.
func (d *Deployment) MarkActivationAhead() {
	d.MarkActivation(ActivationFailed, fmt.Sprintf("spec.activation.requestedAt is more than %v ahead of the platform's clock: "+
		"remove spec.activation, and ask again with the time that it is", activationAhead))
}

// MarkNameReused: the store knows the deployment's id with another source.
func (d *Deployment) MarkNameReused() {
	MarkStalled(d, ReasonNameReused,
		"a deployment with this id was made before, from another source or to another environment, and its outcome is kept; create the Deployment under another name")
}

// MarkBuildBlocked: the build's pod does not run, because of problem.
func (d *Deployment) MarkBuildBlocked(problem string) {
	MarkReconciling(d, ReasonBuildBlocked, "the build does not run: "+problem)
}

// BuildProblem is what the status says that keeps the build's pod from running; ""
// for nothing.
func (d *Deployment) BuildProblem() string {
	ready := d.Status.Condition(ConditionReady)
	if ready == nil || ready.Reason != ReasonBuildBlocked {
		return ""
	}
	return ready.Message
}
