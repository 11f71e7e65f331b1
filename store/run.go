// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/google/uuid"
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
	// TestName is the A/B variant of the agent that executes it, as its runner says; "" of
	// the agent itself.
	TestName string
	Status   RunStatus
	// ErrorCode and Error say why a run failed.
	ErrorCode RunErrorCode
	Error     string
	Output    string
	Class     Class
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
	RunIDs        []uuid.UUID // in the order of the links, oldest first; the one that a delivery is of, none of a DeliverTest
	// Kind is what a delivery carries; "" of what is none.
	Kind DeliveryKind
	// Hops is by how many deliveries of platforms a delivery has come, itself among them; 0 of
	// one that was skipped, and of what is none.
	Hops int
	// ReplayOf is the connector run of which it is a replay, nil of an original.
	ReplayOf    *uuid.UUID
	Error       string
	ContentType string
	StartedAt   time.Time
	EndedAt     *time.Time
}

// Key is the connector run's primary key.
func (r ConnectorRun) Key() Key { return Key{r.ProjectID, r.ID} }

// JournalKind says what a journal entry records.
type JournalKind string

// Kinds of journal entries. Data is JSON of the runner's own.
const (
	JournalModelAnswer JournalKind = "model_answer"
	JournalToolStarted JournalKind = "tool_started"
	JournalToolResult  JournalKind = "tool_result"
	// JournalModelFailure is an answer that was of no use.
	JournalModelFailure JournalKind = "model_failure"
	// JournalResumed is written by the platform when a suspended run goes on; its
	// data is what the run waited for. JournalExpired is written when that did not
	// come in time.
	JournalResumed JournalKind = "resumed"
	JournalExpired JournalKind = "expired"
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
	// Usage is what a model_answer or a model_failure cost; nil of other kinds. It is written, never
	// read with the entry.
	Usage *ModelUsage `json:"-"`
}

// Size is how many bytes of MaxJournal the entry takes.
func (e JournalEntry) Size() int64 {
	size := EntryOverhead + len(e.Kind) + len(e.Data)
	if e.Usage != nil {
		size += len(e.Usage.Model)
	}
	return int64(size)
}

// ModelUsage is what one call of a model cost.
type ModelUsage struct {
	// Model is its reference, provider/model.
	Model string
	TokenUsage
	// Cost is the zero one where no price of the model is known.
	Cost Cost
}

// Completion ends a run.
type Completion struct {
	Lease
	// TestName is the A/B variant that executed the run; "" of the agent itself, and where
	// none was chosen.
	TestName string
	// Status is completed, failed or cancelled.
	Status    RunStatus
	ErrorCode RunErrorCode
	Error     string
	Output    string
	Usage     TokenUsage
	// Journal are trailing entries, appended in the same transaction.
	Journal []JournalEntry
}

// Suspension lets a run wait for something outside, which takes no place.
type Suspension struct {
	Lease
	// For is how long it waits at most; it then goes on with a JournalExpired.
	For time.Duration
	// Journal are trailing entries, appended in the same transaction.
	Journal []JournalEntry
}

// Dispatch hands runs to runners. Methods that take a Lease answer ErrFenced
// when another claim came in between or the run ended otherwise.
type Dispatch interface {
	// Claim moves queued runs of an environment to running, as Pick chooses. Runs
	// of agents that the live deployment lacks fail with agent_not_found and are not
	// returned. With no live deployment it returns none.
	Claim(ctx context.Context, c Claim) (ClaimResult, error)
	// Heartbeat renews claims on runs of an environment by lease and returns those that
	// are not current, or of other runs. A late one with the current token revives its
	// claim, also when it was swept and nobody has claimed the run since: then the run has
	// not lost its runner. What it says of the runs is recorded, the first time.
	Heartbeat(ctx context.Context, environment Key, held []Held, lease time.Duration) (lost []Lease, err error)
	// AppendJournal appends entries in order. Repeating entries under the same
	// token is no error. ErrTooLarge and ErrInvalid as CheckJournal says, ErrTooLarge
	// also beyond MaxJournal.
	AppendJournal(ctx context.Context, l Lease, entries []JournalEntry) error
	// Complete ends runs and, each with the last run of its connector run, these too.
	// Those that are as usual share a transaction. It answers each, in order; one that cannot be ended keeps
	// no other from it. Repeating it under the same token is no error. What is
	// beyond a limit is recorded as Completion.Bounded says. An error of the whole
	// means that the outcome of all is unknown.
	Complete(ctx context.Context, completions []Completion) ([]error, error)
	// Release gives a claim back: the run is queued again, claimable after the
	// delay, and resumes from its journal, or fails with tool_interrupted when an
	// unsafe tool is in flight.
	Release(ctx context.Context, l Lease, delay time.Duration) error
	// Reclaim gives back what is leased to a runner of an environment beyond what
	// it holds, and returns how many; its places are no longer of the pool.
	Reclaim(ctx context.Context, environment Key, runnerID string, holding []Lease) (int, error)
	// Attend says that runners which wait for runs are there, and returns those of
	// their environments in which runs are queued.
	Attend(ctx context.Context, runners []RunnerKey) (queued []Key, err error)
	// Suspend ends a claim of a run that waits for something outside.
	Suspend(ctx context.Context, s Suspension) error
	// Resume queues a suspended run again, its journal ended by data; ErrConflict
	// of one that is not suspended.
	Resume(ctx context.Context, run Key, data json.RawMessage) error
	// Cancel ends a run that is open, whoever works on it; ErrConflict of one that
	// has ended.
	Cancel(ctx context.Context, run Key, code RunErrorCode, reason string) error
}

// Swept counts the runs that a sweep of leases moved.
type Swept struct {
	// GivenBack and Failed are those whose claim expired, Resumed those that waited
	// too long, Cancelled those of environments that are gone.
	GivenBack, Failed, Resumed, Cancelled int
}

// Runs are all of them.
func (s Swept) Runs() int { return s.GivenBack + s.Failed + s.Resumed + s.Cancelled }

// Plus adds another sweep's.
func (s Swept) Plus(more Swept) Swept {
	return Swept{s.GivenBack + more.GivenBack, s.Failed + more.Failed, s.Resumed + more.Resumed, s.Cancelled + more.Cancelled}
}

// Dropped is what was deleted of history.
type Dropped struct {
	// Count is how many rows, partitions and pages of a file, or a few more.
	Count int
	// Freed is how many bytes of whole files were deleted, as a partition has them: where the file
	// system gives their blocks back to the disk at once, whoever commits waits for that.
	Freed int64
}

// Housekeeping is what the gateway's workers do from time to time.
type Housekeeping interface {
	// Now is the store's clock, by which leases expire.
	Now(ctx context.Context) (time.Time, error)
	// SweepLeases ends claims that expired, as Release does, at most limit of
	// them, and cancels queued runs of environments that are gone. It returns what
	// it did, also with an error: a run that cannot be moved is passed over for some
	// calls, which a *SetAsideError says, and holds no other up.
	SweepLeases(ctx context.Context, limit int) (Swept, error)
	// SweepExpired deletes idempotency keys, bundles and blobs whose time is over, and
	// runners not seen for an hour; likewise. Bundles whose time it moves on count too.
	SweepExpired(ctx context.Context, limit int) (int, error)
	// ExpireRuns ends runs that were accepted so long ago, whatever they wait for,
	// as failed with RunErrorExpired: at most limit of them. It returns how many, also
	// with an error: likewise.
	ExpireRuns(ctx context.Context, age time.Duration, limit int) (int, error)
	// ExpireDeliveries ends deliveries that were made so long ago and are not under way, as
	// failed with DeliveryExpired: likewise.
	ExpireDeliveries(ctx context.Context, age time.Duration, limit int) (int, error)
	// CountStored adds what ended runs have stored to what their projects have, by at
	// most limit rows of the outbox, and returns by how many.
	CountStored(ctx context.Context, limit int) (int, error)
	// RollUp adds ended runs and connector runs to the numbers that Statistics tells, by at most
	// limit rows of the outbox, and returns by how many.
	RollUp(ctx context.Context, limit int) (int, error)
	// IndexRuns adds ended runs to the index that searches ask, by their words: by at most limit
	// rows of the outbox, and returns by how many.
	IndexRuns(ctx context.Context, limit int, words func(Searched) []string) (int, error)
	// DropHistory deletes what is older than age of history, by whole days of the store's clock in
	// UTC: about limit rows, partitions or pages of a file at a time, of partitions fewer where they
	// are large, and returns what; nothing once nothing is left. A blob of history goes at most MaxOpen and some days after what named it, and
	// never before. A run whose result is to be delivered yet stays with that, as long as a delivery
	// may be open.
	DropHistory(ctx context.Context, age time.Duration, limit int) (Dropped, error)
	// TrimHistory deletes what projects keep no longer that keep history for a shorter time, by whole
	// days likewise: about limit rows of the most overdue of them, in small transactions, and returns how many;
	// 0 once nothing is left that no other gateway deletes. Nobody can read that any more, and it does not
	// count as stored.
	TrimHistory(ctx context.Context, limit int) (int, error)
	// ProjectHistoryOverdue is for how long the oldest day that TrimHistory would delete should have been
	// deleted; 0 without any.
	ProjectHistoryOverdue(ctx context.Context) (time.Duration, error)
	// OldestHistory is when the first day began of which there is history; zero without any.
	OldestHistory(ctx context.Context) (time.Time, error)
	// Replan lets an engine that plans statements once plan those anew whose tables have
	// grown much since.
	Replan(ctx context.Context) error
	// EnsurePartitions makes the partitions of history from today to so many days
	// ahead, and returns how many days are there from today on; an engine without
	// partitions has all it needs.
	EnsurePartitions(ctx context.Context, ahead int) (int, error)
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
	return o.Status.Terminal()
}

// History reads what happened.
type History interface {
	// Outcome returns a connector run's state and results; ErrNotFound.
	Outcome(ctx context.Context, connectorRun Key) (Outcome, error)
	Run(ctx context.Context, key Key) (Run, error)
	// RunInput opens the raw input of a run.
	RunInput(ctx context.Context, key Key) (contentType string, body io.ReadCloser, err error)
	// RunHeaders are the headers that a run sees of its event's request, by their names in
	// lower case; none without any, ErrNotFound without the run.
	RunHeaders(ctx context.Context, run Key) (map[string]string, error)
	// Journal returns the entries of a run in order.
	Journal(ctx context.Context, run Key) ([]JournalEntry, error)
	// JournalAfter returns at most limit entries that come after one, and no more than
	// have MaxJournalPage bytes of data; none only where none are left. See
	// LastJournalPage.
	JournalAfter(ctx context.Context, run Key, sequence int64, limit int) ([]JournalEntry, error)
	// ListRuns returns runs without their output, and the id to go on before; nil
	// at the end. It looks at MaxCandidates runs at most, and with a search no longer than that
	// may take, so a page may be short. ErrSearchTooBroad and ErrSearchBusy where it has come nowhere then.
	ListRuns(ctx context.Context, q RunQuery) (runs []Run, next *uuid.UUID, err error)
	// Ended returns those of these connector runs that are over.
	Ended(ctx context.Context, connectorRuns []Key) ([]Key, error)
	// RunCalls are the calls of models that a run has made so far, by model, day and currency;
	// none where there is no such run.
	RunCalls(ctx context.Context, run Key) ([]Calls, error)
	ConnectorRun(ctx context.Context, key Key) (ConnectorRun, error)
	// ListConnectorRuns returns a page, newest first, and the number of all that match.
	ListConnectorRuns(ctx context.Context, q ConnectorRunQuery) ([]ConnectorRun, int64, error)
}

// MaxCandidates is how many runs a list looks at for a page.
const MaxCandidates = 20_000

// MaxWaiting is about how many ended runs of a project are read that are not rolled up or indexed yet, the
// newest: statistics count no more of them, and searches end there.
const MaxWaiting = 20_000

// BaseRuns stands for the runs that the agent itself executes where A/B variants are named.
const BaseRuns = "__base__"

// RunQuery selects runs of a project, newest first.
type RunQuery struct {
	ProjectID uuid.UUID
	// EnvironmentIDs narrows to these; nil means all.
	EnvironmentIDs []uuid.UUID
	// AgentName and TestName narrow when not empty; BaseRuns as the TestName to those that no
	// variant executes. Statuses narrow to those with one of them, where there are any.
	AgentName string
	Statuses  []RunStatus
	TestName  string
	// DeploymentID, ConnectorID and ConnectorRunID narrow unless they are the zero id.
	DeploymentID, ConnectorID, ConnectorRunID uuid.UUID
	// Since and Until bound when they were queued, as those of StatisticsQuery.
	Since, Until time.Time
	// Search narrows to those that it matches; nil to none.
	Search *Search
	// Before is the id of the last run of the page before, or nil.
	Before *uuid.UUID
	Limit  int
}

// ConnectorRunQuery selects runs of one connector.
type ConnectorRunQuery struct {
	Connector Key
	// Since is how far back to look; 0 means all.
	Since time.Duration
	// Statuses narrow to those with one of them, and Trigger narrows, when not empty.
	Statuses []ConnectorRunStatus
	Trigger  TriggerType
	// Run narrows, when it is set, to what started that run, and to deliveries of it.
	Run    uuid.UUID
	Limit  int
	Offset int
}
