// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/google/uuid"
)

// Times of leases.
const (
	// LeaseDuration is how long a claim on a run holds without a heartbeat.
	LeaseDuration = 30 * time.Second
	// HeartbeatInterval is how often a runner renews its claims.
	HeartbeatInterval = 10 * time.Second
)

// TokenUsage counts model tokens.
type TokenUsage struct {
	InputTokens       int64 `json:"input_tokens"`
	OutputTokens      int64 `json:"output_tokens"`
	ThinkingTokens    int64 `json:"thinking_tokens"`
	CachedInputTokens int64 `json:"cached_input_tokens"`
	TotalTokens       int64 `json:"total_tokens"`
}

// Run is an agent run.
type Run struct {
	ID             uuid.UUID
	ProjectID      uuid.UUID
	EnvironmentID  uuid.UUID
	AgentName      string
	ConnectorID    *uuid.UUID
	ConnectorRunID *uuid.UUID
	LinkID         *uuid.UUID
	// DeploymentID is the deployment that executes the run: the live one at its
	// first start, nil before.
	DeploymentID *uuid.UUID
	Status       RunStatus
	// ErrorCode and Error say why a run failed.
	ErrorCode RunErrorCode
	Error     string
	Output    string
	// Attempt counts the claims.
	Attempt   int
	Usage     TokenUsage
	QueuedAt  time.Time
	StartedAt *time.Time
	EndedAt   *time.Time
}

// Key is the run's primary key.
func (r Run) Key() Key { return Key{r.ProjectID, r.ID} }

// ConnectorRun is an event that a connector received, or a delivery it made.
type ConnectorRun struct {
	ID            uuid.UUID
	ProjectID     uuid.UUID
	EnvironmentID uuid.UUID
	ConnectorID   uuid.UUID
	Status        ConnectorRunStatus
	Trigger       TriggerType
	RunIDs        []uuid.UUID // in the order of the links, oldest first
	Error         string
	ContentType   string
	StartedAt     time.Time
	EndedAt       *time.Time
}

// Key is the connector run's primary key.
func (r ConnectorRun) Key() Key { return Key{r.ProjectID, r.ID} }

// Claim takes queued runs of an environment for a runner.
type Claim struct {
	Environment Key
	// RunnerID names the runner process for people.
	RunnerID string
	// Digests are the bundles that the runner holds, recorded for prefetching.
	Digests []string
	// Limit is the most runs to take; 0 only records the runner.
	Limit int
	// Lease is how long the claims hold.
	Lease time.Duration
}

// Claimed is a run that a runner may execute.
type Claimed struct {
	Run Run
	// Token is the fencing token that everything about this claim must carry.
	Token int64
	// LeaseUntil is when the claim ends without a heartbeat, by the database's clock.
	LeaseUntil time.Time
	// BundleDigest is the bundle of Run.DeploymentID.
	BundleDigest string
	// Input is the raw input; nil when it is at InputBlob.
	Input       []byte
	InputBlob   *uuid.UUID
	ContentType string
	// Journal is what earlier attempts recorded, in order.
	Journal []JournalEntry
}

// Lease names one claim.
type Lease struct {
	Run   Key
	Token int64
}

// JournalKind says what a journal entry records.
type JournalKind string

// Kinds of journal entries. Data is JSON of the runner's own.
const (
	JournalModelAnswer JournalKind = "model_answer"
	JournalToolStarted JournalKind = "tool_started"
	JournalToolResult  JournalKind = "tool_result"
)

// JournalEntry is one entry of a run's append-only journal.
type JournalEntry struct {
	// Sequence counts from 1 without gaps.
	Sequence int64           `json:"sequence"`
	Kind     JournalKind     `json:"kind"`
	Data     json.RawMessage `json:"data"`
	// Unsafe marks a tool_started whose tool is not declared idempotent, and the
	// tool_result that ends it: a run with such a tool in flight is not resumed.
	Unsafe bool `json:"unsafe,omitempty"`
}

// Completion ends a run.
type Completion struct {
	Lease
	// Status is completed, failed or cancelled.
	Status    RunStatus
	ErrorCode RunErrorCode
	Error     string
	Output    string
	Usage     TokenUsage
	// Journal are trailing entries, appended in the same transaction.
	Journal []JournalEntry
}

// Dispatch hands runs to runners. Methods that take a Lease answer ErrFenced
// when another claim came in between or the run ended otherwise.
type Dispatch interface {
	// Claim moves queued runs to running, oldest first. Runs of agents that the
	// live deployment lacks fail with agent_not_found and are not returned. With
	// no live deployment it returns none.
	Claim(ctx context.Context, c Claim) ([]Claimed, error)
	// Heartbeat renews claims by lease and returns those that are no longer
	// current. A late one with the current token revives its claim.
	Heartbeat(ctx context.Context, leases []Lease, lease time.Duration) (lost []Lease, err error)
	// AppendJournal appends entries in order. Repeating entries under the same
	// token is no error. ErrTooLarge and ErrInvalid as CheckJournal says.
	AppendJournal(ctx context.Context, l Lease, entries []JournalEntry) error
	// Complete ends the run and, with the last run of its connector run, that
	// too. Repeating it under the same token is no error. What is beyond a limit
	// is recorded as Completion.Bounded says.
	Complete(ctx context.Context, c Completion) error
	// Release gives a claim back: the run is queued again and resumes from its
	// journal, or fails with tool_interrupted when an unsafe tool is in flight.
	Release(ctx context.Context, l Lease) error
}

// Swept counts the runs that a sweep of leases moved.
type Swept struct {
	// GivenBack and Failed are those whose claim expired, Cancelled those of
	// environments that are gone.
	GivenBack, Failed, Cancelled int
}

// Runs are all of them.
func (s Swept) Runs() int { return s.GivenBack + s.Failed + s.Cancelled }

// Housekeeping is what the gateway's workers do from time to time.
type Housekeeping interface {
	// SweepLeases ends claims that expired, as Release does, at most limit of
	// them, and cancels queued runs of environments that are gone. It returns what
	// it did, also with an error.
	SweepLeases(ctx context.Context, limit int) (Swept, error)
	// SweepExpired deletes idempotency keys and blobs whose time is over, and
	// runners not seen for an hour.
	SweepExpired(ctx context.Context, limit int) (int, error)
}

// Outcome is the state of a connector run with its agent runs' results, which
// a sync webhook waits for.
type Outcome struct {
	Status ConnectorRunStatus
	// Runs are in the order of the links, oldest first.
	Runs []Run
}

// Terminal says that all runs ended.
func (o Outcome) Terminal() bool {
	return o.Status != ConnectorRunRunning && o.Status != ConnectorRunPending
}

// History reads what happened.
type History interface {
	// Outcome returns a connector run's state and results; ErrNotFound.
	Outcome(ctx context.Context, connectorRun Key) (Outcome, error)
	Run(ctx context.Context, key Key) (Run, error)
	// RunInput opens the raw input of a run.
	RunInput(ctx context.Context, key Key) (contentType string, body io.ReadCloser, err error)
	// Journal returns the entries of a run in order.
	Journal(ctx context.Context, run Key) ([]JournalEntry, error)
	// ListRuns returns runs without their output.
	ListRuns(ctx context.Context, q RunQuery) ([]Run, error)
	ConnectorRun(ctx context.Context, key Key) (ConnectorRun, error)
	// ListConnectorRuns returns a page, newest first, and the number of all that match.
	ListConnectorRuns(ctx context.Context, q ConnectorRunQuery) ([]ConnectorRun, int64, error)
}

// RunQuery selects runs of a project, newest first.
type RunQuery struct {
	ProjectID uuid.UUID
	// EnvironmentIDs narrows to these; nil means all.
	EnvironmentIDs []uuid.UUID
	// AgentName and Status narrow when not empty.
	AgentName string
	Status    RunStatus
	// Before is the id of the last run of the page before, or nil.
	Before *uuid.UUID
	Limit  int
}

// ConnectorRunQuery selects runs of one connector.
type ConnectorRunQuery struct {
	Connector Key
	// Since is how far back to look; 0 means all.
	Since time.Duration
	// Status and Trigger narrow when not empty.
	Status  ConnectorRunStatus
	Trigger TriggerType
	Limit   int
	Offset  int
}
