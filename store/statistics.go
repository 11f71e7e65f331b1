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

// DurationError is the maximum relative error of a duration quantile: one percent.
const DurationError = 0.01

// StatisticsQuery selects runs of an agent in an environment.
type StatisticsQuery struct {
	Environment Key
	AgentName   string
	// Since and Until limit the time of queueing, in milliseconds: not before Since, and before
	// Until. A zero time does not limit.
	Since, Until time.Time
	// DeploymentID limits to runs of this deployment, unless it is the zero ID.
	DeploymentID uuid.UUID
	// Statuses, Outcomes (of guardrails) and TestNames filter unless empty. BaseRuns in TestNames
	// selects runs without a variant.
	Statuses  []RunStatus
	Outcomes  []string
	TestNames []string
	// BaseOnly excludes runs of variants.
	BaseOnly bool
	// Search limits to matching runs; nil does not filter.
	Search *Search
}

// RunStatistics are the statistics of runs.
type RunStatistics struct {
	// Runs counts runs by status.
	Runs map[RunStatus]int64
	// AverageDuration and P95Duration cover runs that have started and ended, nil without any.
	// P95Duration is within DurationError.
	AverageDuration, P95Duration *time.Duration
	// Usage covers ended runs.
	Usage TokenUsage
	// Calls are the model calls of these runs, by model, day and currency.
	Calls []Calls
}

// Total returns the number of runs.
func (s RunStatistics) Total() (n int64) {
	for _, runs := range s.Runs {
		n += runs
	}
	return n
}

// ConnectorStatisticsQuery selects connector runs of a connector.
type ConnectorStatisticsQuery struct {
	Connector Key
	// Since and Until limit the start time, as in StatisticsQuery.
	Since, Until time.Time
	// Statuses and Trigger filter unless empty.
	Statuses []ConnectorRunStatus
	Trigger  TriggerType
}

// ConnectorStatistics are the statistics of a connector's runs.
type ConnectorStatistics struct {
	// Runs counts connector runs by status.
	Runs map[ConnectorRunStatus]int64
	// AverageDuration covers completed and failed connector runs, nil without any.
	AverageDuration *time.Duration
	// Last is the status of the newest connector run, "" without any.
	Last ConnectorRunStatus
}

// Total returns the number of connector runs.
func (s ConnectorStatistics) Total() (n int64) {
	for _, runs := range s.Runs {
		n += runs
	}
	return n
}

// Statistics counts runs. Its cost does not grow with the number of ended runs, because whole
// hours, days and months are rolled up.
type Statistics interface {
	// RunStatistics counts runs exactly, in one snapshot. If more than MaxWaiting runs of the
	// project wait for the rollup, older ones are missing. With a search, each run counts in the
	// state at its read. It returns ErrSearchTooBroad if that would exceed MaxCandidates runs or
	// the time of the search, and ErrSearchBusy if most of that time was spent waiting for other
	// searches.
	RunStatistics(ctx context.Context, q StatisticsQuery) (RunStatistics, error)
	// ConnectorStatistics counts connector runs of a connector, in the same way.
	ConnectorStatistics(ctx context.Context, q ConnectorStatisticsQuery) (ConnectorStatistics, error)
}
