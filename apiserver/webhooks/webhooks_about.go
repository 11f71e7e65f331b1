// SPDX-License-Identifier: Apache-2.0

package webhooks

import "github.com/agentplatform/agentplatform/internal/runerror"

// Texts of the description of webhooks.
const (
	aboutWebhooks = "Requests to a connector's webhook and their responses, and the requests that an outbound connector sends. " +
		"The REST API manages connectors and shows their URL and secret. " +
		"Fields and values can be added at any time: a client must ignore unknown ones."
	aboutGetWebhook  = "Each query parameter except `secret` is a text in the agents' input. A repeated parameter is a list. The body is not read. " + aboutSync
	aboutPostWebhook = "The body is the agents' input. Query parameters are not part of the input. " + aboutSync
	aboutSync        = "A sync webhook responds when its agents have finished, with status 200 even if they failed. With `Accept: text/event-stream` " +
		"it responds at once with a stream of events. 2xx means that the event is stored."
	aboutPush = "The push webhook of a project, for GitHub, GitLab, Gitea, Forgejo, or a hook of a Git server. It has no secret: a call only makes " +
		"the platform poll the branches that the project's environments follow, one poll at a time. The provider's header names the event; " +
		"a request without one is a push."
	aboutResult         = "The result of a run of a linked agent."
	aboutPayload        = "A payload that an agent sends with a tool while it runs. The body is the JSON of the agent."
	aboutDeliveryFailed = "A report of a failed delivery of another outbound connector in the environment, for links with the status delivery_failed. " +
		"A connector is reported at most once a minute, with the number of failures since the last report."
	aboutTest     = "A test delivery, which shows whether the destination accepts deliveries. No agent has run. The receiver returns 2xx and does nothing."
	aboutOutgoing = "The platform sends it to the URL of an outbound connector at least once, with these headers and the connector's own headers."
)

// aboutWebhookSchemas describe the schemas.
var aboutWebhookSchemas = map[string]string{ //nolint:gosec // TokenUsage is no credential
	"Accepted":       "The runs that an event started.",
	"Envelope":       "The outcome of a run.",
	"FailedDelivery": "A failed delivery.",
	"FieldError":     "A field that is wrong.",
	"FileIssue":      "An attachment that was omitted.",
	"Handshake":      "The answer to a handshake.",
	"Problem":        "An error (RFC 9457).",
	"Progress":       "The status of a run.",
	"Pushed":         "The outcome of a call of a push webhook.",
	"Result":         "The outcome of a run.\n\n" + runerror.Describe(),
	"Results":        "The outcomes of an event's runs.",
	"TestEnvelope":   "The body of a test delivery: the envelope of a run that never existed.",
	"TokenUsage":     "Model tokens of a run.",
}

// aboutWebhookProblems describe the error responses to an event by status.
var aboutWebhookProblems = map[int]string{
	400: "The connector accepts no requests, or the body, the query or the key is malformed.",
	401: "The secret, the token or the signature is missing, wrong or expired.",
	404: "No webhook has this URL.",
	405: "The method is not GET or POST, or not POST although requests must be signed.",
	408: "The body did not arrive in time.",
	409: "The connector is disabled or retired, or its environment was deleted. Or a sync connector has no linked agent or no live deployment.",
	413: "The request is larger than 16 MiB.",
	415: "The body is compressed or has an unsupported type.",
	422: "The Idempotency-Key was used for another body, or the request is part of a delivery loop.",
	429: "The project has reached a limit of running, queued or stored data.",
	503: "The event may not have been stored. Send it again, with the same Idempotency-Key if it had one.",
	504: "The event is stored and its run continues: the agent has not finished in time, or the gateway stops. Do not send the event again without its Idempotency-Key.",
}

// aboutPushProblems describe the error responses of a push webhook by status.
var aboutPushProblems = map[int]string{
	400: "The body could not be read.",
	404: "No project has this URL.",
	405: "The method is not POST.",
	408: "The body did not arrive in time.",
	413: "The request is larger than 16 MiB.",
	503: "The push may not have been recorded. Send it again.",
}
