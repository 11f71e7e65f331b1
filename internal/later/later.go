// SPDX-License-Identifier: Apache-2.0

// Package later names what the platform's contract has and this release has not. Each door
// by which it could come in refuses it by its name, so that nothing of it is ever accepted
// and left undone. What is built leaves this table, and its test then asks who does it.
package later

import (
	"slices"
	"strings"
)

// Door is where a name would come in.
type Door string

// Doors.
const (
	// File is a file of a repository: a build refuses it, and says where it stands.
	File Door = "file"
	// Object is an object of Kubernetes: it is Stalled, NotSupported. What it may not say
	// stands in Unsupported of its kind too, as the API imports nothing of ours.
	Object Door = "object"
	// Body and Query are fields and parameters of the REST API: 422.
	Body  Door = "body"
	Query Door = "query"
	// Endpoint is one of the REST API: 501. Its permission stands among the routes.
	Endpoint Door = "endpoint"
)

// Name is a field, or where Value is not "" only that value of it.
type Name struct {
	Door         Door
	Field, Value string
}

// String is field: value.
func (n Name) String() string {
	if n.Value == "" {
		return n.Field
	}
	return n.Field + ": " + n.Value
}

var names = []Name{
	{File, "agent.type", "tool"},
	{File, "agent.type", "remote"},
	{File, "agent.output_schema", ""},
	{File, "agent.session", ""},
	{File, "agent.guardrails", ""},
	{File, "agent.approval", ""},
	{File, "agent.mcp_servers", ""},
	{File, "tool.condition", ""},
	{File, "link.outbound.mode", "middleware"},
	{File, "case.approval_decisions", ""},
	{File, "folder.middleware", ""},
	{File, "folder.hooks", ""},
	{File, "folder.tools", ""},
	{File, "folder.guardrails", ""},
	{File, "folder.schemas", ""},

	{Object, "ConnectorLink.outbound.mode", "Middleware"},
	{Object, "Project.modelProviders[].type", "Anthropic"},
	{Object, "Project.modelProviders[].type", "Gemini"},

	{Body, "outbound.mode", "middleware"},

	{Query, "guardrail_outcome", ""},
	{Query, "status_filter", "scheduled"},
	{Query, "status_filter", "awaiting_approval"},

	{Endpoint, "GET /runs/{run_id}/events", ""},
	{Endpoint, "POST /retrieval/text", ""},
	{Endpoint, "POST /retrieval/query", ""},
	{Endpoint, "GET /approvals", ""},
	{Endpoint, "POST /approvals/{approval_id}/decide", ""},
	{Endpoint, "GET /judges", ""},
	{Endpoint, "GET /budgets", ""},
}

// At are the names of a door.
func At(door Door) []Name {
	return slices.DeleteFunc(slices.Clone(names), func(n Name) bool { return n.Door != door })
}

// Has says whether a field, or a value of it, is for later.
func Has(door Door, field, value string) bool {
	return slices.Contains(names, Name{door, field, value})
}

// FieldsOf are the fields of a thing, such as agent, that are for later whatever they say.
func FieldsOf(door Door, thing string) (fields []string) {
	for _, n := range names {
		if field, of := strings.CutPrefix(n.Field, thing+"."); of && n.Door == door && n.Value == "" {
			fields = append(fields, field)
		}
	}
	return fields
}
