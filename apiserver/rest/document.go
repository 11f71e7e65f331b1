// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"
	"sigs.k8s.io/yaml"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
)

const aboutAPI = "Manage and observe a project of Agent Platform: its environments, agents, deployments, connectors and runs.\n\n" +
	"Every call needs an API key of the project: `Authorization: Bearer ap_…`. Each operation names its permission as `x-permission`; " +
	"both the key and its owner must have the permission.\n\n" +
	"Every error is a problem (RFC 9457) with a `code` for programs. A project can make 120 requests in any 60 seconds, unless its plan " +
	"sets another limit. `RateLimit-Policy` states the limit, and `RateLimit` the remaining requests."

// describedConfig is the description without endpoints.
func describedConfig(sections []BoundSection) huma.Config {
	config := huma.DefaultConfig("Agent Platform", APIVersion)
	// describedConfig serves the document, without pages and $schema.
	config.OpenAPIPath, config.DocsPath, config.SchemasPath, config.CreateHooks = "", "", "", nil
	config.Formats = map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat}
	config.DefaultFormat = "application/json"
	config.Info.Description = aboutAPI
	config.Info.License = &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}
	config.Info.Contact = &huma.Contact{Name: "The Agent Platform authors", URL: "https://github.com/agentplatform/agentplatform"}
	config.Servers = []*huma.Server{{URL: "/", Description: "The installation that serves this document."}}
	for _, s := range sections {
		if s.doc != "" {
			config.Tags = append(config.Tags, &huma.Tag{Name: s.name, Description: s.doc})
		}
	}
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"apiKey": {Type: "http", Scheme: "bearer", Description: "An API key of the project, ap_…"},
	}
	return config
}

// Document returns the OpenAPI description of sections, as JSON.
func Document(sections []BoundSection) ([]byte, error) {
	s := &Service{Options: Options{Logger: slog.New(slog.DiscardHandler)}}
	if err := s.Mount(sections, nil); err != nil {
		return nil, err
	}
	return s.document, nil
}

// serveDocument serves the description as JSON and as YAML, and further descriptions by path.
func (s *Service) serveDocument(router chi.Router, sections []BoundSection, more map[string][]byte) {
	if s.document, s.documentErr = describe(s.api.OpenAPI(), sections); s.documentErr != nil {
		return
	}
	text, err := yaml.JSONToYAML(s.document)
	if err != nil {
		s.documentErr = fmt.Errorf("writing the description as YAML: %w", err)
		return
	}
	serve := func(path, media string, body []byte) {
		router.Get(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			w.Header().Set(httpserver.HeaderVersion, metrics.Version())
			_, _ = w.Write(body) // the client may have disconnected
		})
	}
	serve("/v1/openapi.json", jsonMedia, s.document)
	serve("/v1/openapi.yaml", "application/yaml", text)
	for path, body := range more {
		serve(path, jsonMedia, body)
	}
}

// Node is a part of the description.
type Node = map[string]any

// describe renders the description: what huma derives from the endpoints, plus what huma cannot
// express. It changes a copy, because huma validates requests with the original.
func describe(api *huma.OpenAPI, sections []BoundSection) ([]byte, error) {
	d, err := ToNode(api)
	if err != nil {
		return nil, err
	}
	// huma leaves out schemas that it does not refer to. describeConfigs refers to them.
	all, err := ToNode(api.Components.Schemas.Map())
	if err != nil {
		return nil, err
	}
	components := d["components"].(Node)
	components["schemas"] = all
	var endpoints []Endpoint
	for _, section := range sections {
		if section.complete != nil {
			section.complete(all)
		}
		endpoints = append(endpoints, section.Endpoints()...)
	}
	if schema, used := all["Permission"].(Node); used {
		describeUnusedPermissions(schema, endpoints)
	}
	nameNullable(all)
	inRequests := map[string]bool{}
	for i := range endpoints {
		e := &endpoints[i]
		if !e.IsSupported() {
			continue
		}
		op := d["paths"].(Node)[PathPrefix+e.Path].(Node)[strings.ToLower(e.Method)].(Node)
		if e.Upload != nil {
			describeBytes(op["requestBody"].(Node)["content"].(Node))
		}
		reachable(op["requestBody"], all, inRequests)
		if responses := op["responses"].(Node); e.AlsoStatus != 0 {
			responses[strconv.Itoa(e.AlsoStatus)] = maps.Clone(responses[strconv.Itoa(e.Status)].(Node))
			responses[strconv.Itoa(e.AlsoStatus)].(Node)["description"] = http.StatusText(e.AlsoStatus)
		}
		for status, response := range op["responses"].(Node) {
			describeResponse(e, status, response.(Node))
		}
	}
	for name, schema := range all {
		if doc := docOf(api.Components.Schemas.TypeFromRef(SchemaPrefix + name)); doc != "" {
			schema.(Node)["description"] = doc
		}
		if schema := schema.(Node); !inRequests[name] && schema["additionalProperties"] == false {
			delete(schema, "additionalProperties") // responses can get new fields
		}
	}
	RemoveHumaFields(d)
	components["headers"] = ResponseHeaders // all descriptions share them: do not modify
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the description: %w", err)
	}
	return append(text, '\n'), nil
}

// docOf returns the description of a type that has one.
func docOf(t reflect.Type) string {
	if t == nil {
		return "" // the schema has no type of its own
	}
	if described, ok := reflect.Zero(t).Interface().(interface{ Doc() string }); ok {
		return described.Doc()
	}
	return ""
}

// ToNode converts a part of a description.
func ToNode(part any) (out Node, err error) {
	data, err := json.Marshal(part)
	if err != nil {
		return nil, fmt.Errorf("writing the description: %w", err)
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("reading the description: %w", err)
	}
	return out, nil
}

// RefNode refers to a component of a section, such as schemas or headers.
func RefNode(section, name string) Node { return Node{"$ref": "#/components/" + section + "/" + name} }

// namedAs is the extension of a nullable schema that names its component.
const namedAs = "x-named-as"

// nameNullable refers to the components that namedAs names, so that generated clients have one type for each.
func nameNullable(part any) {
	switch part := part.(type) {
	case Node:
		if target, ok := part[namedAs]; ok {
			about := part["description"]
			clear(part)
			part["description"], part["oneOf"] = about, []any{Node{"$ref": target}, Node{"type": "null"}}
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

// describeBytes removes the schemas of binary bodies, as OpenAPI 3.1 requires. With a schema of
// type string generated clients would expect strings.
func describeBytes(content Node) {
	for media := range content {
		content[media] = Node{}
	}
}

// reachable collects the schemas that a part of the description refers to, directly or indirectly.
func reachable(part any, all Node, seen map[string]bool) {
	switch part := part.(type) {
	case Node:
		if name, ok := strings.CutPrefix(fmt.Sprint(part["$ref"]), SchemaPrefix); ok && !seen[name] {
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

// RemoveHumaFields removes fields of huma that OpenAPI does not know.
func RemoveHumaFields(part any) {
	switch part := part.(type) {
	case Node:
		delete(part, "patternDescription")
		for _, inner := range part {
			RemoveHumaFields(inner)
		}
	case []any:
		for _, inner := range part {
			RemoveHumaFields(inner)
		}
	}
}

// ResponseHeaders describe the headers of responses.
var ResponseHeaders = Node{
	"X-Request-Id":           HeaderNode("string", "The ID of the call in the audit log and in the service's logs.", "7c0f5f7e-8d0b-4a52-9f0c-2f7a8f6a1b3c"),
	"RateLimit":              HeaderNode("string", "The project's remaining requests: r is their number, t the seconds until the next one is available.", `"project";r=117;t=42`),
	"RateLimit-Policy":       HeaderNode("string", "The project's rate limit: q requests in any w seconds, for all of its keys together.", `"project";q=120;w=60`),
	"Retry-After":            HeaderNode("integer", "Seconds to wait before a retry.", 2),
	"WWW-Authenticate":       HeaderNode("string", "The authentication scheme.", "Bearer"),
	"ETag":                   HeaderNode("string", "The version of the object. Send it as If-Match with a call that changes the object.", `"0b7e6a1c-4f9d-4c55-8d5e-2a6f1c3b9e77.3"`),
	"Content-Disposition":    HeaderNode("string", "Tells browsers to save the file, and its name.", `attachment; filename=invoice.pdf`),
	"Content-Length":         HeaderNode("integer", "Size of the file in bytes. A shorter response is incomplete.", 48213),
	"X-Content-Type-Options": HeaderNode("string", "Tells browsers to trust Content-Type.", "nosniff"),
	"Location":               HeaderNode("string", "The path of the created object.", "/v1/projects/2b1f6c1e-6d0c-4d2a-9a53-6a0b8d9b7f10/connectors/9a1c5d7e-3f42-4d0b-8c1a-5e7f9b2d4c60"),
}

// HeaderNode describes a header of responses.
func HeaderNode(kind, description string, example any) Node {
	return Node{"description": description, "schema": Node{"type": kind}, "example": example}
}

// describeResponse adds the headers of a response, and the meaning and an example of an error.
func describeResponse(e *Endpoint, status string, response Node) {
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
	if code == e.Status && e.HasETag {
		names = append(names, "ETag")
	}
	if code == e.Status && e.File {
		names = append(names, "Content-Disposition", "Content-Length", "X-Content-Type-Options")
	}
	if code == http.StatusCreated || code == e.Status && e.Effect == EffectCreate {
		names = append(names, "Location")
	}
	shown := Node{}
	for _, name := range names {
		shown[name] = RefNode("headers", name)
	}
	response["headers"] = shown
	i := slices.IndexFunc(errorExamples, func(p Problem) bool { return p.Status == code })
	if i < 0 {
		return
	}
	response["description"] = meanings[code]
	if e.Upload != nil && code == http.StatusRequestEntityTooLarge {
		response["description"] = e.Upload.TooLarge
	}
	if e.Upload != nil && code == http.StatusUnsupportedMediaType {
		response["description"] = e.Upload.Unsupported
	}
	response["content"].(Node)[httpserver.ProblemType].(Node)["example"] = errorExamples[i]
}

// meanings describe the error statuses.
var meanings = map[int]string{
	400: "The request cannot be fulfilled; `detail` says why.",
	401: "The API key is missing, unknown, expired or revoked.",
	403: "The key belongs to another project, the key or its owner lacks the permission, or the key does not reach the environment. Or Kubernetes or a quota of the namespace rejects the change.",
	404: "The project has no such object.",
	408: "The body did not arrive in time.",
	409: "The current state does not allow the call: the name is taken, the object exists already, the project's code or a GitOps controller owns it, or another request changed it at the same time.",
	412: "The object is no longer the version in If-Match.",
	413: "The body is larger than 1 MiB.",
	415: "The body is not application/json, or its charset is not UTF-8.",
	422: "The body is missing or not JSON, or parameters, headers or fields are wrong or unknown; `errors` lists them.",
	429: "The project has reached a rate limit or another limit.",
	500: "An internal error.",
	503: "Kubernetes, the store or a shared resource is not available. The call itself may be correct.",
}

// errorExamples has an example for each status.
var errorExamples = []Problem{
	NewProblem(400, httpserver.CodeSlugTaken, "another environment of the project has this slug; choose another name"),
	NewProblem(401, httpserver.CodeUnauthorized, "a valid API key is needed: Authorization: Bearer ap_…"),
	NewProblem(403, httpserver.CodeForbidden, "the key, or its owner, lacks the permission connectors.create"),
	NewProblem(404, httpserver.CodeNotFound, "this project has no such connector"),
	NewProblem(408, httpserver.CodeTimeout, "request body read timeout"),
	NewProblem(409, httpserver.CodeNameTaken, "another connector of the environment has this name; choose another"),
	NewProblem(412, httpserver.CodePrecondition, "the object has changed since the response with this ETag; read it again"),
	NewProblem(413, httpserver.CodeRequestTooLarge, "request body is too large limit=1048576 bytes"),
	NewProblem(415, httpserver.CodeUnsupportedMedia, "unknown content type: text/plain"),
	Invalid(FieldError{Location: "query.environment_id", Message: "must be a UUID"}),
	NewProblem(429, httpserver.CodeRateLimited, "the project has reached its limit of 120 requests per minute; wait and try again"),
	NewProblem(500, httpserver.CodeInternal, internalDetail),
	NewProblem(503, httpserver.CodeClusterUnavailable, "the Kubernetes API does not answer; try again"),
}
