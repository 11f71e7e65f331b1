// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/internal/expr"
)

// DefaultHTTPTimeout is the time limit of a request without the key timeout.
const DefaultHTTPTimeout = 30 * time.Second

// ToolFile is a file tools/**/*.yaml with HTTP requests that agents can send. See docs/http-tools.md.
type ToolFile struct {
	BaseURL  string                  `yaml:"base_url" variables:"any" required:"true" form:"url" example:"'${ORDERS_URL}'" doc:"URL that the paths of all requests continue, http or https. It may contain variables of the environment, as '${NAME}'."`
	Headers  map[string]string       `yaml:"headers" variables:"any" example:"{X-Tenant: '${TENANT}'}" doc:"Headers of all requests. A value may contain variables, as '${NAME}'."`
	OAuthApp string                  `yaml:"oauth_app" form:"label" example:"orders" doc:"OAuth app of the environment whose access token is sent with all requests. Not together with a header 'Authorization'."`
	Timeout  Duration                `yaml:"timeout" over:"0" example:"5s" doc:"Time limit of a request with its redirects."`
	Tools    map[string]*ToolRequest `yaml:"tools" required:"true" example:"{look_up: {description: State of an order, parameters: {order: {type: integer}, fields: {type: string, optional: true}}, request: 'GET /orders/{order}', query: {fields: '{fields}'}, headers: {X-Order: '{order}'}, result: body.state, on_status: {'404': There is no such order.}}, note: {description: Adds a note, parameters: {text: {type: string}}, request: POST /notes, json: {note: '{text}'}, idempotent: true}, search: {description: Finds orders, parameters: {q: {type: string}}, request: POST /search, form: {q: '{q}'}}}" doc:"Requests, by the names of the tools: letters, digits, '_' and '-'. An agent names a tool by folder, file and name, such as 'orders.look_up'."`

	// SourcePath is the file.
	SourcePath string
	source     *node
}

// ToolRequest is one HTTP request that agents can send.
type ToolRequest struct {
	Description string            `yaml:"description" required:"true" example:"State of an order" doc:"Description for the model."`
	Parameters  ToolParameters    `yaml:"parameters" example:"{order: {type: integer}}" doc:"Arguments of the tool: a JSON Schema for each, or one JSON Schema with '{type: object}' for all. All are required, except with '{optional: true}' or a 'default'."`
	Request     string            `yaml:"request" variables:"any" required:"true" example:"GET /orders/{order}" doc:"Method and path. The path continues 'base_url'. A value for '{name}' is escaped, so it cannot add a segment."`
	Query       map[string]string `yaml:"query" variables:"any" example:"{fields: '{fields}'}" doc:"Query parameters. A list as the whole value repeats the parameter."`
	Headers     map[string]string `yaml:"headers" variables:"any" example:"{X-Order: '{order}'}" doc:"Headers, in addition to the headers of the file."`
	JSON        any               `yaml:"json" variables:"any" example:"{note: '{text}'}" doc:"JSON body. A text that is one placeholder becomes the value of the argument with its own type."`
	Form        map[string]string `yaml:"form" variables:"any" example:"{q: '{q}'}" doc:"Fields of a form as body, in place of 'json'."`
	Result      string            `yaml:"result" without:"status and body, at most 16 KiB" example:"body.state" doc:"CEL expression over status, headers and body that returns the result for the model."`
	OnStatus    map[string]string `yaml:"on_status" example:"{'404': There is no such order.}" doc:"Errors for the model by the status of the response."`
	Idempotent  bool              `yaml:"idempotent" without:"true for GET, HEAD and OPTIONS, else false" example:"true" doc:"Whether a repeated request has no other effect than one. A read always is. A request that was interrupted is then sent again, else the run fails."`
}

// HTTPTool is a request that an agent can send, from a file in tools/ or from an OpenAPI document.
type HTTPTool struct {
	// Reference is the name that agents use: folder.file.name, or api:name.operationId.
	Reference string
	// API is the OpenAPI document, "" for a tool of a file in tools/. See ForAgent.
	API string
	// Name is the name that models use.
	Name string
	// Description describes the tool for models.
	Description string
	// Parameters is the JSON Schema of the arguments. It has no references.
	Parameters map[string]any
	// Defaults are the values of missing arguments.
	Defaults map[string]any

	Method string
	// BaseURL has no arguments. Path continues it.
	BaseURL, Path        Template
	Query, Headers, Form []HTTPField
	// Body is a JSON value whose texts are Templates, nil if the request has no JSON body.
	Body any
	// OAuthApp is the OAuth app whose access token is sent, "" for none.
	OAuthApp string
	// BasicAuth are the user name and the password, nil without basic authentication.
	BasicAuth *[2]Template

	// Result computes the result for the model, nil for the default.
	Result *expr.Response
	// OnStatus are the errors for the model by status.
	OnStatus   map[int]string
	Timeout    time.Duration
	Idempotent bool

	at, appAt Position
}

// HTTPField is a query parameter, a header or a field of a form.
type HTTPField struct {
	Name  string
	Value Template
	// Style is the form of a list or an object that is the whole value.
	Style FieldStyle
}

// FieldStyle is the form of a list or an object in a URL, by the names of OpenAPI.
type FieldStyle string

// Styles of fields.
const (
	// StyleExploded repeats the field for each item of a list, and has a field for each property of an object.
	StyleExploded FieldStyle = ""
	// StyleJoined joins the items of a list with commas.
	StyleJoined FieldStyle = "form"
	// StyleSpaces and StylePipes join the items with spaces or |.
	StyleSpaces FieldStyle = "spaceDelimited"
	StylePipes  FieldStyle = "pipeDelimited"
	// StyleDeepObject has a field name[property] for each property of an object.
	StyleDeepObject FieldStyle = "deepObject"
)

// IsRead reports whether the request only reads, by its method.
func (t *HTTPTool) IsRead() bool {
	return t.Method == http.MethodGet || t.Method == http.MethodHead || t.Method == http.MethodOptions
}

// newToolFile returns a file with the defaults of all keys.
func newToolFile(file string, source *node) ToolFile {
	return ToolFile{Timeout: Duration(DefaultHTTPTimeout), SourcePath: file, source: source}
}

// wildcard ends a reference to several tools.
const wildcard = "*"

// HTTPTools returns the HTTP tools that a reference names, in the order of their references: one tool, or all
// of a file for orders.*, or the operations of a document whose names have a prefix for api:shop.get*. It returns nil if no HTTP tool has the reference.
func (p *Project) HTTPTools(reference string) []*HTTPTool {
	prefix, isWildcard := strings.CutSuffix(reference, wildcard)
	if !isWildcard {
		if t := p.httpTools[reference]; t != nil {
			return []*HTTPTool{t}
		}
		return nil
	}
	var out []*HTTPTool
	for _, known := range slices.Sorted(maps.Keys(p.httpTools)) {
		name, matches := strings.CutPrefix(known, prefix)
		if matches && (strings.HasPrefix(known, apiPrefix) || !strings.Contains(name, ".")) {
			out = append(out, p.httpTools[known])
		}
	}
	return out
}

// codeReferences returns the references of the HTTP tools and the functions of scripts that a reference of an agent names.
func (p *Project) codeReferences(reference string) (references []string) {
	for _, t := range p.HTTPTools(reference) {
		references = append(references, t.Reference)
	}
	return append(references, p.scriptReferences(reference)...)
}
