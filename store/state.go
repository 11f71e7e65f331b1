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

var runTransitions = map[RunStatus][]RunStatus{
	RunScheduled:        {RunQueued, RunCancelled},
	RunQueued:           {RunRunning, RunFailed, RunCancelled},
	RunRunning:          {RunQueued, RunAwaitingApproval, RunCompleted, RunFailed, RunCancelled},
	RunAwaitingApproval: {RunQueued, RunFailed, RunCancelled},
}

// Terminal reports whether a run in this state never changes again.
func (s RunStatus) Terminal() bool { return len(runTransitions[s]) == 0 }

// CanBecome reports whether a run may move from s to next.
func (s RunStatus) CanBecome(next RunStatus) bool { return slices.Contains(runTransitions[s], next) }

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

// Terminal reports whether a connector run in this state never changes again.
func (s ConnectorRunStatus) Terminal() bool {
	return s != ConnectorRunPending && s != ConnectorRunRunning
}

// ConnectorRunOutcome returns the state of an event's connector run from the counts of its open,
// failed and completed agent runs. It is running until the last run ends, then failed if any
// failed, completed if any completed, and cancelled if all were cancelled.
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

// TriggerType is the trigger of a connector run.
type TriggerType string

// Trigger types.
const (
	TriggerWebhook  TriggerType = "webhook"
	TriggerCron     TriggerType = "cron"
	TriggerOutbound TriggerType = "outbound"
)

// TriggerTypes are all trigger types.
var TriggerTypes = []TriggerType{TriggerWebhook, TriggerCron, TriggerOutbound}

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

var deploymentTransitions = map[DeploymentStatus][]DeploymentStatus{
	DeploymentPending:  {DeploymentBuilding, DeploymentFailed, DeploymentCancelled},
	DeploymentBuilding: {DeploymentDeployed, DeploymentFailed, DeploymentCancelled},
}

// Terminal reports whether a deployment in this state has an outcome.
func (s DeploymentStatus) Terminal() bool { return len(deploymentTransitions[s]) == 0 }

// CanBecome reports whether a deployment may move from s to next.
func (s DeploymentStatus) CanBecome(next DeploymentStatus) bool {
	return slices.Contains(deploymentTransitions[s], next)
}

// DeploymentPhase is the phase of a building deployment; empty otherwise.
type DeploymentPhase string

// Phases of a building deployment, in order.
const (
	PhaseFetching   DeploymentPhase = "fetching"
	PhasePacking    DeploymentPhase = "packing"
	PhaseTesting    DeploymentPhase = "testing"
	PhaseConnecting DeploymentPhase = "connecting"
)

// FailureReason is the reason of a failed deployment; empty otherwise.
type FailureReason string

// Reasons of failed deployments.
const (
	FailureBuild         FailureReason = "build_failed"
	FailureTests         FailureReason = "tests_failed"
	FailureModelProvider FailureReason = "model_provider_missing"
	FailureConnectors    FailureReason = "connectors_failed"
	FailureDeadline      FailureReason = "deadline_exceeded"
	// FailureStoreRestored: the outcome was lost when an older store was restored.
	FailureStoreRestored FailureReason = "store_restored"
)

// MaxOpen is how long a run may be open, so that no row stays in the hot tables forever.
const MaxOpen = 30 * 24 * time.Hour

// Retention is the default retention of history, MinRetention the minimum.
const (
	Retention    = 90 * 24 * time.Hour
	MinRetention = 2 * 24 * time.Hour
)

// OpenFor returns how long a run or delivery may be open with this retention: MaxOpen, or a day
// less than the retention. So open runs are never as old as deleted history.
func OpenFor(retention time.Duration) time.Duration { return min(MaxOpen, retention-24*time.Hour) }

// MaxLosses is how often a run may lose its runner. A run that crashes every runner must end.
const MaxLosses = 20
