// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Guardrail outcomes, as runs record them.
const (
	GuardrailWarned   = "warned"
	GuardrailBlocked  = "blocked"
	GuardrailRedacted = "redacted"
)

// DurationError is by how much a quantile of durations may be off: by one part in a hundred.
const DurationError = 0.01

// StatisticsQuery selects runs of an agent of an environment.
type StatisticsQuery struct {
	Environment Key
	AgentName   string
	// Since and Until bound when they were queued, to the millisecond: not before Since, and
	// before Until. A zero time bounds nothing.
	Since, Until time.Time
	// DeploymentID narrows to those that this deployment executes, unless it is the zero id.
	DeploymentID uuid.UUID
	// Statuses, Outcomes of guardrails and TestNames narrow to those with one of them, where
	// there are any; BaseRuns among the names to those that no variant executes.
	Statuses  []RunStatus
	Outcomes  []string
	TestNames []string
	// BaseOnly leaves out those that a variant executes.
	BaseOnly bool
	// Search narrows to those that it matches; nil to none.
	Search *Search
}

// RunStatistics are the numbers of runs.
type RunStatistics struct {
	// Runs are how many, by status.
	Runs map[RunStatus]int64
	// AverageDuration and P95Duration are of those that have started and ended, nil without
	// any; the latter within DurationError.
	AverageDuration, P95Duration *time.Duration
	// Usage is of those that have ended.
	Usage TokenUsage
	// Calls are those of models that these have made, by model, day and currency.
	Calls []Calls
}

// Total is how many runs there are.
func (s RunStatistics) Total() (n int64) {
	for _, runs := range s.Runs {
		n += runs
	}
	return n
}

// ConnectorStatisticsQuery selects runs of a connector.
type ConnectorStatisticsQuery struct {
	Connector Key
	// Since and Until bound when they started, as those of StatisticsQuery.
	Since, Until time.Time
	// Statuses narrow to those with one of them, and Trigger narrows, when not empty.
	Statuses []ConnectorRunStatus
	Trigger  TriggerType
}

// ConnectorStatistics are the numbers of runs of a connector.
type ConnectorStatistics struct {
	// Runs are how many, by status.
	Runs map[ConnectorRunStatus]int64
	// AverageDuration is of those that have completed or failed, nil without any.
	AverageDuration *time.Duration
	// Last is the status of the newest, "" without any.
	Last ConnectorRunStatus
}

// Total is how many runs there are.
func (s ConnectorStatistics) Total() (n int64) {
	for _, runs := range s.Runs {
		n += runs
	}
	return n
}

// Statistics tells numbers of runs. What it costs does not grow with how many have ended: whole
// hours, days and months are counted once, when their runs have ended.
type Statistics interface {
	// RunStatistics counts runs, exactly, as of one moment, unless more than MaxWaiting of the project
	// wait to be rolled up: older ones are missing until they are. With a search each run counts as of when it is
	// looked at. ErrSearchTooBroad where that would be more than MaxCandidates, or take longer
	// than the search may; ErrSearchBusy where it has waited for others for most of that.
	RunStatistics(ctx context.Context, q StatisticsQuery) (RunStatistics, error)
	// ConnectorStatistics counts runs of a connector, likewise.
	ConnectorStatistics(ctx context.Context, q ConnectorStatisticsQuery) (ConnectorStatistics, error)
}
