// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
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
	// TestName is the A/B variant that executes the run, as reported by its runner; "" for the
	// agent itself.
	TestName string
	Status   RunStatus
	// ErrorCode and Error explain why a run failed.
	ErrorCode runerror.Code
	Error     string
	Output    string
	// FinishReason is the reason for the end of the last model answer, as reported by the runner of an ended run; "" without one.
	FinishReason string
	// Context is what scripts set in the context of an ended run; nil if they set nothing.
	Context json.RawMessage
	Class   Class
	// Attempt counts the claims.
	Attempt   int
	Usage     TokenUsage
	QueuedAt  time.Time
	StartedAt *time.Time
	EndedAt   *time.Time
}

// Key returns the primary key of the run.
func (r Run) Key() Key { return Key{r.ProjectID, r.ID} }

// ConnectorRun is an event that a connector received, or a delivery that it made.
type ConnectorRun struct {
	ID            uuid.UUID
	ProjectID     uuid.UUID
	EnvironmentID uuid.UUID
	ConnectorID   uuid.UUID
	Status        ConnectorRunStatus
	Trigger       TriggerType
	RunIDs        []uuid.UUID // in the order of the links, oldest first; the delivered run of a delivery; none for a DeliverTest
	// Kind is the kind of a delivery; "" otherwise.
	Kind DeliveryKind
	// Hops is the number of platform deliveries up to and including this delivery; 0 if it was
	// skipped or is not a delivery.
	Hops int
	// ReplayOf is the connector run that this one replays; nil for an original.
	ReplayOf    *uuid.UUID
	Error       string
	ContentType string
	StartedAt   time.Time
	EndedAt     *time.Time
}

// Key returns the primary key of the connector run.
func (r ConnectorRun) Key() Key { return Key{r.ProjectID, r.ID} }

// JournalKind is the kind of a journal entry.
type JournalKind string

// Kinds of journal entries. The runner defines the JSON in Data.
const (
	JournalModelAnswer JournalKind = "model_answer"
	JournalToolStarted JournalKind = "tool_started"
	JournalToolResult  JournalKind = "tool_result"
	// JournalModelFailure is an unusable model response.
	JournalModelFailure JournalKind = "model_failure"
	// JournalFile is a file that the run saved. Only SavedFiles.SaveFile writes it.
	JournalFile JournalKind = "file"
	// JournalResumed is written by the platform when a suspended run continues. Its data is the
	// result that the run waited for. JournalExpired is written if the result did not arrive in
	// time.
	JournalResumed JournalKind = "resumed"
	JournalExpired JournalKind = "expired"
)

// JournalEntry is one entry of a run's append-only journal.
type JournalEntry struct {
	// Sequence counts from 1 without gaps.
	Sequence int64           `json:"sequence"`
	Kind     JournalKind     `json:"kind"`
	Data     json.RawMessage `json:"data"`
	// Unsafe marks a tool_started whose tool is not declared idempotent, and the matching
	// tool_result. A run with such a tool in flight is not resumed.
	Unsafe bool `json:"unsafe,omitempty"`
	// Usage is the usage of a model_answer or model_failure; nil for other kinds. It is written but
	// not read with the entry.
	Usage *ModelUsage `json:"-"`
	// At is the time of the append, by the database's clock. It is read but not written with the entry.
	At time.Time `json:"-"`
}

// Size returns the bytes that the entry counts towards MaxJournal.
func (e JournalEntry) Size() int64 {
	size := EntryOverhead + len(e.Kind) + len(e.Data)
	if e.Usage != nil {
		size += len(e.Usage.Model)
	}
	return int64(size)
}

// ModelUsage is the usage of one model call.
type ModelUsage struct {
	// Model is the model reference, provider/model.
	Model string
	TokenUsage
	// Cost is zero if the price of the model is unknown.
	Cost Cost
}

// Completion ends a run.
type Completion struct {
	Lease
	// TestName is the A/B variant that executed the run; "" for the agent itself, and if none was
	// chosen.
	TestName string
	// Status is completed, failed or cancelled.
	Status    RunStatus
	ErrorCode runerror.Code
	Error     string
	Output    string
	// FinishReason is the reason for the end of the last model answer, in the form of a code; "" without one.
	FinishReason string
	Usage        TokenUsage
	// Context is what scripts set in the run's context: a JSON object of at most MaxContext bytes, or nil.
	Context json.RawMessage
	// Unpublished is true if no outbound link sends the result.
	Unpublished bool
	// Journal are trailing entries, appended in the same transaction.
	Journal []JournalEntry
}

// Suspension makes a run wait for an external result without a slot.
type Suspension struct {
	Lease
	// For is the maximum waiting time. After it, the run continues with a JournalExpired.
	For time.Duration
	// Journal are trailing entries, appended in the same transaction.
	Journal []JournalEntry
}

// JournalAppend has entries that continue the journal of a claimed run.
type JournalAppend struct {
	Lease   Lease
	Entries []JournalEntry
}

// Dispatch assigns runs to runners. Methods that take a Lease return ErrFenced if another claim
// came in between or the run has ended otherwise.
type Dispatch interface {
	// Claim moves queued runs of an environment to running, as Pick chooses. Runs of agents that
	// are missing in the live deployment fail with agent_not_found and are not returned. Without a
	// live deployment it returns none.
	Claim(ctx context.Context, c Claim) (ClaimResult, error)
	// Heartbeat renews claims on runs of an environment by lease. It returns the claims that are
	// not current or belong to other runs. A late heartbeat with the current token revives its
	// claim, also after a sweep if no other claim came since. The run has then not lost its runner.
	// The first report about a run is recorded.
	Heartbeat(ctx context.Context, environment Key, held []Held, lease time.Duration) (lost []Lease, err error)
	// CheckClaim returns the error of AppendJournal for a claim that is not current. It locks nothing.
	CheckClaim(ctx context.Context, l Lease) error
	// AppendJournal appends entries in order. Repeated entries with the same token and kind are no error.
	// It returns ErrConflict for other repeated entries and for a gap, ErrTooLarge and ErrInvalid as
	// CheckJournal documents, and ErrTooLarge above MaxJournal.
	AppendJournal(ctx context.Context, l Lease, entries []JournalEntry) error
	// AppendJournals does the work of AppendJournal for several runs. Ordinary appends share a statement. It returns a result for
	// each, in order. An append that fails does not affect the others.
	AppendJournals(ctx context.Context, appends []JournalAppend) []error
	// Complete ends runs, and each connector run with its last run. Ordinary completions share a
	// transaction. It returns a result for each, in order. A completion that fails does not affect
	// the others. A repetition with the same token is no error. A completion above a limit is
	// recorded as Completion.Bounded documents. If Complete itself returns an error, the outcome of
	// all is unknown.
	Complete(ctx context.Context, completions []Completion) ([]error, error)
	// Release returns a run to the queue, claimable after the delay. The run resumes from its
	// journal. If an unsafe tool is in flight, it fails with tool_interrupted.
	Release(ctx context.Context, l Lease, delay time.Duration) error
	// Reclaim releases the leases of a runner of an environment that the runner does not hold, and
	// returns their number. Its slots leave the pool.
	Reclaim(ctx context.Context, environment Key, runnerID string, holding []Lease) (int, error)
	// Attend records waiting runners as present. It returns the runners whose environments have
	// queued runs.
	Attend(ctx context.Context, runners []RunnerKey) (queued []Key, err error)
	// Suspend ends the claim of a run that waits for an external result.
	Suspend(ctx context.Context, s Suspension) error
	// Resume queues a suspended run again, with data as the last journal entry; ErrConflict if the
	// run is not suspended.
	Resume(ctx context.Context, run Key, data json.RawMessage) error
	// Cancel ends an open run, whichever runner has it; ErrConflict if it has ended.
	Cancel(ctx context.Context, run Key, code runerror.Code, reason string) error
}

// Swept counts the runs that a sweep of leases changed.
type Swept struct {
	// GivenBack and Failed are runs with an expired claim. Resumed are suspended runs that timed
	// out. Cancelled are runs of deleted environments.
	GivenBack, Failed, Resumed, Cancelled int
}

// Runs returns the total.
func (s Swept) Runs() int { return s.GivenBack + s.Failed + s.Resumed + s.Cancelled }

// Plus returns the sum with another sweep.
func (s Swept) Plus(more Swept) Swept {
	return Swept{s.GivenBack + more.GivenBack, s.Failed + more.Failed, s.Resumed + more.Resumed, s.Cancelled + more.Cancelled}
}

// Dropped counts the deleted history.
type Dropped struct {
	// Count is the number of deleted rows, partitions and file pages, or slightly more.
	Count int
	// Freed is the number of bytes in deleted files, such as dropped partitions. If the file system
	// discards their blocks at once, commits wait for that.
	Freed int64
}

// OldestDays are the starts of the first days with history, zero without any.
type OldestDays struct {
	// Deletable is the first day that DropHistory deletes once it is old enough.
	Deletable time.Time
	// Open is the first day that is kept as a whole because of an open run, connector run or
	// delivery. A store without partitions keeps no whole days.
	Open time.Time
}

// Trimmed is the deleted history of one project.
type Trimmed struct {
	// Count is the number of deleted rows, or slightly more.
	Count int
	// Overdue is how long the oldest day of the project was overdue before.
	Overdue time.Duration
}

// Housekeeping is the periodic work of gateways.
type Housekeeping interface {
	// Now returns the store's clock, which decides the expiry of leases.
	Now(ctx context.Context) (time.Time, error)
	// SweepLeases ends at most limit expired claims, as Release does, and cancels queued runs of
	// deleted environments. It returns the counts also with an error. With a *SetAsideError, the
	// failing runs are skipped for some calls and block no others.
	SweepLeases(ctx context.Context, limit int) (Swept, error)
	// SweepExpired deletes expired idempotency keys, bundles and blobs, and runners that were not
	// seen for an hour, in the same way. It also counts bundles whose expiry it extends.
	SweepExpired(ctx context.Context, limit int) (int, error)
	// ExpireRuns ends at most limit runs that were accepted longer than age ago, in any state, as
	// failed with runerror.Expired. It returns their number also with an error, like SweepLeases.
	ExpireRuns(ctx context.Context, age time.Duration, limit int) (int, error)
	// ExpireDeliveries ends deliveries that were created longer than age ago and have no attempt in
	// progress, as failed with DeliveryExpired, in the same way.
	ExpireDeliveries(ctx context.Context, age time.Duration, limit int) (int, error)
	// CountStored adds the bytes of ended runs to the stored bytes of their projects. It consumes
	// at most limit outbox rows and returns their number, also with an error.
	CountStored(ctx context.Context, limit int) (int, error)
	// RollUp adds ended runs and connector runs to the rollups. It consumes at most limit outbox
	// rows and returns their number.
	RollUp(ctx context.Context, limit int) (int, error)
	// IndexRuns adds the words of ended runs to the search index. It consumes at most limit outbox
	// rows and returns their number.
	IndexRuns(ctx context.Context, limit int, words func(Searched) []string) (int, error)
	// DropHistory deletes history older than age, by whole UTC days of the store's clock. It
	// deletes about limit rows, partitions or file pages per call, and fewer partitions if they are
	// large. It returns the deleted amount, zero when nothing is left. A blob is deleted at most
	// MaxOpen and some days after the row that names it, and never before. A run whose result is
	// still to be delivered stays while a delivery may be open.
	DropHistory(ctx context.Context, age time.Duration, limit int) (Dropped, error)
	// TrimHistory deletes history of projects with a shorter retention, by whole days in the same
	// way. It deletes about limit rows of the next project, round robin, in small transactions. The
	// count is 0 when nothing is left that no other gateway deletes. These rows can no longer be read
	// and do not count as stored.
	TrimHistory(ctx context.Context, limit int) (Trimmed, error)
	// ProjectHistoryOverdue returns how long the oldest day for TrimHistory is overdue; 0 without
	// any.
	ProjectHistoryOverdue(ctx context.Context) (time.Duration, error)
	// OldestHistory returns the first days with history.
	OldestHistory(ctx context.Context) (OldestDays, error)
	// Replan makes an engine that plans statements once plan again if tables have grown a lot
	// since.
	Replan(ctx context.Context) error
	// EnsurePartitions creates the partitions of history from today to so many days ahead. It
	// returns the number of prepared days from today. An engine without partitions returns all.
	EnsurePartitions(ctx context.Context, ahead int) (int, error)
}

// Outcome is the state of a connector run with the results of its agent runs, for a waiting sync
// webhook.
type Outcome struct {
	Status ConnectorRunStatus
	// Runs are in the order of the links, oldest first.
	Runs []Run
}

// Terminal reports whether all runs have ended.
func (o Outcome) Terminal() bool {
	return o.Status.Terminal()
}

// History reads runs and connector runs.
type History interface {
	// Outcome returns the state and results of a connector run; ErrNotFound.
	Outcome(ctx context.Context, connectorRun Key) (Outcome, error)
	Run(ctx context.Context, key Key) (Run, error)
	// RunEnvironments returns the environments of runs of a project by the IDs of the runs, without missing runs.
	RunEnvironments(ctx context.Context, project uuid.UUID, runs []uuid.UUID) (map[uuid.UUID]uuid.UUID, error)
	// RunInput opens the raw input of a run.
	RunInput(ctx context.Context, key Key) (contentType string, body io.ReadCloser, err error)
	// RunHeaders returns the request headers that a run may see, by lower-case name; ErrNotFound
	// without the run.
	RunHeaders(ctx context.Context, run Key) (map[string]string, error)
	// Journal returns the entries of a run in order.
	Journal(ctx context.Context, run Key) ([]JournalEntry, error)
	// JournalAfter returns at most limit entries after one, with at most MaxJournalPage bytes of
	// data. It returns none only at the end. See LastJournalPage.
	JournalAfter(ctx context.Context, run Key, sequence int64, limit int) ([]JournalEntry, error)
	// ListRuns returns runs without output and without a context above MaxListedContext, and the ID
	// for the next page; nil at the end. It reads at most MaxCandidates runs, and takes no longer
	// than the search may, so a page may be short. It returns ErrSearchTooBroad or ErrSearchBusy if
	// it made no progress.
	ListRuns(ctx context.Context, q RunQuery) (runs []Run, next *uuid.UUID, err error)
	// Ended returns the given connector runs that have ended.
	Ended(ctx context.Context, connectorRuns []Key) ([]Key, error)
	// RunCalls returns the model calls of a run so far, by model, day and currency; none if there
	// is no such run.
	RunCalls(ctx context.Context, run Key) ([]Calls, error)
	ConnectorRun(ctx context.Context, key Key) (ConnectorRun, error)
	// ListConnectorRuns returns a page, newest first, and the total number of matches.
	ListConnectorRuns(ctx context.Context, q ConnectorRunQuery) ([]ConnectorRun, int64, error)
}

// MaxCandidates is the maximum number of runs that a list reads per page.
const MaxCandidates = 20_000

// MaxWaiting is the approximate maximum number of a project's ended runs without rollup or index
// entry that are read, newest first. Statistics omit the rest, and searches end there.
const MaxWaiting = 20_000

// BaseRuns is a variant name that selects the runs of the agent itself.
const BaseRuns = "__base__"

// RunQuery selects runs of a project, newest first.
type RunQuery struct {
	ProjectID uuid.UUID
	// EnvironmentIDs limits to these environments; nil means all.
	EnvironmentIDs []uuid.UUID
	// AgentName and TestName filter unless empty. BaseRuns as TestName selects runs without a
	// variant. Statuses filter unless empty.
	AgentName string
	Statuses  []RunStatus
	TestName  string
	// DeploymentID, ConnectorID and ConnectorRunID filter unless they are the zero ID.
	DeploymentID, ConnectorID, ConnectorRunID uuid.UUID
	// Since and Until limit the time of queueing, as in StatisticsQuery.
	Since, Until time.Time
	// Search limits to matching runs; nil does not filter.
	Search *Search
	// Before is the ID of the last run of the previous page, or nil.
	Before *uuid.UUID
	Limit  int
}

// ConnectorRunQuery selects connector runs of one connector.
type ConnectorRunQuery struct {
	Connector Key
	// Since limits the age; 0 means all.
	Since time.Duration
	// Statuses and Trigger filter unless empty.
	Statuses []ConnectorRunStatus
	Trigger  TriggerType
	// Run, if set, selects the connector run that started the run, and deliveries of it.
	Run    uuid.UUID
	Limit  int
	Offset int
}
