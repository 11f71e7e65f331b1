// SPDX-License-Identifier: Apache-2.0

// Package webhookapi contains the public types of webhooks: the responses to inbound requests and
// the bodies of outbound ones. The gateway writes them, and the REST facade documents them.
package webhookapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// Path is the path of a connector's webhook below the gateway's public URL.
const Path = "/hooks/{project_id}/{connector_id}"

// PushPath is the path of a project's push webhook, which Git providers call.
const PushPath = "/git/{project_id}"

// Outcomes of a push webhook.
const (
	PushAccepted = "accepted"
	PushIgnored  = "ignored"
)

// Pushed is the response to a push webhook.
type Pushed struct {
	Status string `json:"status" enum:"accepted,ignored" doc:"accepted: the repository is polled soon, if an environment follows a branch; ignored: the event is not a push."`
}

// Accepted is the response to an inbound webhook, and the first event of a stream.
type Accepted struct {
	Status       string      `json:"status" doc:"ok." example:"ok"`
	DispatchedTo int         `json:"dispatched_to" doc:"Number of started runs, one for each linked agent."`
	RunIDs       []uuid.UUID `json:"run_ids" format:"uuid" nullable:"false" doc:"The runs, oldest link first."`
	*Files
}

// Files describe the attachments of a request. They are absent without attachments.
type Files struct {
	Accepted int         `json:"accepted" required:"false" doc:"Number of accepted and stored attachments. This and the next two fields are absent for a request without attachments."`
	Omitted  int         `json:"omitted" required:"false" doc:"Number of omitted attachments."`
	Issues   []FileIssue `json:"issues" required:"false" nullable:"false" doc:"Omitted attachments, and accepted ones that agents do not get (review_budget)."`
}

// FileIssue is an omitted attachment, or one whose content was omitted.
type FileIssue struct {
	Name      string `json:"name" doc:"The file name."`
	FieldName string `json:"field_name" doc:"The field of the attachment."`
	Reason    string `json:"reason" doc:"The reason." example:"unsupported_type"`
}

// Results are the response to a sync webhook, and the event result of a stream. The gateway writes
// them piece by piece.
type Results struct {
	Status string `json:"status" doc:"ok, or the status of a run that has not completed: failed or cancelled." example:"ok"`
	*Files
	Result  Result   `json:"result" doc:"The result of the oldest link's run."`
	Results []Result `json:"results" nullable:"false" doc:"The results of all runs, oldest link first."`
}

// Result is the outcome of a run.
type Result struct {
	RunID     uuid.UUID `json:"run_id" format:"uuid" doc:"The run."`
	AgentName string    `json:"agent_name" doc:"The agent of the run; empty for a run that is gone." example:"support"`
	Status    string    `json:"status" doc:"completed, failed or cancelled; gone if the run was erased or is no longer stored while others of its event are." example:"completed"`
	Output    string    `json:"output" doc:"The answer of the agent."`
	// FinishReason has the values of the REST API.
	FinishReason *string `json:"finish_reason" doc:"Why the last model answer of the run ended: stop, tool_calls, length (a limit of tokens cut it off), content_filter, or other; null without an answer, and if no runner reported the end." example:"stop"`
	Error        *string `json:"error" doc:"The cause of the failure, or that the run is gone, for people; otherwise null."`
	ErrorCode    *string `json:"error_code" doc:"The cause of the failure, for programs; otherwise null." example:"agent_not_found"`
}

// Optional returns a text of a result, nil for "".
func Optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// ResultGone is the status of a run that is no longer stored.
const ResultGone = "gone"

// Handshake is the response to a provider that checks the owner of a webhook.
type Handshake struct {
	Challenge string `json:"challenge" doc:"The value that the provider sent."`
}

// Progress is the data of the event progress of a stream.
type Progress struct {
	RunID  uuid.UUID `json:"run_id" format:"uuid" doc:"The run."`
	Status string    `json:"status" doc:"The status of the run." example:"queued"`
}

// Envelope is the body of an automatic delivery: the result of a run.
type Envelope struct {
	RunID     uuid.UUID `json:"run_id" format:"uuid" doc:"The run."`
	AgentName string    `json:"agent_name" doc:"The agent of the run." example:"support"`
	Status    string    `json:"status" doc:"completed, failed or cancelled." example:"completed"`
	Output    string    `json:"output" doc:"The answer of the agent."`
	// FinishReason has the values of the REST API.
	FinishReason *string    `json:"finish_reason" doc:"Why the last model answer of the run ended: stop, tool_calls, length (a limit of tokens cut it off), content_filter, or other; null without an answer, and if no runner reported the end." example:"stop"`
	Error        *string    `json:"error" doc:"The cause of the failure; otherwise null."`
	StartedAt    *time.Time `json:"started_at" doc:"Time of the first claim by a runner; null without one."`
	EndedAt      *time.Time `json:"ended_at" doc:"Time of the final status."`
	TokenUsage   TokenUsage `json:"token_usage" doc:"Model tokens of the run."`
}

// TestEnvelope is the body of a test delivery: the result of an imaginary run.
type TestEnvelope struct {
	Type string `json:"type" doc:"test: no agent has run." example:"test"`
	Envelope
}

// Example returns the body of a test at a time.
func Example(at time.Time) TestEnvelope {
	at = at.UTC().Truncate(time.Millisecond)
	return TestEnvelope{Type: "test", Envelope: Envelope{
		AgentName: "example", Status: "completed", Output: "This is a test delivery: no agent has run.", StartedAt: &at, EndedAt: &at,
	}}
}

// ReplayedHeader is true in the response to a duplicate request, which starts nothing. Stripe uses
// the same name.
const ReplayedHeader = "Idempotent-Replayed"

// HopsHeader is the number of deliveries in the chain of a request, including itself.
const HopsHeader = "X-Service-Hops"

// maxToldHops is the highest number that a request can send.
const maxToldHops = 1000

// Hops reads HopsHeader. A value that is not a number from 0 to 1000 counts as 0.
func Hops(header http.Header) int {
	n, err := strconv.ParseUint(header.Get(HopsHeader), 10, 16)
	if err != nil || n > maxToldHops {
		return 0
	}
	return int(n)
}

// TokenUsage counts model tokens.
type TokenUsage struct {
	InputTokens       int64 `json:"input_tokens" doc:"Input tokens."`
	OutputTokens      int64 `json:"output_tokens" doc:"Output tokens."`
	ThinkingTokens    int64 `json:"thinking_tokens" doc:"Thinking tokens."`
	CachedInputTokens int64 `json:"cached_input_tokens" doc:"Input tokens that came from a cache."`
	TotalTokens       int64 `json:"total_tokens" doc:"Total tokens."`
}

// Problems are the error codes of webhooks by HTTP status.
var Problems = map[int][]httpserver.Code{
	400: {
		httpserver.CodeOutboundOnly, httpserver.CodeNoWebhook, httpserver.CodeBodyUnreadable, httpserver.CodeInvalidJSON,
		httpserver.CodeInvalidForm, httpserver.CodeKeyTooLong, httpserver.CodeKeyInvalid,
	},
	401: {httpserver.CodeInvalidSecret, httpserver.CodeInvalidSignature},
	404: {httpserver.CodeWebhookNotFound},
	405: {httpserver.CodeMethodNotAllowed},
	408: {httpserver.CodeTimeout},
	409: {
		httpserver.CodeConnectorRetired, httpserver.CodeConnectorDisabled, httpserver.CodeEnvironmentGone, httpserver.CodeNoAgent, httpserver.CodeNoLiveDeployment,
		httpserver.CodeGone,
	},
	413: {httpserver.CodeRequestTooLarge},
	415: {httpserver.CodeUnsupportedMedia, httpserver.CodeUnsupportedEncoding},
	422: {httpserver.CodeKeyReused, httpserver.CodeTooManyHops},
	429: {
		httpserver.CodeTooManyLargeBodies, httpserver.CodeTooManyWaiting, httpserver.CodeTooManyCallers, httpserver.CodeBacklogFull,
		httpserver.CodeStorageFull, httpserver.CodeTooManyWrong, httpserver.CodeTooManyUnverified,
	},
	503: {
		httpserver.CodeStoreUnavailable, httpserver.CodeBusy, httpserver.CodeTooManyUnknown, httpserver.CodeKeyExpired, httpserver.CodeSecretChanged,
		httpserver.CodeKeyring,
	},
	504: {httpserver.CodeSyncTimeout, httpserver.CodeGatewayStopping},
}

// PushProblems are the error codes of push webhooks by HTTP status.
var PushProblems = map[int][]httpserver.Code{
	400: {httpserver.CodeBodyUnreadable},
	404: {httpserver.CodeWebhookNotFound},
	405: {httpserver.CodeMethodNotAllowed},
	408: {httpserver.CodeTimeout},
	413: {httpserver.CodeRequestTooLarge},
	503: {httpserver.CodeStoreUnavailable, httpserver.CodeBusy, httpserver.CodeTooManyUnknown},
}
