// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"strings"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// unsupportedAgentQuery are the query parameters of GET /agents/{agent_name}
// that have no effect in this release: it has neither a search nor rates of exchange yet.
var unsupportedAgentQuery = []string{"search", "convert_costs_to"}

// notSupported is the error of a field that has no effect in this release.
func notSupported(location string) FieldError {
	return FieldError{Location: location, Message: "is not supported in this release"}
}

// refuseUnsupported answers 422 for an object that asks for what this release
// does not do. Fields of the spec have the names of those of the body.
func refuseUnsupported(o v1alpha1.ConditionedObject) error {
	var fields []FieldError
	for _, field := range o.Unsupported() {
		path, _, _ := strings.Cut(field, ":")
		fields = append(fields, notSupported("body."+strings.TrimPrefix(path, "spec.")))
	}
	if len(fields) == 0 {
		return nil
	}
	return invalid(fields...)
}
