// SPDX-License-Identifier: Apache-2.0

// Package unsupported names the fields and values of the platform's API that this release rejects, so that nothing
// unsupported is ever accepted and ignored. Two kinds of parts are declared elsewhere: unsupported keys of a repository's
// files by tags in package bundle, and unsupported endpoints of the REST API by declarations without a handler in package
// apiserver. A part that becomes supported leaves this table.
package unsupported

import "slices"

// Location is the part of the API that has a field.
type Location string

// Locations.
const (
	// Object is a Kubernetes object: it is Stalled with NotSupported. Unsupported of its kind names the
	// same values, because package api imports no other package of the project.
	Object Location = "object"
	// Query is a parameter of the REST API: 422.
	Query Location = "query"
)

// Name is a field, or only one value of it if Value is set.
type Name struct {
	Location     Location
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
	{Object, "Project.modelProviders[].type", "Anthropic"},
	{Object, "Project.modelProviders[].type", "Gemini"},

	{Query, "guardrail_outcome", ""},
	{Query, "status_filter", "scheduled"},
	{Query, "status_filter", "awaiting_approval"},
}

// At returns the names of a location.
func At(location Location) []Name {
	return slices.DeleteFunc(slices.Clone(names), func(n Name) bool { return n.Location != location })
}

// Has reports whether a field, or a value of it, is unsupported.
func Has(location Location, field, value string) bool {
	return slices.Contains(names, Name{location, field, value})
}
