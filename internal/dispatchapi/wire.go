// SPDX-License-Identifier: Apache-2.0

package dispatchapi

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// ClaimRequest asks for runs to execute.
type ClaimRequest struct {
	// RunnerID names this process: what is leased is leased to it, and one that was
	// started anew has another.
	RunnerID string `json:"runner_id"`
	// Digests are the bundles held.
	Digests Digests `json:"digests"`
	// Refused are bundles that this runner cannot open: no run of theirs is handed
	// to it.
	Refused Digests `json:"refused,omitempty"`
	// Places is the most runs at a time, Limit the most wanted now; with Limit 0 the
	// request only reports, hears what is lost and asks what to prefetch.
	Places int `json:"places"`
	Limit  int `json:"limit"`
	// Holding are the claims that the runner works on. What is leased to it beyond
	// these was lost on its way, and is handed to it again with the same token.
	Holding Leases `json:"holding,omitempty"`
	// WaitSeconds is how long to wait for something to say, 0 to 30.
	WaitSeconds int `json:"wait_seconds"`
	// Draining says that the runner takes no more runs: what is leased to it beyond
	// Holding is given back at once.
	Draining bool `json:"draining,omitempty"`
	// Unanswered says that the answer to the request before did not come: it may have
	// handed out runs, of which another replica knows nothing.
	Unanswered bool `json:"unanswered,omitempty"`
}

// ClaimResponse holds the runs that this runner may execute now.
type ClaimResponse struct {
	Runs []Run `json:"runs"`
	// Lost are those of Holding that are no longer current, for the run was
	// cancelled or is another's.
	Lost []Lease `json:"lost"`
	// Prefetch are bundles to fetch now, because they are about to go live.
	Prefetch []string `json:"prefetch"`
}

// Run is a claimed run.
type Run struct {
	ID    uuid.UUID `json:"id"`
	Token int64     `json:"token"`
	// LeaseSeconds, from the answer's arrival, is short: a heartbeat confirms the
	// claim and prolongs it.
	LeaseSeconds float64 `json:"lease_seconds"`
	AgentName    string  `json:"agent_name"`
	// TestName is the A/B variant that executed it in an attempt before, which goes on.
	TestName     string    `json:"test_name,omitempty"`
	DeploymentID uuid.UUID `json:"deployment_id"`
	BundleDigest string    `json:"bundle_digest"`
	ConnectorID  uuid.UUID `json:"connector_id"`
	// ContentType says how Input is to be read.
	ContentType string `json:"content_type"`
	// Input is the raw input; when InputElsewhere is set it is to be fetched.
	Input          []byte `json:"input,omitempty"`
	InputElsewhere bool   `json:"input_elsewhere,omitempty"`
	// Files says that the input has attachments, which are to be fetched.
	Files bool `json:"files,omitempty"`
	// Headers are those of its event's request that the run sees, by their names in lower
	// case.
	Headers map[string]string `json:"headers,omitempty"`
	// Actions are the tools by which the agent sends to outbound connectors, at most
	// MaxActions.
	Actions  []Action  `json:"actions,omitempty"`
	Attempt  int       `json:"attempt"`
	QueuedAt time.Time `json:"queued_at"`
	// StartedAt is when the first attempt began, Now when this claim was made, both by
	// the database's clock: the run's age does not depend on the runner's.
	StartedAt time.Time `json:"started_at"`
	Now       time.Time `json:"now"`
	// Journal is what earlier attempts recorded; a long one is to be fetched when
	// JournalElsewhere is set.
	Journal          []JournalEntry `json:"journal,omitempty"`
	JournalElsewhere bool           `json:"journal_elsewhere,omitempty"`
}

// Action is a tool by which an agent sends to an outbound connector. Where that sends, and
// how, is nothing that a runner knows.
type Action struct {
	// Name is the tool's, of at most 64 letters, digits, underscores and dashes.
	Name string `json:"name"`
	// Connector is the connector's name.
	Connector string `json:"connector"`
}

// Modes of what a run sends.
const (
	SendByTool       = "agent_tool"
	SendByMiddleware = "middleware"
)

// SendRequest sends a payload to an outbound connector.
type SendRequest struct {
	Token int64 `json:"token"`
	// Mode is one of the constants above. By a tool Name is the action's, by middleware
	// the connector's.
	Mode string `json:"mode"`
	Name string `json:"name"`
	// Position is the sequence of the journal entry that announced it: from one position
	// a run sends once, however often it is asked.
	Position int64 `json:"position"`
	// Payload, of at most MaxPayload bytes, is delivered as it is.
	Payload json.RawMessage `json:"payload"`
}

// Statuses of what was sent.
const (
	// SendQueued: it is on its way. SendSkipped: it is not, for a reason.
	SendQueued  = "queued"
	SendSkipped = "skipped"
)

// SendResponse says what became of a payload.
type SendResponse struct {
	// DeliveryID is the connector run of the delivery.
	DeliveryID uuid.UUID `json:"delivery_id"`
	Status     string    `json:"status"`
	Reason     string    `json:"reason,omitempty"`
}

// Files are the attachments of a run's input. Their numbers are those of Files.
type Files struct {
	Files  []File      `json:"files"`
	Issues []FileIssue `json:"issues"`
}

// File is an attachment that was accepted, and that agents are given.
type File struct {
	// Name is the original file name, FieldName that of the field in which it came.
	Name      string `json:"name"`
	FieldName string `json:"field_name"`
	MIMEType  string `json:"mime_type"`
	// Size is in bytes.
	Size int64 `json:"size"`
}

// FileIssue is an attachment that was omitted, or whose content was.
type FileIssue struct {
	Name      string `json:"name"`
	FieldName string `json:"field_name"`
	Reason    string `json:"reason"`
}

// Lease names one claim.
type Lease struct {
	RunID uuid.UUID `json:"run_id"`
	Token int64     `json:"token"`
}

// Held is a claim that the runner works on, and what it says of the run.
type Held struct {
	Lease
	// TestName is the A/B variant that executes the run: empty of the agent itself, and while
	// none is chosen.
	TestName string `json:"test_name,omitempty"`
}

// HeartbeatRequest renews claims.
type HeartbeatRequest struct {
	Leases HeldLeases `json:"leases"`
}

// HeartbeatResponse names the claims that are lost; all others hold for
// LeaseSeconds from now.
type HeartbeatResponse struct {
	Lost         []Lease `json:"lost"`
	LeaseSeconds float64 `json:"lease_seconds"`
}

// Kinds of journal entries.
const (
	JournalModelAnswer = "model_answer"
	JournalToolStarted = "tool_started"
	JournalToolResult  = "tool_result"
	// JournalModelFailure is an answer that was of no use: it is asked again, or fails the run.
	JournalModelFailure = "model_failure"
)

// JournalEntry is one entry of a run's journal.
type JournalEntry struct {
	// Sequence counts from 1 without gaps.
	Sequence int64 `json:"sequence"`
	// Kind is one of the constants above.
	Kind string          `json:"kind"`
	Data json.RawMessage `json:"data"`
	// Unsafe marks a tool_started whose tool is not declared idempotent, and the
	// tool_result that ends it: with such a tool in flight a lost run fails
	// (tool_interrupted) and is not resumed.
	Unsafe bool `json:"unsafe,omitempty"`
	// Usage is what a model_answer or a model_failure cost; nil of other kinds.
	Usage *ModelUsage `json:"usage,omitempty"`
}

// Size is how many bytes of MaxJournal the entry takes.
func (e JournalEntry) Size() int {
	size := EntryOverhead + len(e.Kind) + len(e.Data)
	if e.Usage != nil {
		size += len(e.Usage.Model)
	}
	return size
}

// ModelUsage is what one call of a model cost.
type ModelUsage struct {
	// Model is its reference, provider/model.
	Model string `json:"model"`
	TokenUsage
	// Cost is nil where no price of the model is known.
	Cost *Cost `json:"cost,omitempty"`
}

// Cost is an amount of money, in billionths of a currency.
type Cost struct {
	Currency string `json:"currency"`
	Nanos    int64  `json:"nanos"`
}

// DayCost is what calls of models cost on a day.
type DayCost struct {
	// Day is the day of the calls in UTC, in days since 1970.
	Day int64 `json:"day"`
	// Calls is how many they were; Currency is empty, and Nanos 0, of those whose price is not
	// known.
	Calls    int64  `json:"calls"`
	Currency string `json:"currency"`
	Nanos    int64  `json:"nanos"`
}

// JournalRequest appends entries.
type JournalRequest struct {
	Token   int64   `json:"token"`
	Entries Entries `json:"entries"`
}

// Statuses with which a run ends.
const (
	StatusCompleted = "completed"
	StatusFailed    = "failed"
	StatusCancelled = "cancelled"
)

// TokenUsage counts model tokens.
type TokenUsage struct {
	InputTokens       int64 `json:"input_tokens"`
	OutputTokens      int64 `json:"output_tokens"`
	ThinkingTokens    int64 `json:"thinking_tokens"`
	CachedInputTokens int64 `json:"cached_input_tokens"`
	TotalTokens       int64 `json:"total_tokens"`
}

// CompleteRequest ends a run.
type CompleteRequest struct {
	Token int64 `json:"token"`
	// TestName is the A/B variant that executed the run; empty of the agent itself.
	TestName string `json:"test_name,omitempty"`
	Status   string `json:"status"`
	// ErrorCode and Error are set when the run failed; a code has at most 64
	// lower-case letters, digits and underscores.
	ErrorCode string     `json:"error_code,omitempty"`
	Error     string     `json:"error,omitempty"`
	Output    string     `json:"output"`
	Usage     TokenUsage `json:"usage"`
	// Journal are trailing entries that were not appended yet.
	Journal Entries `json:"journal,omitempty"`
}

// ReleaseRequest gives a claim back.
type ReleaseRequest struct {
	Token int64 `json:"token"`
	// DelaySeconds, 0 to 60, is how long the run is handed to nobody.
	DelaySeconds int `json:"delay_seconds,omitempty"`
}

// BuildReport tells how far a build is; empty fields change nothing.
type BuildReport struct {
	// Phase is fetching, packing or testing.
	Phase string `json:"phase,omitempty"`
	// Branch is the branch or tag that was fetched; "" if the server does not name its default branch.
	Branch        string `json:"branch,omitempty"`
	Commit        string `json:"commit,omitempty"`
	CommitMessage string `json:"commit_message,omitempty"`
	Author        string `json:"author,omitempty"`
}

// BuildLog is a chunk of a build's log, numbered from 0.
type BuildLog struct {
	Number int64  `json:"number"`
	Chunk  string `json:"chunk"`
}

// Reasons for which a build fails.
const (
	FailureBuild = "build_failed"
	FailureTests = "tests_failed"
)

// BuildResult ends a build: BundleDigest, Agents and Connectors when it succeeded,
// FailureReason and Message when not; BundleDigest also when its tests failed.
type BuildResult struct {
	BundleDigest string     `json:"bundle_digest,omitempty"`
	Agents       Agents     `json:"agents,omitempty"`
	Connectors   Connectors `json:"connectors,omitempty"`
	// TestResults are by agent and name; nil where no tests were run.
	TestResults   Tests  `json:"test_results,omitempty"`
	FailureReason string `json:"failure_reason,omitempty"`
	Message       string `json:"message,omitempty"`
}

// TestResult is what became of a test case.
type TestResult struct {
	AgentName        string  `json:"agent_name"`
	TestName         string  `json:"test_name"`
	Passed           bool    `json:"passed"`
	Successes        int     `json:"successes"`
	Runs             int     `json:"runs"`
	SuccessThreshold float64 `json:"success_threshold"`
	// FailureReason is nil of a case that passed.
	FailureReason *string `json:"failure_reason"`
	// DurationMS and TokenUsage are of all its runs together.
	DurationMS int64      `json:"duration_ms"`
	TokenUsage TokenUsage `json:"token_usage"`
	// Costs are of all its runs together, by day and currency.
	Costs DayCosts `json:"costs,omitempty"`
}

// ConnectorFile is a file of connectors/: its stem, and its YAML.
type ConnectorFile struct {
	Key     string `json:"key"`
	Content string `json:"content"`
}

// Agent is an agent of a bundle.
type Agent struct {
	Name              string `json:"name"`
	Description       string `json:"description,omitempty"`
	Type              string `json:"type"`
	SourcePath        string `json:"source_path"`
	VariantOf         string `json:"variant_of,omitempty"`
	TestName          string `json:"test_name,omitempty"`
	MaxConcurrentRuns int    `json:"max_concurrent_runs,omitempty"`
	// ConcurrencyKey is the expression of its runs' key, "" without one; with
	// ConcurrencyDrop a run whose key another one has is cancelled.
	ConcurrencyKey  string          `json:"concurrency_key,omitempty"`
	ConcurrencyDrop bool            `json:"concurrency_drop,omitempty"`
	Config          json.RawMessage `json:"config,omitempty"`
}
