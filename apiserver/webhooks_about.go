// SPDX-License-Identifier: Apache-2.0

package apiserver

// Texts of the description of webhooks.
const (
	aboutWebhooks = "What a connector's webhook takes and answers, and what an outbound connector sends. " +
		"Connectors are managed by the REST API, which shows their URL and their secret. " +
		"Fields and values are added without notice: a client must put up with what it does not know."
	aboutGetWebhook  = "Each parameter of the query but secret is a text of the agents' input; repeated ones are a list. A body is not read. " + aboutSync
	aboutPostWebhook = "The body is the agents' input. Parameters of the query are no input. " + aboutSync
	aboutSync        = "A sync webhook answers when its agents have finished, and with status 200 also where they failed; with Accept: text/event-stream it answers at once, with a stream of events. " +
		"2xx means that the event is stored."
	aboutPush = "The push webhook of a project, for GitHub, GitLab, Gitea, Forgejo, or a hook of a Git server. It has no secret: a call can ask for nothing " +
		"but a look at the branches that the project's environments follow, and of a project one is asked for at a time. Which event it is, the header of the provider says; a request without any is a push."
	aboutResult         = "The result of a run of a linked agent."
	aboutPayload        = "What an agent sends by a tool while it runs: the body is the JSON that it has made."
	aboutDeliveryFailed = "Word of a delivery of another outbound connector of the environment that has failed, for links whose statuses have delivery_failed: of a connector once a minute at most, with how many have failed since."
	aboutTest           = "An example, which somebody has sent to see whether the destination takes deliveries: no agent has run. Whoever receives it answers 2xx and does nothing."
	aboutOutgoing       = "It is sent to the URL of an outbound connector at least once. Beside these headers it has those of the connector."
)

// aboutWebhookSchemas say what the objects are.
var aboutWebhookSchemas = map[string]string{ //nolint:gosec // TokenUsage is no credential
	"Accepted":       "Which runs an event has started.",
	"Envelope":       "What a run has ended with.",
	"FailedDelivery": "A delivery that has failed.",
	"FieldError":     "A field that is wrong.",
	"FileIssue":      "An attachment that was omitted.",
	"Handshake":      "The answer to a handshake.",
	"Problem":        "What is wrong (RFC 9457).",
	"Progress":       "Where a run stands.",
	"Pushed":         "What becomes of a call of a push webhook.",
	"Result":         "How a run has ended.",
	"Results":        "What came of an event.",
	"TestEnvelope":   "What a test delivery carries: the envelope of a run that there never was.",
	"TokenUsage":     "Model tokens that a run spent.",
}

// aboutWebhookProblems say when an event is answered with a status.
var aboutWebhookProblems = map[int]string{
	400: "The connector takes no requests, or the body, the query or the key cannot be read.",
	401: "The secret, the token or the signature is missing, wrong or old.",
	404: "No webhook has this URL.",
	405: "Another method than GET and POST, or than POST where requests are signed.",
	408: "The body did not come in time.",
	409: "The connector is disabled or retired, its environment was deleted, or it is a sync one and no agent is linked or no deployment is live.",
	413: "The request is larger than 16 MiB.",
	415: "The body is compressed, or of another type.",
	422: "The Idempotency-Key was used for another body, or the request has come by too many deliveries.",
	429: "The project has as much under way, waiting or stored as it may.",
	503: "It is not known that the event is stored: send it again, with the same Idempotency-Key if it had one.",
	504: "The event is stored and its run goes on: the agent has not finished in time, or the gateway stops. Do not send the event again without its key.",
}

// aboutPushProblems say when the call of a push webhook is answered with a status.
var aboutPushProblems = map[int]string{
	400: "The body could not be read whole.",
	404: "No project has this URL.",
	405: "Another method than POST.",
	408: "The body did not come in time.",
	413: "The request is larger than 16 MiB.",
	503: "It is not known that the look is asked for: send it again.",
}
