// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// steps are the conditions of a deployment in their order.
func steps(d *v1alpha1.Deployment) [4]string {
	return [4]string{
		condition(d, v1alpha1.ConditionSourceFetched), condition(d, v1alpha1.ConditionBuilt),
		condition(d, v1alpha1.ConditionTestsPassed), condition(d, v1alpha1.ConditionConnectorsApplied),
	}
}

func TestDeploymentStatus_Progress(t *testing.T) {
	t.Parallel()
	const done, skipped, none = "True Succeeded", "True Skipped", "absent"
	d := newDeployment()
	d.MarkPending("another build is under way")
	require.Equal(t, v1alpha1.DeploymentPending, d.Status.Phase)
	require.Equal(t, "Unknown Pending", condition(d, v1alpha1.ConditionReady))
	d.MarkBuilding("")
	require.Equal(t, [4]string{none, none, none, none}, steps(d))

	for _, step := range []struct {
		at   v1alpha1.DeploymentStep
		want [4]string
	}{
		{v1alpha1.StepFetching, [4]string{"Unknown Fetching", none, none, none}},
		{v1alpha1.StepPacking, [4]string{done, "Unknown Packing", none, none}},
		{v1alpha1.StepTesting, [4]string{done, done, "Unknown Testing", none}},
		{v1alpha1.StepConnecting, [4]string{done, done, skipped, "Unknown Connecting"}},
	} {
		d.MarkBuilding(step.at)
		require.Equal(t, step.want, steps(d))
		require.Equal(t, v1alpha1.DeploymentBuilding, d.Status.Phase)
		require.Equal(t, step.at, d.Status.Step)
		require.Equal(t, "True "+string(step.at), condition(d, v1alpha1.ConditionReconciling))
	}

	d.MarkDeployed()
	d.MarkConnectors(v1alpha1.AppliedConnectors{Live: true})
	require.Equal(t, [4]string{done, done, skipped, skipped}, steps(d), "nothing was tested, no connector was applied")
	require.Equal(t, v1alpha1.DeploymentDeployed, d.Status.Phase)
	require.True(t, d.Status.Phase.Terminal())
	require.Empty(t, d.Status.Step)
	require.True(t, v1alpha1.IsReady(d))

	d.MarkLive(metav1.NewTime(time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)), 1)
	require.Equal(t, "True Activated", condition(d, v1alpha1.ConditionLive))
	d.MarkNotLive()
	require.Equal(t, "False NotLive", condition(d, v1alpha1.ConditionLive))
	require.False(t, d.Status.Live)
	require.True(t, v1alpha1.IsReady(d), "it can be activated again")
}

// Another deployment may be live since, or all along.
func TestDeploymentStatus_KeepsConnectorOutcome(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		became v1alpha1.AppliedConnectors
		want   string
	}{
		{v1alpha1.AppliedConnectors{}, "no connectors were applied, because the deployment has not been live"},
		{v1alpha1.AppliedConnectors{Live: true}, "the code has no connectors"},
		{v1alpha1.AppliedConnectors{Live: true, Applied: 2}, "live with 2 connectors from the code"},
		{v1alpha1.AppliedConnectors{Live: true, Retired: 1}, "live with 0 connectors from the code; 1 retired"},
		{
			v1alpha1.AppliedConnectors{Live: true, Applied: 2, Retired: 1, Left: []string{"a: taken"}},
			"live with 2 connectors from the code; 1 retired; unchanged, because they could not be applied: a: taken",
		},
	} {
		t.Run(c.want, func(t *testing.T) {
			d := newDeployment()
			d.MarkDeployed()
			d.MarkConnectors(c.became)
			require.Equal(t, c.want, d.Status.Condition(v1alpha1.ConditionConnectorsApplied).Message)
		})
	}
}

// A status that says nothing new is not written.
func TestDeploymentStatus_RepeatedMarkChangesNothing(t *testing.T) {
	t.Parallel()
	for _, left := range [][]string{nil, {"orders: the name is taken"}} {
		d := newDeployment()
		mark := func() {
			d.MarkDeployed()
			d.MarkConnectors(v1alpha1.AppliedConnectors{Live: true, Applied: 1, Left: left})
		}
		mark()
		for i := range d.Status.Conditions {
			d.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC))
		}
		before := d.DeepCopy()
		mark()
		require.Equal(t, before, d)
	}
}

// How many cases, or why none.
func TestDeploymentStatus_ShowsTests(t *testing.T) {
	t.Parallel()
	message := func(d *v1alpha1.Deployment) string { return d.Status.Condition(v1alpha1.ConditionTestsPassed).Message }
	d := newDeployment()
	d.MarkBuilding(v1alpha1.StepTesting)
	require.Equal(t, "Unknown Testing", condition(d, v1alpha1.ConditionTestsPassed))
	d.Status.Tests = &v1alpha1.DeploymentTests{Total: 3}
	d.MarkBuilding(v1alpha1.StepConnecting)
	require.Equal(t, "True Succeeded", condition(d, v1alpha1.ConditionTestsPassed))
	require.Equal(t, "all test cases passed: 3", message(d))
	d.MarkDeployed()
	require.Equal(t, "True Succeeded", condition(d, v1alpha1.ConditionTestsPassed))

	d = newDeployment()
	d.MarkDeployed()
	require.Equal(t, "True Skipped", condition(d, v1alpha1.ConditionTestsPassed))
	require.Contains(t, message(d), "the repository has no tests")
	d = newDeployment()
	d.Spec.SkipTests = true
	d.MarkDeployed()
	require.Equal(t, "True Skipped", condition(d, v1alpha1.ConditionTestsPassed))
	require.Contains(t, message(d), "spec.skipTests")
}

func TestDeploymentStatus_FailureAtItsStep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		step      v1alpha1.DeploymentStep
		failure   v1alpha1.DeploymentFailure
		condition string
		reason    string
	}{
		{"", v1alpha1.FailureBuild, v1alpha1.ConditionSourceFetched, v1alpha1.ReasonFetchFailed},
		{v1alpha1.StepFetching, v1alpha1.FailureBuild, v1alpha1.ConditionSourceFetched, v1alpha1.ReasonFetchFailed},
		{v1alpha1.StepPacking, v1alpha1.FailureBuild, v1alpha1.ConditionBuilt, v1alpha1.ReasonBuildFailed},
		{v1alpha1.StepTesting, v1alpha1.FailureTests, v1alpha1.ConditionTestsPassed, v1alpha1.ReasonTestsFailed},
		{v1alpha1.StepConnecting, v1alpha1.FailureConnectors, v1alpha1.ConditionConnectorsApplied, v1alpha1.ReasonConnectorsFailed},
		{v1alpha1.StepConnecting, v1alpha1.FailureModelProvider, v1alpha1.ConditionConnectorsApplied, v1alpha1.ReasonModelProviderMissing},
		{v1alpha1.StepTesting, v1alpha1.FailureDeadline, v1alpha1.ConditionTestsPassed, v1alpha1.ReasonDeadlineExceeded},
		{"", v1alpha1.FailureDeadline, v1alpha1.ConditionBuilt, v1alpha1.ReasonDeadlineExceeded},
	} {
		t.Run(string(c.failure)+" at "+string(c.step), func(t *testing.T) {
			d := newDeployment()
			d.MarkBuilding(c.step)
			d.MarkFailed(c.failure, "the cause")
			require.Equal(t, "False "+c.reason, condition(d, c.condition), "%+v", c)
			require.Equal(t, "True "+string(c.failure), condition(d, v1alpha1.ConditionStalled))
			require.Equal(t, v1alpha1.DeploymentFailed, d.Status.Phase)
			require.Equal(t, c.failure, d.Status.FailureReason)
			require.Equal(t, "the cause", d.Status.Message)

			once := d.DeepCopy()
			d.Status.Commit = "0123456789012345678901234567890123456789" // as the spec has it
			d.MarkFailed(c.failure, "the cause")
			require.Equal(t, once.Status.Conditions, d.Status.Conditions, "%+v: it is marked again where it was", c)
		})
	}
}

// A build may pass several steps
// between two looks at it.
func TestDeploymentStatus_EndAfterSkippedSteps(t *testing.T) {
	t.Parallel()
	const passed, none = "True Succeeded", "absent"
	for name, c := range map[string]struct {
		seen, step v1alpha1.DeploymentStep
		end        func(*v1alpha1.Deployment)
		want       [4]string
	}{
		"failed, seen fetching": {
			v1alpha1.StepFetching, v1alpha1.StepPacking, func(d *v1alpha1.Deployment) { d.MarkFailed(v1alpha1.FailureBuild, "m") },
			[4]string{passed, "False BuildFailed", none, none},
		},
		"failed, never seen": {
			"", v1alpha1.StepTesting, func(d *v1alpha1.Deployment) { d.MarkFailed(v1alpha1.FailureDeadline, "m") },
			[4]string{passed, passed, "False DeadlineExceeded", none},
		},
		"fetching failed": {
			"", v1alpha1.StepFetching, func(d *v1alpha1.Deployment) { d.MarkFailed(v1alpha1.FailureBuild, "m") },
			[4]string{"False FetchFailed", none, none, none},
		},
		"cancelled, seen fetching": {
			v1alpha1.StepFetching, v1alpha1.StepPacking, func(d *v1alpha1.Deployment) { d.MarkCancelled("m") },
			[4]string{passed, "False Cancelled", none, none},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDeployment()
			d.Status.Commit = "0123456789012345678901234567890123456789"
			d.MarkBuilding(c.seen)
			d.Status.Step = c.step
			c.end(d)
			require.Equal(t, c.want, steps(d))
			require.Empty(t, d.Status.Step)
			once := d.DeepCopy()
			d.Status.Step = c.step
			c.end(d)
			require.Equal(t, once, d, "it is marked again where it was")
		})
	}
}

func TestDeploymentStatus_OtherEnds(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	d.MarkBuilding(v1alpha1.StepTesting)
	d.MarkCancelled("superseded by production-2")
	require.Equal(t, v1alpha1.DeploymentCancelled, d.Status.Phase)
	require.Equal(t, "False Cancelled", condition(d, v1alpha1.ConditionTestsPassed))
	require.Equal(t, "True Cancelled", condition(d, v1alpha1.ConditionReady), "as somebody asked: a folder in Git with it is healthy")
	require.Equal(t, "absent", condition(d, v1alpha1.ConditionStalled))

	d = newDeployment()
	d.MarkNameReused()
	require.Equal(t, "True NameReused", condition(d, v1alpha1.ConditionStalled))

	d = newDeployment()
	d.MarkBuilding("")
	require.Empty(t, d.BuildProblem())
	d.MarkBuildBlocked("no node takes the pod")
	require.Equal(t, "True BuildBlocked", condition(d, v1alpha1.ConditionReconciling))
	require.Contains(t, d.BuildProblem(), "no node takes the pod")
}

func TestDeploymentStatus_AnswersActivationOnce(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	require.False(t, d.ActivationPending())
	d.Spec.Activation = activation(12)
	require.True(t, d.ActivationPending())
	d.MarkActivation(v1alpha1.ActivationConnectorsFailed, "orders: the name is taken")
	require.False(t, d.ActivationPending())
	d.Spec.Activation = activation(13)
	require.True(t, d.ActivationPending())
}

func TestDeploymentPhase_StoreValues(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]v1alpha1.DeploymentStep{
		"fetching": v1alpha1.StepFetching, "packing": v1alpha1.StepPacking, "testing": v1alpha1.StepTesting,
		"connecting": v1alpha1.StepConnecting, "": "",
	} {
		t.Run(word, func(t *testing.T) {
			require.Equal(t, want, v1alpha1.DeploymentStepOf(word))
		})
	}
	for word, want := range map[string]v1alpha1.DeploymentFailure{
		"build_failed": v1alpha1.FailureBuild, "tests_failed": v1alpha1.FailureTests,
		"model_provider_missing": v1alpha1.FailureModelProvider,
		"connectors_failed":      v1alpha1.FailureConnectors, "deadline_exceeded": v1alpha1.FailureDeadline,
		"store_restored": v1alpha1.FailureStoreRestored, "": "",
	} {
		t.Run(word, func(t *testing.T) {
			require.Equal(t, want, v1alpha1.DeploymentFailureOf(word))
		})
	}
}
