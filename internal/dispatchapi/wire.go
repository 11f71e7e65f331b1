// SPDX-License-Identifier: Apache-2.0

package dispatchapi

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
)

// ClaimRequest requests runs.
type ClaimRequest struct {
	// RunnerID identifies this process. Leases belong to it, and a restarted process has another
	// ID.
	RunnerID string `json:"runner_id"`
	// Digests are the cached bundles.
	Digests Digests `json:"digests"`
	// Refused are bundles that this runner cannot open. It gets no runs of them.
	Refused Digests `json:"refused,omitempty"`
	// Slots is the maximum number of parallel runs, Limit the number of wanted runs. With Limit 0
	// the request only reports, and its response has lost claims and prefetches. The JSON name of
	// Slots is that of earlier releases, which run at the same time during an upgrade.
	Slots int `json:"places"`
	Limit int `json:"limit"`
	// Holding are the runner's current claims. Other leases of the runner were lost on their way
	// and are sent again with the same token.
	Holding Leases `json:"holding,omitempty"`
	// WaitSeconds is how long to wait for a response, 0 to 30.
	WaitSeconds int `json:"wait_seconds"`
	// Draining is true if the runner claims no more runs. Its leases outside Holding are released
	// immediately.
	Draining bool `json:"draining,omitempty"`
	// Unanswered is true if the previous request got no response. It may have claimed runs that
	// another replica does not know.
	Unanswered bool `json:"unanswered,omitempty"`
	// Drift has the comparisons of pinned MCP tools. The gateway records them. The same comparison can be sent again.
	Drift DriftReports `json:"drift,omitempty"`
}

// DriftReport is a comparison of the tools that a deployment pins for an agent with the tools that their MCP server lists.
type DriftReport struct {
	DeploymentID uuid.UUID `json:"deployment_id"`
	Agent        string    `json:"agent"`
	Server       string    `json:"server"`
	// Tools are the pinned tools that the server has changed or removed, at most MaxDriftTools, each with at most MaxDriftTool
	// bytes. It is empty if there are none.
	Tools DriftTools `json:"tools,omitempty"`
}

// ClaimResponse contains the claimed runs.
type ClaimResponse struct {
	Runs []Run `json:"runs"`
	// Lost are claims of Holding that are no longer current, because the run was cancelled or
	// another runner has it.
	Lost []Lease `json:"lost"`
	// Prefetch are bundles to fetch now, because they are about to go live.
	Prefetch []string `json:"prefetch"`
}

// Run is a claimed run.
type Run struct {
	ID    uuid.UUID `json:"id"`
	Token int64     `json:"token"`
	// LeaseSeconds, from the arrival of the response, is short. A heartbeat confirms the claim and
	// extends the lease.
	LeaseSeconds float64 `json:"lease_seconds"`
	AgentName    string  `json:"agent_name"`
	// TestName is the A/B variant of earlier attempts, which the run keeps.
	TestName     string    `json:"test_name,omitempty"`
	DeploymentID uuid.UUID `json:"deployment_id"`
	BundleDigest string    `json:"bundle_digest"`
	ConnectorID  uuid.UUID `json:"connector_id"`
	// ContentType is the type of Input.
	ContentType string `json:"content_type"`
	// Input is the raw input. If InputElsewhere is set, the runner fetches it.
	Input          []byte `json:"input,omitempty"`
	InputElsewhere bool   `json:"input_elsewhere,omitempty"`
	// Files is true if the input has attachments, which the runner fetches.
	Files bool `json:"files,omitempty"`
	// Headers are the request headers of its event that the run sees, with names in lower case.
	Headers map[string]string `json:"headers,omitempty"`
	// Traceparent is the W3C traceparent of its event; "" without one.
	Traceparent string `json:"traceparent,omitempty"`
	// Actions are the agent's tools that send to outbound connectors, at most MaxActions.
	Actions  []Action  `json:"actions,omitempty"`
	Attempt  int       `json:"attempt"`
	QueuedAt time.Time `json:"queued_at"`
	// StartedAt is the beginning of the first attempt, Now the time of this claim, both by the
	// database's clock. So the run's age does not depend on the runner's clock.
	StartedAt time.Time `json:"started_at"`
	Now       time.Time `json:"now"`
	// Journal contains the entries of earlier attempts. If JournalElsewhere is set, the runner
	// fetches it.
	Journal          []JournalEntry `json:"journal,omitempty"`
	JournalElsewhere bool           `json:"journal_elsewhere,omitempty"`
}

// Action is a tool that sends to an outbound connector. The runner does not know the connector's
// configuration.
type Action struct {
	// Name is the tool's name, of at most 64 letters, digits, underscores and dashes.
	Name string `json:"name"`
	// Connector is the connector's name.
	Connector string `json:"connector"`
}

// Modes of a payload.
const (
	SendByTool       = "agent_tool"
	SendByMiddleware = "middleware"
)

// SendRequest sends a payload to an outbound connector.
type SendRequest struct {
	Token int64 `json:"token"`
	// Mode is one of the constants above. Name is the action of a tool, or the connector of
	// middleware.
	Mode string `json:"mode"`
	Name string `json:"name"`
	// Position is the sequence of the journal entry that announced the payload. Each position sends
	// once, regardless of retries.
	Position int64 `json:"position"`
	// Payload, of at most MaxPayload bytes, is delivered unchanged.
	Payload json.RawMessage `json:"payload"`
}

// Statuses of a payload.
const (
	// SendQueued: the delivery is queued. SendSkipped: nothing is sent, for a reason.
	SendQueued  = "queued"
	SendSkipped = "skipped"
)

// SendResponse is the outcome of a payload.
type SendResponse struct {
	// DeliveryID is the connector run of the delivery.
	DeliveryID uuid.UUID `json:"delivery_id"`
	Status     string    `json:"status"`
	Reason     string    `json:"reason,omitempty"`
}

// Files are the attachments of a run's input. Their numbers are indexes of Files.
type Files struct {
	Files  []File      `json:"files"`
	Issues []FileIssue `json:"issues"`
}

// File is an accepted attachment that agents get.
type File struct {
	// Name is the original file name, FieldName the name of its field.
	Name      string `json:"name"`
	FieldName string `json:"field_name"`
	MIMEType  string `json:"mime_type"`
	// Size is in bytes.
	Size int64 `json:"size"`
}

// FileIssue is an omitted attachment, or one whose content was omitted.
type FileIssue struct {
	Name      string `json:"name"`
	FieldName string `json:"field_name"`
	Reason    string `json:"reason"`
}

// Lease identifies a claim.
type Lease struct {
	RunID uuid.UUID `json:"run_id"`
	Token int64     `json:"token"`
}

// Held is a current claim of the runner with its report about the run.
type Held struct {
	Lease
	// TestName is the A/B variant that executes the run, or empty for the agent itself and before
	// the choice.
	TestName string `json:"test_name,omitempty"`
}

// HeartbeatRequest renews claims.
type HeartbeatRequest struct {
	Leases HeldLeases `json:"leases"`
}

// HeartbeatResponse names the lost claims. All others have a lease of LeaseSeconds from now.
type HeartbeatResponse struct {
	Lost         []Lease `json:"lost"`
	LeaseSeconds float64 `json:"lease_seconds"`
}

// Kinds of journal entries.
const (
	JournalModelAnswer = "model_answer"
	JournalToolStarted = "tool_started"
	JournalToolResult  = "tool_result"
	// JournalModelFailure is an unusable answer. It is requested again, or fails the run.
	JournalModelFailure = "model_failure"
	// JournalStep is a script or check that ended. It does not run again.
	JournalStep = "step"
	// JournalWait is the end of an attempt whose run waits. The platform appends JournalResumed or
	// JournalExpired when the wait ends.
	JournalWait = "wait"
	// JournalFile is a file that the run saved, with a SavedFile in its data. Only SaveRequest has it.
	JournalFile    = "file"
	JournalResumed = "resumed"
	JournalExpired = "expired"
)

// JournalEntry is one entry of a run's journal.
type JournalEntry struct {
	// Sequence counts from 1 without gaps.
	Sequence int64 `json:"sequence"`
	// Kind is one of the constants above.
	Kind string          `json:"kind"`
	Data json.RawMessage `json:"data"`
	// Unsafe marks a tool_started of a tool that is not idempotent, and its tool_result. With such
	// a tool in progress a lost run fails (tool_interrupted) and is not resumed.
	Unsafe bool `json:"unsafe,omitempty"`
	// Usage is the usage of a model_answer or a model_failure; nil for other kinds.
	Usage *ModelUsage `json:"usage,omitempty"`
}

// Size returns the bytes of MaxJournal that the entry uses.
func (e JournalEntry) Size() int {
	size := EntryOverhead + len(e.Kind) + len(e.Data)
	if e.Usage != nil {
		size += len(e.Usage.Model)
	}
	return size
}

// ModelUsage is the usage of one model call.
type ModelUsage struct {
	// Model is the reference, provider/model.
	Model string `json:"model"`
	TokenUsage
	// Cost is nil without a known price.
	Cost *Cost `json:"cost,omitempty"`
}

// Cost is an amount of money, in billionths of a currency.
type Cost struct {
	Currency string `json:"currency"`
	Nanos    int64  `json:"nanos"`
}

// DayCost is the cost of model calls on a day.
type DayCost struct {
	// Day is the day of the calls in UTC, in days since 1970.
	Day int64 `json:"day"`
	// Calls is the number of calls. Currency is empty and Nanos 0 for calls without a known price.
	Calls    int64  `json:"calls"`
	Currency string `json:"currency"`
	Nanos    int64  `json:"nanos"`
}

// JournalRequest appends entries.
type JournalRequest struct {
	Token   int64   `json:"token"`
	Entries Entries `json:"entries"`
}

// SaveRequest appends entries, one of them of the kind JournalFile, with the bytes of the file.
type SaveRequest = JournalRequest

// SavedFile is a file that a run saved: in the data of its journal entry.
type SavedFile struct {
	// ID is unique in the run, with lower-case letters and digits.
	ID       string `json:"id"`
	Name     string `json:"name"`
	MIMEType string `json:"mime_type"`
	Size     int64  `json:"size"`
	// SHA256 has hexadecimal digits.
	SHA256 string `json:"sha256"`
}

// AppendRequest appends to the journals of several runs, each under its own claim.
type AppendRequest struct {
	Appends Appends `json:"appends"`
}

// RunAppend is the append of a run.
type RunAppend struct {
	RunID uuid.UUID `json:"run_id"`
	JournalRequest
}

// AppendResponse has the result of each append, in the order of the request.
type AppendResponse struct {
	Results []AppendResult `json:"results"`
}

// AppendResult has the status and the detail that a request with the append alone gets.
type AppendResult struct {
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

// Final statuses of a run.
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
	// TestName is the A/B variant that executed the run, or empty for the agent itself.
	TestName string `json:"test_name,omitempty"`
	Status   string `json:"status"`
	// ErrorCode and Error are set for a failed run. A code has at most 64 lower-case letters,
	// digits and underscores.
	ErrorCode runerror.Code `json:"error_code,omitempty"`
	Error     string        `json:"error,omitempty"`
	Output    string        `json:"output"`
	// FinishReason is the reason for the end of the last model answer, a word in the form of a code; "" without one.
	FinishReason string     `json:"finish_reason,omitempty"`
	Usage        TokenUsage `json:"usage"`
	// Context is what scripts set in the run's context: a JSON object of at most MaxContext bytes, or nil.
	Context json.RawMessage `json:"context,omitempty"`
	// Unpublished is true if no outbound link sends the result.
	Unpublished bool `json:"unpublished,omitempty"`
	// Journal are trailing entries that were not appended yet.
	Journal Entries `json:"journal,omitempty"`
}

// ReleaseRequest releases a claim.
type ReleaseRequest struct {
	Token int64 `json:"token"`
	// DelaySeconds, 0 to 60, is how long the run cannot be claimed.
	DelaySeconds int `json:"delay_seconds,omitempty"`
}

// BuildReport reports the progress of a build. Empty fields change nothing.
type BuildReport struct {
	// Phase is fetching, packing or testing.
	Phase string `json:"phase,omitempty"`
	// Branch is the fetched branch or tag; "" if the server does not name its default branch.
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

// Reasons for failed builds.
const (
	FailureBuild = "build_failed"
	FailureTests = "tests_failed"
)

// BuildResult ends a build. A successful build has BundleDigest, Agents and Connectors, a failed
// one FailureReason and Message. A build with failed tests also has BundleDigest.
type BuildResult struct {
	BundleDigest string     `json:"bundle_digest,omitempty"`
	Agents       Agents     `json:"agents,omitempty"`
	Connectors   Connectors `json:"connectors,omitempty"`
	// TestResults are sorted by agent and name; nil without tests.
	TestResults   Tests  `json:"test_results,omitempty"`
	FailureReason string `json:"failure_reason,omitempty"`
	Message       string `json:"message,omitempty"`
}

// TestResult is the result of a test case.
type TestResult struct {
	AgentName        string  `json:"agent_name"`
	TestName         string  `json:"test_name"`
	Passed           bool    `json:"passed"`
	Successes        int     `json:"successes"`
	Runs             int     `json:"runs"`
	SuccessThreshold float64 `json:"success_threshold"`
	// FailureReason is nil for a case that passed.
	FailureReason *string `json:"failure_reason"`
	// DurationMS and TokenUsage are totals of all its runs.
	DurationMS int64      `json:"duration_ms"`
	TokenUsage TokenUsage `json:"token_usage"`
	// Costs are totals of all its runs by day and currency.
	Costs DayCosts `json:"costs,omitempty"`
}

// ConnectorFile is a file of connectors/: its stem and its YAML.
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
	// Models are the different models that its keys name, as provider/model.
	Models Models `json:"models,omitempty"`
	// ConcurrencyKey is the expression for the key of its runs, or "". With ConcurrencyDrop a run
	// is cancelled if another run has its key.
	ConcurrencyKey  string `json:"concurrency_key,omitempty"`
	ConcurrencyDrop bool   `json:"concurrency_drop,omitempty"`
	// SendsByMiddleware is true if middleware of its runs may send to outbound connectors.
	SendsByMiddleware bool            `json:"sends_by_middleware,omitempty"`
	Config            json.RawMessage `json:"config,omitempty"`
}
