// SPDX-License-Identifier: Apache-2.0

// Package webhooks describes the requests that gateways receive and send, in OpenAPI.
package webhooks

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
)

// exampleGateway is the URL of the gateway in the published description.
const exampleGateway = "https://hooks.agents.example"

// Document returns the OpenAPI description of the webhooks of a gateway with a public URL, or of any gateway for "".
// Requests to the gateway are operations, and requests of the gateway are webhooks in OpenAPI.
func Document(gatewayURL string) ([]byte, error) {
	all, err := webhookSchemas()
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(rest.Node{
		"openapi": "3.1.0",
		"info": rest.Node{
			"title": "Agent Platform webhooks", "version": rest.APIVersion, "description": aboutWebhooks,
			"license": rest.Node{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"contact": rest.Node{"name": "The Agent Platform authors", "url": "https://github.com/agentplatform/agentplatform"},
		},
		"servers": []any{rest.Node{"url": strings.TrimSuffix(cmp.Or(gatewayURL, exampleGateway), "/"), "description": "The gateway's public URL."}},
		"tags":    []any{rest.Node{"name": "webhooks", "description": "Events that start agents, and results that are sent."}},
		"paths": rest.Node{
			webhookapi.Path: rest.Node{
				"parameters": []any{
					parameter("project_id", "path", "The project.", rest.Node{"type": "string", "format": "uuid"}),
					parameter("connector_id", "path", "The connector.", rest.Node{"type": "string", "format": "uuid"}),
				},
				"get":  incoming("getWebhook", "Send an event in a query", aboutGetWebhook, nil),
				"post": incoming("postWebhook", "Send an event", aboutPostWebhook, incomingBody()),
			},
			webhookapi.PushPath: rest.Node{
				"parameters": []any{parameter("project_id", "path", "The project.", rest.Node{"type": "string", "format": "uuid"})},
				"post":       pushed(),
			},
		},
		"webhooks": rest.Node{
			"result":         rest.Node{"post": outgoing("result", "result", "Result of a run", aboutResult, rest.RefNode("schemas", "Envelope"))},
			"payload":        rest.Node{"post": outgoing("payload", "payload", "Payload of an agent", aboutPayload, rest.Node{"description": "Any JSON of at most 256 KiB."})},
			"test":           rest.Node{"post": outgoing("test", string(store.DeliverTest), "Test delivery", aboutTest, rest.RefNode("schemas", "TestEnvelope"))},
			"deliveryFailed": rest.Node{"post": outgoing("deliveryFailed", store.StatusDeliveryFailed, "Report of a failed delivery", aboutDeliveryFailed, rest.RefNode("schemas", "FailedDelivery"))},
		},
		"components": rest.Node{"schemas": all, "headers": rest.Node{
			"Retry-After":         rest.ResponseHeaders["Retry-After"],
			"Allow":               rest.HeaderNode("string", "The methods that the webhook accepts.", "GET, POST"),
			"WWW-Authenticate":    rest.ResponseHeaders["WWW-Authenticate"],
			"Idempotent-Replayed": rest.HeaderNode("string", "true if the request repeats an earlier request and started nothing.", "true"),
			"Preference-Applied":  rest.HeaderNode("string", "respond-async if the response did not wait for the agents.", "respond-async"),
		}, "securitySchemes": rest.Node{
			"secretHeader": rest.Node{"type": "apiKey", "in": "header", "name": "X-Service-Secret", "description": "The connector's secret."},
			"bearer":       rest.Node{"type": "http", "scheme": "bearer", "description": "The connector's secret."},
			"secretQuery":  rest.Node{"type": "apiKey", "in": "query", "name": "secret", "description": "The connector's secret. Proxies and servers can log it."},
		}},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the description of webhooks: %w", err)
	}
	return append(text, '\n'), nil
}

// webhookSchemas returns the schemas of webhookapi and of problems, in the form of the facade's own schemas.
func webhookSchemas() (rest.Node, error) {
	rest.ConfigureHuma() // sets how huma describes arrays
	registry := huma.NewMapRegistry(rest.SchemaPrefix, huma.DefaultSchemaNamer)
	for _, t := range []reflect.Type{
		reflect.TypeFor[webhookapi.Accepted](), reflect.TypeFor[webhookapi.Results](), reflect.TypeFor[webhookapi.Progress](),
		reflect.TypeFor[webhookapi.Envelope](), reflect.TypeFor[webhookapi.Handshake](), reflect.TypeFor[rest.Problem](),
		reflect.TypeFor[store.FailedDelivery](), reflect.TypeFor[webhookapi.TestEnvelope](), reflect.TypeFor[webhookapi.Pushed](),
	} {
		registry.Schema(t, true, t.Name())
	}
	all, err := rest.ToNode(registry.Map())
	if err != nil {
		return nil, err
	}
	rest.RemoveHumaFields(all)
	for name, schema := range all {
		schema := schema.(rest.Node)
		delete(schema, "additionalProperties") // responses can get new fields
		schema["description"] = aboutWebhookSchemas[name]
	}
	all["Problem"].(rest.Node)["properties"].(rest.Node)["run_id"] = rest.Node{
		"type": "string", "format": "uuid", "description": "The run that continues. Only with status 504, and at the end of a stream.",
	}
	return all, nil
}

func parameter(name, in, description string, schema rest.Node) rest.Node {
	p := rest.Node{"name": name, "in": in, "description": description, "schema": schema}
	if in == "path" {
		p["required"] = true
	}
	return p
}

// incoming returns an operation that accepts an event.
func incoming(id, summary, description string, body rest.Node) rest.Node {
	text := rest.Node{"type": "string"}
	op := rest.Node{
		"operationId": id, "tags": []any{"webhooks"}, "summary": summary, "description": description, "responses": incomingResponses(),
		"security": []any{rest.Node{"secretHeader": []any{}}, rest.Node{"bearer": []any{}}, rest.Node{"secretQuery": []any{}}, rest.Node{}},
		"parameters": []any{
			parameter("Idempotency-Key", "header", "A request with the same key and the same body within 24 hours repeats this request and starts nothing. At most 255 printable ASCII characters.", text),
			parameter("webhook-id", "header", "Like Idempotency-Key, without comparing bodies. Ignored if the request has an Idempotency-Key.", text),
			parameter(webhookapi.HopsHeader, "header", "Number of platform deliveries that led to the request. The webhook rejects more than 8.", text),
			parameter("Prefer", "header", "respond-async: a sync webhook returns 202 at once, like an inbound webhook.", text),
		},
	}
	if body != nil {
		op["requestBody"] = body
	}
	return op
}

// incomingBody describes the body of a POST.
func incomingBody() rest.Node {
	object := func(description string) rest.Node {
		return rest.Node{"schema": rest.Node{"type": "object", "additionalProperties": true, "description": description}}
	}
	return rest.Node{"required": true, "description": "An event of at most 16 MiB.", "content": rest.Node{
		"application/json":                  object("The agent's input. Objects with data in the list `files` are attachments, with name, mime_type, and data in base64."),
		"application/x-www-form-urlencoded": object("Each field is a text in the input. A repeated field is a list."),
		"multipart/form-data":               object("Parts without a file name are texts in the input. Parts with a file name are attachments."),
	}}
}

// incomingResponses describes the responses to an event.
func incomingResponses() rest.Node {
	accepted, replayed := rest.RefNode("schemas", "Accepted"), rest.Node{"Idempotent-Replayed": rest.RefNode("headers", "Idempotent-Replayed")}
	out := rest.Node{
		"200": rest.Node{"headers": replayed, "description": "The event is stored. An inbound webhook returns the IDs of the started runs, and a sync webhook returns their results. The response to a handshake stores no event.", "content": rest.Node{
			"application/json": rest.Node{"schema": rest.Node{"anyOf": []any{rest.RefNode("schemas", "Results"), accepted, rest.RefNode("schemas", "Handshake")}}},
			"text/event-stream": rest.Node{"schema": rest.Node{"type": "string", "contentMediaType": "text/event-stream", "contentSchema": rest.Node{
				"description": "The data of an event.", "anyOf": []any{rest.RefNode("schemas", "Results"), accepted, rest.RefNode("schemas", "Progress"), rest.RefNode("schemas", "Problem")},
			}, "description": "For sync webhooks with Accept: text/event-stream. The events are: accepted (Accepted), " +
				"progress (Progress), and then result (Results) or error (Problem)."}},
		}},
		"202": rest.Node{
			"description": "The event of a sync webhook is stored, and the caller asked not to wait.", "content": rest.Node{"application/json": rest.Node{"schema": accepted}},
			"headers": rest.Node{"Preference-Applied": rest.RefNode("headers", "Preference-Applied"), "Idempotent-Replayed": rest.RefNode("headers", "Idempotent-Replayed")},
		},
	}
	addProblems(out, webhookapi.Problems, aboutWebhookProblems)
	out["504"].(rest.Node)["headers"] = replayed
	return out
}

// pushed returns the operation for Git providers.
func pushed() rest.Node {
	parameters, of := []any{}, rest.Node{"type": "string"}
	for _, header := range []string{"X-GitHub-Event", "X-Gitlab-Event", "X-Gitea-Event", "X-Forgejo-Event"} {
		parameters = append(parameters, parameter(header, "header", "The provider's name of the event.", of))
	}
	answer := rest.Node{"application/json": rest.Node{"schema": rest.RefNode("schemas", "Pushed")}}
	out := rest.Node{
		"200": rest.Node{"description": "The event is not a push and was ignored.", "content": answer},
		"202": rest.Node{"description": "A poll of the repository is requested, and the request is stored.", "content": answer},
	}
	addProblems(out, webhookapi.PushProblems, aboutPushProblems)
	return rest.Node{
		"operationId": "postPush", "tags": []any{"webhooks"}, "summary": "Report a push", "description": aboutPush, "parameters": parameters,
		"security": []any{}, "responses": out,
		"requestBody": rest.Node{"description": "Any body of at most 16 MiB. Its content is ignored.", "content": rest.Node{"*/*": rest.Node{"schema": rest.Node{}}}},
	}
}

// addProblems adds the error responses by status, with their codes.
func addProblems(out rest.Node, problems map[int][]httpserver.Code, about map[int]string) {
	for _, status := range slices.Sorted(maps.Keys(problems)) {
		response := rest.Node{"description": about[status], "content": rest.Node{httpserver.ProblemType: rest.Node{"schema": rest.Node{"allOf": []any{
			rest.RefNode("schemas", "Problem"),
			rest.Node{"properties": rest.Node{"code": rest.Node{"enum": problems[status]}, "status": rest.Node{"const": status}}},
		}}}}}
		switch status {
		case http.StatusUnauthorized:
			response["headers"] = rest.Node{"WWW-Authenticate": rest.RefNode("headers", "WWW-Authenticate")}
		case http.StatusMethodNotAllowed:
			response["headers"] = rest.Node{"Allow": rest.RefNode("headers", "Allow")}
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			response["headers"] = rest.Node{"Retry-After": rest.RefNode("headers", "Retry-After")}
		}
		out[strconv.Itoa(status)] = response
	}
}

// outgoing returns a request to the destination of an outbound webhook.
func outgoing(id, event, summary, description string, body rest.Node) rest.Node {
	named := parameter("X-Service-Event", "header", "The kind of the delivery.", rest.Node{"type": "string", "const": event})
	named["required"] = true
	parameters := []any{named}
	for _, h := range []struct{ name, about string }{
		{"X-Service-Delivery", "The ID of the delivery. All attempts have the same ID."},
		{"X-Service-Timestamp", "The time of the signature in seconds since 1970. Reject requests older than 300 seconds."},
		{"X-Service-Signature", "HMAC-SHA256 of the timestamp, a dot and the body with the signing secret, in hexadecimal."},
		{"webhook-id", "The ID of the delivery in the format of Standard Webhooks."},
		{"webhook-timestamp", "The time of the signature in the format of Standard Webhooks."},
		{"webhook-signature", "v1, a comma and the base64 of an HMAC-SHA256. The message is the ID, the timestamp and the body, joined by dots. The key is the decoded part of the signing secret after whsec_. While an earlier secret is valid, the header has one signature per secret, separated by spaces."},
		{webhookapi.HopsHeader, "Number of platform deliveries that led to this request, including this delivery. A webhook of the platform rejects more than 8."},
	} {
		p := parameter(h.name, "header", h.about, rest.Node{"type": "string"})
		p["required"] = true
		parameters = append(parameters, p)
	}
	return rest.Node{
		"operationId": id, "tags": []any{"webhooks"}, "summary": summary, "description": description + " " + aboutOutgoing, "parameters": parameters,
		"security":    []any{},
		"requestBody": rest.Node{"required": true, "content": rest.Node{"application/json": rest.Node{"schema": body}}},
		"responses": rest.Node{
			"2XX":     rest.Node{"description": "The receiver accepted the delivery."},
			"410":     rest.Node{"description": "The receiver accepts no further deliveries. The platform pauses the connector."},
			"default": rest.Node{"description": "3xx, 408, 425, 429, 5xx and no response: the platform retries the delivery. It does not follow redirects. Other 4xx: the delivery has failed."},
		},
	}
}
