// SPDX-License-Identifier: Apache-2.0

package apiserver

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

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
)

// exampleGateway is the URL of the gateway in a description that is no installation's.
const exampleGateway = "https://hooks.agents.example"

// Webhooks is the OpenAPI description of the webhooks of a gateway with this public URL, "" for
// any: what comes in is an operation, and what goes out a webhook of OpenAPI.
func Webhooks(gatewayURL string) ([]byte, error) {
	all, err := webhookSchemas()
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(node{
		"openapi": "3.1.0",
		"info": node{
			"title": "Agent Platform webhooks", "version": apiVersion, "description": aboutWebhooks,
			"license": node{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"contact": node{"name": "The Agent Platform authors", "url": "https://github.com/agentplatform/agentplatform"},
		},
		"servers": []any{node{"url": strings.TrimSuffix(cmp.Or(gatewayURL, exampleGateway), "/"), "description": "The gateway's public URL."}},
		"tags":    []any{node{"name": "webhooks", "description": "Events that start agents, and results that are sent."}},
		"paths": node{
			webhookapi.Path: node{
				"parameters": []any{
					parameter("project_id", "path", "The project.", node{"type": "string", "format": "uuid"}),
					parameter("connector_id", "path", "The connector.", node{"type": "string", "format": "uuid"}),
				},
				"get":  incoming("getWebhook", "Send an event in a query", aboutGetWebhook, nil),
				"post": incoming("postWebhook", "Send an event", aboutPostWebhook, incomingBody()),
			},
			webhookapi.PushPath: node{
				"parameters": []any{parameter("project_id", "path", "The project.", node{"type": "string", "format": "uuid"})},
				"post":       pushed(),
			},
		},
		"webhooks": node{
			"result":         node{"post": outgoing("result", "result", "A run has ended", aboutResult, ref("schemas", "Envelope"))},
			"payload":        node{"post": outgoing("payload", "payload", "An agent sends something", aboutPayload, node{"description": "Any JSON of at most 256 KiB."})},
			"test":           node{"post": outgoing("test", string(store.DeliverTest), "Somebody tests the connector", aboutTest, ref("schemas", "TestEnvelope"))},
			"deliveryFailed": node{"post": outgoing("deliveryFailed", store.StatusDeliveryFailed, "A delivery has failed", aboutDeliveryFailed, ref("schemas", "FailedDelivery"))},
		},
		"components": node{"schemas": all, "headers": node{
			"Retry-After":         headers["Retry-After"],
			"Allow":               header("string", "The methods that a webhook takes.", "GET, POST"),
			"WWW-Authenticate":    headers["WWW-Authenticate"],
			"Idempotent-Replayed": header("string", "That the request is a repetition of an earlier one, and has started nothing.", "true"),
			"Preference-Applied":  header("string", "That the answer did not wait for the agents.", "respond-async"),
		}, "securitySchemes": node{
			"secretHeader": node{"type": "apiKey", "in": "header", "name": "X-Service-Secret", "description": "The connector's secret."},
			"bearer":       node{"type": "http", "scheme": "bearer", "description": "The connector's secret."},
			"secretQuery":  node{"type": "apiKey", "in": "query", "name": "secret", "description": "The connector's secret, which others may read in logs."},
		}},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the description of webhooks: %w", err)
	}
	return append(text, '\n'), nil
}

// webhookSchemas are those of webhookapi, as the facade's own are made, and of problems.
func webhookSchemas() (node, error) {
	registry := huma.NewMapRegistry(schemas, huma.DefaultSchemaNamer)
	for _, t := range []reflect.Type{
		reflect.TypeFor[webhookapi.Accepted](), reflect.TypeFor[webhookapi.Results](), reflect.TypeFor[webhookapi.Progress](),
		reflect.TypeFor[webhookapi.Envelope](), reflect.TypeFor[webhookapi.Handshake](), reflect.TypeFor[Problem](),
		reflect.TypeFor[store.FailedDelivery](), reflect.TypeFor[webhookapi.TestEnvelope](), reflect.TypeFor[webhookapi.Pushed](),
	} {
		registry.Schema(t, true, t.Name())
	}
	all, err := asNode(registry.Map())
	if err != nil {
		return nil, err
	}
	plainSchemas(all)
	for name, schema := range all {
		schema := schema.(node)
		delete(schema, "additionalProperties") // answers grow
		schema["description"] = aboutWebhookSchemas[name]
	}
	all["Problem"].(node)["properties"].(node)["run_id"] = node{
		"type": "string", "format": "uuid", "description": "The run that goes on; with status 504, and at the end of a stream, alone.",
	}
	return all, nil
}

func parameter(name, in, description string, schema node) node {
	p := node{"name": name, "in": in, "description": description, "schema": schema}
	if in == "path" {
		p["required"] = true
	}
	return p
}

// incoming is an operation that takes an event.
func incoming(id, summary, description string, body node) node {
	text := node{"type": "string"}
	op := node{
		"operationId": id, "tags": []any{"webhooks"}, "summary": summary, "description": description, "responses": incomingResponses(),
		"security": []any{node{"secretHeader": []any{}}, node{"bearer": []any{}}, node{"secretQuery": []any{}}, node{}},
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
func incomingBody() node {
	object := func(description string) node {
		return node{"schema": node{"type": "object", "additionalProperties": true, "description": description}}
	}
	return node{"required": true, "description": "An event of at most 16 MiB.", "content": node{
		"application/json":                  object("The agent's input. Objects with data in the list files are attachments: name, mime_type, and data in base64."),
		"application/x-www-form-urlencoded": object("Each field is a text of the input; repeated ones are a list."),
		"multipart/form-data":               object("Parts without a file name are texts of the input, those with one are attachments."),
	}}
}

// incomingResponses are the answers to an event.
func incomingResponses() node {
	accepted, replayed := ref("schemas", "Accepted"), node{"Idempotent-Replayed": ref("headers", "Idempotent-Replayed")}
	out := node{
		"200": node{"headers": replayed, "description": "The event is stored. An inbound webhook says which runs were started, a sync one what came of them. Or a handshake is answered, which is no event.", "content": node{
			"application/json": node{"schema": node{"anyOf": []any{ref("schemas", "Results"), accepted, ref("schemas", "Handshake")}}},
			"text/event-stream": node{"schema": node{"type": "string", "contentMediaType": "text/event-stream", "contentSchema": node{
				"description": "The data of an event.", "anyOf": []any{ref("schemas", "Results"), accepted, ref("schemas", "Progress"), ref("schemas", "Problem")},
			}, "description": "With Accept: text/event-stream, of a sync webhook: the events accepted (Accepted), " +
				"progress (Progress), and then result (Results) or error (Problem)."}},
		}},
		"202": node{
			"description": "The event of a sync webhook is stored, and the caller did not want to wait.", "content": node{"application/json": node{"schema": accepted}},
			"headers": node{"Preference-Applied": ref("headers", "Preference-Applied"), "Idempotent-Replayed": ref("headers", "Idempotent-Replayed")},
		},
	}
	refusals(out, webhookapi.Problems, aboutWebhookProblems)
	out["504"].(node)["headers"] = replayed
	return out
}

// pushed is the operation that Git providers call.
func pushed() node {
	parameters, of := []any{}, node{"type": "string"}
	for _, header := range []string{"X-GitHub-Event", "X-Gitlab-Event", "X-Gitea-Event", "X-Forgejo-Event"} {
		parameters = append(parameters, parameter(header, "header", "What has happened, by the provider's word.", of))
	}
	answer := node{"application/json": node{"schema": ref("schemas", "Pushed")}}
	out := node{
		"200": node{"description": "The event is no push, and is ignored.", "content": answer},
		"202": node{"description": "A look at the repository is asked for, which is stored.", "content": answer},
	}
	refusals(out, webhookapi.PushProblems, aboutPushProblems)
	return node{
		"operationId": "postPush", "tags": []any{"webhooks"}, "summary": "Tell of a push", "description": aboutPush, "parameters": parameters,
		"security": []any{}, "responses": out,
		"requestBody": node{"description": "Anything of at most 16 MiB. It is read, and nothing in it counts.", "content": node{"*/*": node{"schema": node{}}}},
	}
}

// refusals adds the answers that are no success, of these codes by their status.
func refusals(out node, problems map[int][]httpserver.Code, about map[int]string) {
	for _, status := range slices.Sorted(maps.Keys(problems)) {
		response := node{"description": about[status], "content": node{httpserver.ProblemType: node{"schema": node{"allOf": []any{
			ref("schemas", "Problem"),
			node{"properties": node{"code": node{"enum": problems[status]}, "status": node{"const": status}}},
		}}}}}
		switch status {
		case http.StatusUnauthorized:
			response["headers"] = node{"WWW-Authenticate": ref("headers", "WWW-Authenticate")}
		case http.StatusMethodNotAllowed:
			response["headers"] = node{"Allow": ref("headers", "Allow")}
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			response["headers"] = node{"Retry-After": ref("headers", "Retry-After")}
		}
		out[strconv.Itoa(status)] = response
	}
}

// outgoing is what is sent to the destination of an outbound webhook, with a body like that.
func outgoing(id, event, summary, description string, body node) node {
	named := parameter("X-Service-Event", "header", "What the delivery carries.", node{"type": "string", "const": event})
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
		p := parameter(h.name, "header", h.about, node{"type": "string"})
		p["required"] = true
		parameters = append(parameters, p)
	}
	return node{
		"operationId": id, "tags": []any{"webhooks"}, "summary": summary, "description": description + " " + aboutOutgoing, "parameters": parameters,
		"security":    []any{},
		"requestBody": node{"required": true, "content": node{"application/json": node{"schema": body}}},
		"responses": node{
			"2XX":     node{"description": "It was taken."},
			"410":     node{"description": "Nothing more is wanted: the connector is paused."},
			"default": node{"description": "3xx, 408, 425, 429, 5xx and no answer: it is sent again later; redirects are not followed. Any other 4xx: it has failed."},
		},
	}
}
