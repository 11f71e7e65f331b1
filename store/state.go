// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"time"
)

// RunStatus is the state of an agent run.
type RunStatus string

// States of an agent run.
const (
	RunScheduled        RunStatus = "scheduled"
	RunQueued           RunStatus = "queued"
	RunRunning          RunStatus = "running"
	RunAwaitingApproval RunStatus = "awaiting_approval"
	RunCompleted        RunStatus = "completed"
	RunFailed           RunStatus = "failed"
	RunCancelled        RunStatus = "cancelled"
)

var runMoves = map[RunStatus][]RunStatus{
	RunScheduled:        {RunQueued, RunCancelled},
	RunQueued:           {RunRunning, RunFailed, RunCancelled},
	RunRunning:          {RunQueued, RunAwaitingApproval, RunCompleted, RunFailed, RunCancelled},
	RunAwaitingApproval: {RunQueued, RunFailed, RunCancelled},
}

// Terminal says that a run in this state never changes again.
func (s RunStatus) Terminal() bool { return len(runMoves[s]) == 0 }

// CanBecome says whether a run may move from s to next.
func (s RunStatus) CanBecome(next RunStatus) bool { return slices.Contains(runMoves[s], next) }

// ConnectorRunStatus is the state of a connector run.
type ConnectorRunStatus string

// States of a connector run.
const (
	ConnectorRunPending   ConnectorRunStatus = "pending"
	ConnectorRunRunning   ConnectorRunStatus = "running"
	ConnectorRunCompleted ConnectorRunStatus = "completed"
	ConnectorRunFailed    ConnectorRunStatus = "failed"
	ConnectorRunSkipped   ConnectorRunStatus = "skipped"
	ConnectorRunCancelled ConnectorRunStatus = "cancelled"
)

// Terminal says that a connector run in this state never changes again.
func (s ConnectorRunStatus) Terminal() bool {
	return s != ConnectorRunPending && s != ConnectorRunRunning
}

// ConnectorRunOutcome is the state of a received event's connector run while open
// of its agent runs are under way, failed have failed and completed have completed:
// running until the last ends, then failed if any failed, completed if any completed,
// and cancelled where all were.
func ConnectorRunOutcome(open, failed, completed int) ConnectorRunStatus {
	switch {
	case open > 0:
		return ConnectorRunRunning
	case failed > 0:
		return ConnectorRunFailed
	case completed > 0:
		return ConnectorRunCompleted
	default:
		return ConnectorRunCancelled
	}
}

// TriggerType says what made a connector run.
type TriggerType string

// Trigger types.
const (
	TriggerWebhook  TriggerType = "webhook"
	TriggerCron     TriggerType = "cron"
	TriggerOutbound TriggerType = "outbound"
)

// DeploymentStatus is the state of a deployment.
type DeploymentStatus string

// States of a deployment.
const (
	DeploymentPending   DeploymentStatus = "pending"
	DeploymentBuilding  DeploymentStatus = "building"
	DeploymentDeployed  DeploymentStatus = "deployed"
	DeploymentFailed    DeploymentStatus = "failed"
	DeploymentCancelled DeploymentStatus = "cancelled"
)

var deploymentMoves = map[DeploymentStatus][]DeploymentStatus{
	DeploymentPending:  {DeploymentBuilding, DeploymentFailed, DeploymentCancelled},
	DeploymentBuilding: {DeploymentDeployed, DeploymentFailed, DeploymentCancelled},
}

// Terminal says that the outcome of a deployment in this state is decided.
func (s DeploymentStatus) Terminal() bool { return len(deploymentMoves[s]) == 0 }

// CanBecome says whether a deployment may move from s to next.
func (s DeploymentStatus) CanBecome(next DeploymentStatus) bool {
	return slices.Contains(deploymentMoves[s], next)
}

// DeploymentPhase is the step that a building deployment is at; empty when it
// is not building.
type DeploymentPhase string

// Phases of a building deployment, in their order.
const (
	PhaseFetching   DeploymentPhase = "fetching"
	PhasePacking    DeploymentPhase = "packing"
	PhaseTesting    DeploymentPhase = "testing"
	PhaseConnecting DeploymentPhase = "connecting"
)

// FailureReason says why a deployment failed; empty when it did not.
type FailureReason string

// Reasons for which a deployment fails.
const (
	FailureBuild      FailureReason = "build_failed"
	FailureTests      FailureReason = "tests_failed"
	FailureConnectors FailureReason = "connectors_failed"
	FailureDeadline   FailureReason = "deadline_exceeded"
	// FailureStoreRestored: the outcome was lost with a younger store.
	FailureStoreRestored FailureReason = "store_restored"
)

// MaxOpen is how long a run may be open: nothing stays for ever in the tables of what is.
const MaxOpen = 30 * 24 * time.Hour

// Retention is how long history is kept unless the operator says otherwise, MinRetention the
// shortest that they may say.
const (
	Retention    = 90 * 24 * time.Hour
	MinRetention = 2 * 24 * time.Hour
)

// OpenFor is how long a run or delivery may be open where history is kept for so long: MaxOpen, or
// a day less than that, so that nothing open is as old as what is deleted.
func OpenFor(retention time.Duration) time.Duration { return min(MaxOpen, retention-24*time.Hour) }

// MaxLosses is how often a run may lose its runner: one that brings down every
// runner must not do so for ever.
const MaxLosses = 20

// RunErrorCode is the machine-readable cause of a run that did not complete.
type RunErrorCode string

// Causes that the platform itself gives to a run that failed or was cancelled.
// Runners may report others; the code space is open.
const (
	RunErrorAgentNotFound   RunErrorCode = "agent_not_found"
	RunErrorToolInterrupted RunErrorCode = "tool_interrupted"
	RunErrorRunnerLost      RunErrorCode = "runner_lost"
	RunErrorEnvironmentGone RunErrorCode = "environment_deleted"
	// RunErrorExpired is of runs that were open for MaxOpen.
	RunErrorExpired RunErrorCode = "expired"
	// RunErrorCancelled is of runs that somebody cancelled.
	RunErrorCancelled RunErrorCode = "cancelled"
	// RunErrorOutputTooLarge, RunErrorAnswerTooLarge and RunErrorJournalTooLarge
	// are of runs that are beyond a limit; see MaxOutput.
	RunErrorOutputTooLarge  RunErrorCode = "output_too_large"
	RunErrorAnswerTooLarge  RunErrorCode = "model_answer_too_large"
	RunErrorJournalTooLarge RunErrorCode = "journal_too_large"
)
