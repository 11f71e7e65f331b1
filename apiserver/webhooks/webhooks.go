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

// exampleGateway is the URL of the gateway in a description that is no installation's.
const exampleGateway = "https://hooks.agents.example"

// Document is the OpenAPI description of the webhooks of a gateway with this public URL, "" for
// any: what comes in is an operation, and what goes out a webhook of OpenAPI.
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
			"result":         rest.Node{"post": outgoing("result", "result", "A run has ended", aboutResult, rest.RefNode("schemas", "Envelope"))},
			"payload":        rest.Node{"post": outgoing("payload", "payload", "An agent sends something", aboutPayload, rest.Node{"description": "Any JSON of at most 256 KiB."})},
			"test":           rest.Node{"post": outgoing("test", string(store.DeliverTest), "Somebody tests the connector", aboutTest, rest.RefNode("schemas", "TestEnvelope"))},
			"deliveryFailed": rest.Node{"post": outgoing("deliveryFailed", store.StatusDeliveryFailed, "A delivery has failed", aboutDeliveryFailed, rest.RefNode("schemas", "FailedDelivery"))},
		},
		"components": rest.Node{"schemas": all, "headers": rest.Node{
			"Retry-After":         rest.ResponseHeaders["Retry-After"],
			"Allow":               rest.HeaderNode("string", "The methods that a webhook takes.", "GET, POST"),
			"WWW-Authenticate":    rest.ResponseHeaders["WWW-Authenticate"],
			"Idempotent-Replayed": rest.HeaderNode("string", "That the request is a repetition of an earlier one, and has started nothing.", "true"),
			"Preference-Applied":  rest.HeaderNode("string", "That the answer did not wait for the agents.", "respond-async"),
		}, "securitySchemes": rest.Node{
			"secretHeader": rest.Node{"type": "apiKey", "in": "header", "name": "X-Service-Secret", "description": "The connector's secret."},
			"bearer":       rest.Node{"type": "http", "scheme": "bearer", "description": "The connector's secret."},
			"secretQuery":  rest.Node{"type": "apiKey", "in": "query", "name": "secret", "description": "The connector's secret, which others may read in logs."},
		}},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the description of webhooks: %w", err)
	}
	return append(text, '\n'), nil
}

// webhookSchemas are those of webhookapi, as the facade's own are made, and of problems.
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
		delete(schema, "additionalProperties") // answers grow
		schema["description"] = aboutWebhookSchemas[name]
	}
	all["Problem"].(rest.Node)["properties"].(rest.Node)["run_id"] = rest.Node{
		"type": "string", "format": "uuid", "description": "The run that goes on; with status 504, and at the end of a stream, alone.",
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

// incoming is an operation that takes an event.
func incoming(id, summary, description string, body rest.Node) rest.Node {
	text := rest.Node{"type": "string"}
	op := rest.Node{
		"operationId": id, "tags": []any{"webhooks"}, "summary": summary, "description": description, "responses": incomingResponses(),
		"security": []any{rest.Node{"secretHeader": []any{}}, rest.Node{"bearer": []any{}}, rest.Node{"secretQuery": []any{}}, rest.Node{}},
		"parameters": []any{
			parameter("Idempotency-Key", "header", "Makes a repetition within 24 hours the same request, if its body is the same; at most 255 printable characters of ASCII.", text),
			parameter("webhook-id", "header", "Likewise, without comparing bodies; counts where there is no Idempotency-Key.", text),
			parameter(webhookapi.HopsHeader, "header", "How many deliveries of platforms the request has come by; more than 8 are refused.", text),
			parameter("Prefer", "header", "respond-async: a sync webhook answers 202 at once, as an inbound one does.", text),
		},
	}
	if body != nil {
		op["requestBody"] = body
	}
	return op
}

// incomingBody is the body of a POST.
func incomingBody() rest.Node {
	object := func(description string) rest.Node {
		return rest.Node{"schema": rest.Node{"type": "object", "additionalProperties": true, "description": description}}
	}
	return rest.Node{"required": true, "description": "An event of at most 16 MiB.", "content": rest.Node{
		"application/json":                  object("The agent's input. Objects with data in the list files are attachments: name, mime_type, and data in base64."),
		"application/x-www-form-urlencoded": object("Each field is a text of the input; repeated ones are a list."),
		"multipart/form-data":               object("Parts without a file name are texts of the input, those with one are attachments."),
	}}
}

// incomingResponses are the answers to an event.
func incomingResponses() rest.Node {
	accepted, replayed := rest.RefNode("schemas", "Accepted"), rest.Node{"Idempotent-Replayed": rest.RefNode("headers", "Idempotent-Replayed")}
	out := rest.Node{
		"200": rest.Node{"headers": replayed, "description": "The event is stored. An inbound webhook says which runs were started, a sync one what came of them. Or a handshake is answered, which is no event.", "content": rest.Node{
			"application/json": rest.Node{"schema": rest.Node{"anyOf": []any{rest.RefNode("schemas", "Results"), accepted, rest.RefNode("schemas", "Handshake")}}},
			"text/event-stream": rest.Node{"schema": rest.Node{"type": "string", "contentMediaType": "text/event-stream", "contentSchema": rest.Node{
				"description": "The data of an event.", "anyOf": []any{rest.RefNode("schemas", "Results"), accepted, rest.RefNode("schemas", "Progress"), rest.RefNode("schemas", "Problem")},
			}, "description": "With Accept: text/event-stream, of a sync webhook: the events accepted (Accepted), " +
				"progress (Progress), and then result (Results) or error (Problem)."}},
		}},
		"202": rest.Node{
			"description": "The event of a sync webhook is stored, and the caller did not want to wait.", "content": rest.Node{"application/json": rest.Node{"schema": accepted}},
			"headers": rest.Node{"Preference-Applied": rest.RefNode("headers", "Preference-Applied"), "Idempotent-Replayed": rest.RefNode("headers", "Idempotent-Replayed")},
		},
	}
	refusals(out, webhookapi.Problems, aboutWebhookProblems)
	out["504"].(rest.Node)["headers"] = replayed
	return out
}

// pushed is the operation that Git providers call.
func pushed() rest.Node {
	parameters, of := []any{}, rest.Node{"type": "string"}
	for _, header := range []string{"X-GitHub-Event", "X-Gitlab-Event", "X-Gitea-Event", "X-Forgejo-Event"} {
		parameters = append(parameters, parameter(header, "header", "What has happened, by the provider's word.", of))
	}
	answer := rest.Node{"application/json": rest.Node{"schema": rest.RefNode("schemas", "Pushed")}}
	out := rest.Node{
		"200": rest.Node{"description": "The event is no push, and is ignored.", "content": answer},
		"202": rest.Node{"description": "A look at the repository is asked for, which is stored.", "content": answer},
	}
	refusals(out, webhookapi.PushProblems, aboutPushProblems)
	return rest.Node{
		"operationId": "postPush", "tags": []any{"webhooks"}, "summary": "Tell of a push", "description": aboutPush, "parameters": parameters,
		"security": []any{}, "responses": out,
		"requestBody": rest.Node{"description": "Anything of at most 16 MiB. It is read, and nothing in it counts.", "content": rest.Node{"*/*": rest.Node{"schema": rest.Node{}}}},
	}
}

// refusals adds the answers that are no success, of these codes by their status.
func refusals(out rest.Node, problems map[int][]httpserver.Code, about map[int]string) {
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

// outgoing is what is sent to the destination of an outbound webhook, with a body like that.
func outgoing(id, event, summary, description string, body rest.Node) rest.Node {
	named := parameter("X-Service-Event", "header", "What the delivery carries.", rest.Node{"type": "string", "const": event})
	named["required"] = true
	parameters := []any{named}
	for _, h := range []struct{ name, about string }{
		{"X-Service-Delivery", "The id of the delivery, the same in all attempts."},
		{"X-Service-Timestamp", "When the attempt was signed, in seconds since 1970. Refuse what is older than 300 s."},
		{"X-Service-Signature", "HMAC-SHA256 of timestamp, a dot and the body, by the signing secret, in hexadecimal."},
		{"webhook-id", "The id of the delivery, as Standard Webhooks has it."},
		{"webhook-timestamp", "When the attempt was signed, as Standard Webhooks has it."},
		{"webhook-signature", "v1, a comma and the base64 of the HMAC-SHA256 of id, timestamp and body, joined by dots, by the decoded part after whsec_ of the signing secret. Several with a space between while a rotated secret is valid."},
		{webhookapi.HopsHeader, "How many deliveries of platforms it has come by, this one among them: a webhook refuses it where that is more than 8."},
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
			"2XX":     rest.Node{"description": "It was taken."},
			"410":     rest.Node{"description": "Nothing more is wanted: the connector is paused."},
			"default": rest.Node{"description": "3xx, 408, 425, 429, 5xx and no answer: it is sent again later; redirects are not followed. Any other 4xx: it has failed."},
		},
	}
}
