// SPDX-License-Identifier: Apache-2.0

// Package webhookapi is what webhooks look like from outside: the answers to those that come in,
// and the bodies of those that go out. The gateway writes them, the REST facade describes them.
package webhookapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// Path is that of a connector's webhook, below the gateway's public URL.
const Path = "/hooks/{project_id}/{connector_id}"

// PushPath is that of a project's push webhook, which Git providers call.
const PushPath = "/git/{project_id}"

// What becomes of the call of a push webhook.
const (
	PushAccepted = "accepted"
	PushIgnored  = "ignored"
)

// Pushed is the answer to a push webhook.
type Pushed struct {
	Status string `json:"status" enum:"accepted,ignored" doc:"accepted: the branches that the project's environments follow are looked at soon, where any do; ignored: the event is no push."`
}

// Accepted is the answer to an inbound webhook, and the first event of a stream.
type Accepted struct {
	Status       string      `json:"status" doc:"ok." example:"ok"`
	DispatchedTo int         `json:"dispatched_to" doc:"How many runs were started, one for each linked agent."`
	RunIDs       []uuid.UUID `json:"run_ids" format:"uuid" nullable:"false" doc:"The runs, oldest link first."`
	*Files
}

// Files say what became of the attachments of a request that had some; without, they are left out.
type Files struct {
	Accepted int         `json:"accepted" required:"false" doc:"How many attachments were accepted and are stored; left out of the answer to a request without any, as the next two are."`
	Omitted  int         `json:"omitted" required:"false" doc:"How many were not."`
	Issues   []FileIssue `json:"issues" required:"false" nullable:"false" doc:"Those that were not, and, for the reason review_budget, those that were accepted and whose content agents are not given."`
}

// FileIssue is an attachment that was omitted, or whose content was.
type FileIssue struct {
	Name      string `json:"name" doc:"Its file name."`
	FieldName string `json:"field_name" doc:"The field in which it came."`
	Reason    string `json:"reason" doc:"Why it was omitted." example:"unsupported_type"`
}

// Results are the answer to a sync webhook, and the event result of a stream. The gateway writes
// them piece by piece.
type Results struct {
	Status string `json:"status" doc:"ok, or the status of a run that has not completed: failed or cancelled." example:"ok"`
	*Files
	Result  Result   `json:"result" doc:"The result of the oldest link's run."`
	Results []Result `json:"results" nullable:"false" doc:"Those of all runs, oldest link first."`
}

// Result is how a run has ended.
type Result struct {
	RunID     uuid.UUID `json:"run_id" format:"uuid" doc:"The run."`
	AgentName string    `json:"agent_name" doc:"The agent that ran; empty of a run that is gone." example:"support"`
	Status    string    `json:"status" doc:"completed, failed or cancelled; gone of a run that was erased, or is not kept any more, where others of its event are." example:"completed"`
	Output    string    `json:"output" doc:"What the agent answered."`
	Error     *string   `json:"error" doc:"Why it failed, or that it is gone, for people; else null."`
	ErrorCode *string   `json:"error_code" doc:"Why it failed, for programs; else null." example:"agent_not_found"`
}

// ResultGone is the status of a result of which nothing is known any more.
const ResultGone = "gone"

// Handshake is the answer to a provider that asks whether a webhook is the connector's.
type Handshake struct {
	Challenge string `json:"challenge" doc:"What the provider has sent."`
}

// Progress is the data of the event progress of a stream.
type Progress struct {
	RunID  uuid.UUID `json:"run_id" format:"uuid" doc:"The run."`
	Status string    `json:"status" doc:"Where it stands." example:"queued"`
}

// Envelope is the body of an automatic delivery: what a run has ended with.
type Envelope struct {
	RunID      uuid.UUID  `json:"run_id" format:"uuid" doc:"The run."`
	AgentName  string     `json:"agent_name" doc:"The agent that ran." example:"support"`
	Status     string     `json:"status" doc:"completed, failed or cancelled." example:"completed"`
	Output     string     `json:"output" doc:"What the agent answered."`
	Error      *string    `json:"error" doc:"Why it failed; else null."`
	StartedAt  *time.Time `json:"started_at" doc:"When a runner first took it; null where none did."`
	EndedAt    *time.Time `json:"ended_at" doc:"When its status became final."`
	TokenUsage TokenUsage `json:"token_usage" doc:"Model tokens that it spent."`
}

// TestEnvelope is the body of a test delivery: the envelope of a run that there never was.
type TestEnvelope struct {
	Type string `json:"type" doc:"test: no agent has run." example:"test"`
	Envelope
}

// Example is the body of a test that is asked for at a time.
func Example(at time.Time) TestEnvelope {
	at = at.UTC().Truncate(time.Millisecond)
	return TestEnvelope{Type: "test", Envelope: Envelope{
		AgentName: "example", Status: "completed", Output: "This is a test delivery: no agent has run.", StartedAt: &at, EndedAt: &at,
	}}
}

// ReplayedHeader is true with an answer to a repetition of an earlier request, which has
// started nothing: the name that Stripe has for it.
const ReplayedHeader = "Idempotent-Replayed"

// HopsHeader is how many deliveries of platforms a request has come by, itself among them.
const HopsHeader = "X-Service-Hops"

// maxToldHops is what a request may say at most that it has come by.
const maxToldHops = 1000

// Hops reads HopsHeader: what is no number from 0 to 1000 is 0.
func Hops(header http.Header) int {
	n, err := strconv.ParseUint(header.Get(HopsHeader), 10, 16)
	if err != nil || n > maxToldHops {
		return 0
	}
	return int(n)
}

// TokenUsage counts model tokens.
type TokenUsage struct {
	InputTokens       int64 `json:"input_tokens" doc:"What the models read."`
	OutputTokens      int64 `json:"output_tokens" doc:"What they wrote."`
	ThinkingTokens    int64 `json:"thinking_tokens" doc:"What they thought before."`
	CachedInputTokens int64 `json:"cached_input_tokens" doc:"What of the input was read from a cache."`
	TotalTokens       int64 `json:"total_tokens" doc:"All of them."`
}

// Problems are the codes of the answers to webhooks that are no success, by their HTTP status.
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

// PushProblems are the codes of the answers to push webhooks that are no success, by their HTTP
// status.
var PushProblems = map[int][]httpserver.Code{
	400: {httpserver.CodeBodyUnreadable},
	404: {httpserver.CodeWebhookNotFound},
	405: {httpserver.CodeMethodNotAllowed},
	408: {httpserver.CodeTimeout},
	413: {httpserver.CodeRequestTooLarge},
	503: {httpserver.CodeStoreUnavailable, httpserver.CodeBusy, httpserver.CodeTooManyUnknown},
}
