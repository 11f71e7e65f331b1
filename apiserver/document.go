// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"
	"sigs.k8s.io/yaml"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
)

// Document is the OpenAPI description that every facade serves, as JSON.
func Document() ([]byte, error) {
	s := &Server{logger: slog.New(slog.DiscardHandler)}
	s.mount()
	return s.document, s.documentErr
}

// serveDocument serves the description as JSON and as YAML, and beside it that of webhooks.
func (s *Server) serveDocument(router chi.Router) {
	if s.document, s.documentErr = describe(s.api.OpenAPI()); s.documentErr != nil {
		return
	}
	text, err := yaml.JSONToYAML(s.document)
	if err != nil {
		s.documentErr = fmt.Errorf("writing the description as YAML: %w", err)
		return
	}
	webhooks, err := Webhooks(s.gatewayURL)
	if err != nil {
		s.documentErr = err
		return
	}
	for path, content := range map[string]struct {
		media string
		body  []byte
	}{
		"/v1/openapi.json": {"application/json", s.document}, "/v1/openapi.yaml": {"application/yaml", text},
		"/v1/webhooks.json": {"application/json", webhooks},
	} {
		router.Get(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", content.media)
			w.Header().Set(httpserver.HeaderVersion, metrics.Version())
			_, _ = w.Write(content.body) // the client may be gone
		})
	}
}

// node is a part of the description.
type node = map[string]any

// describe is the description that is served: what huma knows of the routes, and
// what it has no words for. It works on a copy, by which no request is judged.
func describe(api *huma.OpenAPI) ([]byte, error) {
	d, err := asNode(api)
	if err != nil {
		return nil, err
	}
	// huma leaves out those that it does not refer to; describeConfigs does.
	all, err := asNode(api.Components.Schemas.Map())
	if err != nil {
		return nil, err
	}
	components := d["components"].(node)
	components["schemas"] = all
	describeConfigs(all)
	nameNullable(all)
	inRequests := map[string]bool{}
	for i := range routes {
		r := &routes[i]
		if r.mount == nil {
			continue
		}
		op := d["paths"].(node)[projectPath+r.path].(node)[strings.ToLower(r.method)].(node)
		if r.takes != nil {
			describeBytes(op["requestBody"].(node)["content"].(node))
		}
		reachable(op["requestBody"], all, inRequests)
		if responses := op["responses"].(node); r.also != 0 {
			responses[strconv.Itoa(r.also)] = maps.Clone(responses[strconv.Itoa(r.status)].(node))
			responses[strconv.Itoa(r.also)].(node)["description"] = http.StatusText(r.also)
		}
		for status, response := range op["responses"].(node) {
			describeResponse(r, status, response.(node))
		}
	}
	for name, schema := range all {
		if about, ok := aboutSchemas[name]; ok {
			schema.(node)["description"] = about
		}
		if schema := schema.(node); !inRequests[name] && schema["additionalProperties"] == false {
			delete(schema, "additionalProperties") // answers grow
		}
	}
	plainSchemas(d)
	components["headers"] = headers // which all descriptions share: nothing is written into them
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the description: %w", err)
	}
	return append(text, '\n'), nil
}

func asNode(part any) (out node, err error) {
	data, err := json.Marshal(part)
	if err != nil {
		return nil, fmt.Errorf("writing the description: %w", err)
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("reading the description: %w", err)
	}
	return out, nil
}

func ref(section, name string) node { return node{"$ref": "#/components/" + section + "/" + name} }

// describeConfigs says which types a config may have.
func describeConfigs(all node) {
	all["ConnectorConfig"] = node{
		"description": "How a connector behaves: InboundConfig for a webhook of mode inbound, SyncConfig for one of mode sync, whose timeout_seconds is a number, OutboundConfig for one of mode outbound, CronConfig for a cron connector.",
		"oneOf":       []any{ref("schemas", "InboundConfig"), ref("schemas", "SyncConfig"), ref("schemas", "OutboundConfig"), ref("schemas", "CronConfig")},
	}
	// So that a config is of one type alone, although answers may grow.
	never := all["InboundConfig"].(node)["properties"].(node)["timeout_seconds"].(node)
	never["type"] = "null"
	delete(never, "format")
	all["ConnectorConfigInput"] = node{
		"description": "How a connector shall behave: InboundConfigInput for a webhook of mode inbound, SyncConfigInput for one of mode sync, OutboundConfigInput for one of mode outbound, CronConfigInput for a cron connector.",
		"anyOf":       []any{ref("schemas", "InboundConfigInput"), ref("schemas", "SyncConfigInput"), ref("schemas", "OutboundConfigInput"), ref("schemas", "CronConfigInput")},
	}
}

// namedAs is where a schema that may be null says which component it is else.
const namedAs = "x-named-as"

// nameNullable refers to those components, so that generated clients have one type for each.
func nameNullable(part any) {
	switch part := part.(type) {
	case node:
		if target, ok := part[namedAs]; ok {
			about := part["description"]
			clear(part)
			part["description"], part["oneOf"] = about, []any{node{"$ref": target}, node{"type": "null"}}
		}
		for _, inner := range part {
			nameNullable(inner)
		}
	case []any:
		for _, inner := range part {
			nameNullable(inner)
		}
	}
}

// describeBytes leaves out the schemas of bodies that are no text, as OpenAPI 3.1 says;
// with a schema of type string generated clients would take strings for them.
func describeBytes(content node) {
	for media := range content {
		content[media] = node{}
	}
}

// reachable notes the schemas that a part of the description refers to, and those
// that they refer to.
func reachable(part any, all node, seen map[string]bool) {
	switch part := part.(type) {
	case node:
		if name, ok := strings.CutPrefix(fmt.Sprint(part["$ref"]), schemas); ok && !seen[name] {
			seen[name] = true
			reachable(all[name], all, seen)
		}
		for _, inner := range part {
			reachable(inner, all, seen)
		}
	case []any:
		for _, inner := range part {
			reachable(inner, all, seen)
		}
	}
}

// plainSchemas takes away what huma writes into schemas and OpenAPI does not know.
func plainSchemas(part any) {
	switch part := part.(type) {
	case node:
		delete(part, "patternDescription")
		for _, inner := range part {
			plainSchemas(inner)
		}
	case []any:
		for _, inner := range part {
			plainSchemas(inner)
		}
	}
}

// headers are those that answers carry.
var headers = node{
	"X-Request-Id":           header("string", "The id of the call, under which the audit log and the service's own log know it.", "7c0f5f7e-8d0b-4a52-9f0c-2f7a8f6a1b3c"),
	"RateLimit":              header("string", "What is left of the project's requests: r is how many may be made now, t in how many seconds there is one more.", `"project";r=117;t=42`),
	"RateLimit-Policy":       header("string", "The project's limit: q requests in any w seconds, over all of its keys.", `"project";q=120;w=60`),
	"Retry-After":            header("integer", "In how many seconds to try again.", 2),
	"WWW-Authenticate":       header("string", "How to authenticate.", "Bearer"),
	"ETag":                   header("string", "Names the object as it is; send it as If-Match with a call that changes the object.", `"0b7e6a1c-4f9d-4c55-8d5e-2a6f1c3b9e77.3"`),
	"Content-Disposition":    header("string", "Says that the file is to be stored, and under which name.", `attachment; filename=invoice.pdf`),
	"Content-Length":         header("integer", "How many bytes the file has: an answer with fewer is broken off.", 48213),
	"X-Content-Type-Options": header("string", "Says that the type is what Content-Type says.", "nosniff"),
	"Location":               header("string", "The path of what was created.", "/v1/projects/2b1f6c1e-6d0c-4d2a-9a53-6a0b8d9b7f10/connectors/9a1c5d7e-3f42-4d0b-8c1a-5e7f9b2d4c60"),
}

func header(kind, description string, example any) node {
	return node{"description": description, "schema": node{"type": kind}, "example": example}
}

// describeResponse adds headers, and to errors what they mean and look like.
func describeResponse(r *route, status string, response node) {
	names := []string{"X-Request-Id"}
	code, _ := strconv.Atoi(status) // huma writes it as a number
	if code != http.StatusUnauthorized {
		names = append(names, "RateLimit", "RateLimit-Policy")
	} else {
		names = append(names, "WWW-Authenticate")
	}
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		names = append(names, "Retry-After")
	}
	if code == r.status && r.tagged {
		names = append(names, "ETag")
	}
	if code == r.status && r.file {
		names = append(names, "Content-Disposition", "Content-Length", "X-Content-Type-Options")
	}
	if code == http.StatusCreated || code == r.status && r.does == creates {
		names = append(names, "Location")
	}
	shown := node{}
	for _, name := range names {
		shown[name] = ref("headers", name)
	}
	response["headers"] = shown
	i := slices.IndexFunc(errorExamples, func(p Problem) bool { return p.Status == code })
	if i < 0 {
		return
	}
	response["description"] = meanings[code]
	if r.takes != nil && code == http.StatusRequestEntityTooLarge {
		response["description"] = r.takes.tooLarge
	}
	if r.takes != nil && code == http.StatusUnsupportedMediaType {
		response["description"] = r.takes.unsupported
	}
	response["content"].(node)[httpserver.ProblemType].(node)["example"] = errorExamples[i]
}

// meanings say when a call is answered with an error.
var meanings = map[int]string{
	400: "What is asked for cannot be, as detail says.",
	401: "The API key is missing, unknown or no longer in force.",
	403: "The key is of another project, or it or its owner lacks the permission, or it does not reach the environment; or Kubernetes or a quota of the namespace refuses the change.",
	404: "The project has no such thing.",
	408: "The body did not come in time.",
	409: "The state of things does not allow it: the name is taken, or it is there already, or the project's code defines it, or a GitOps controller owns it, or somebody changed it at the same time.",
	412: "The object is not what If-Match names.",
	413: "The body is larger than 1 MiB.",
	415: "The body is not application/json, or not UTF-8 by its charset.",
	422: "The body is missing or is not JSON, or parameters, headers or fields are wrong or not known; errors names them.",
	429: "The project has no requests left at the moment.",
	500: "A mistake of the service.",
	503: "Kubernetes or the store does not answer; nothing is known to be wrong with the call.",
}

// errorExamples are an example for each status.
var errorExamples = []Problem{
	problem(400, httpserver.CodeSlugTaken, "another environment of the project has this slug; choose another name"),
	problem(401, httpserver.CodeUnauthorized, "a valid API key is needed: Authorization: Bearer ap_…"),
	problem(403, httpserver.CodeForbidden, "the key, or its owner, lacks the permission connectors.create"),
	problem(404, httpserver.CodeNotFound, "this project has no such connector"),
	problem(408, httpserver.CodeTimeout, "request body read timeout"),
	problem(409, httpserver.CodeNameTaken, "another connector of the environment has this name; choose another"),
	problem(412, httpserver.CodePrecondition, "somebody has changed this since the answer whose ETag If-Match names; read it again"),
	problem(413, httpserver.CodeRequestTooLarge, "request body is too large limit=1048576 bytes"),
	problem(415, httpserver.CodeUnsupportedMedia, "unknown content type: text/plain"),
	invalid(FieldError{Location: "query.environment_id", Message: "must be a UUID"}),
	problem(429, httpserver.CodeRateLimited, "the project has made 120 requests in the last minute, as many as it may; wait and try again"),
	problem(500, httpserver.CodeInternal, internalDetail),
	problem(503, httpserver.CodeClusterUnavailable, "the Kubernetes API does not answer; try again"),
}
