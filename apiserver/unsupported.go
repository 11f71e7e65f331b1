// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// unsupportedHeaders are request headers of writing calls that have no effect in
// this release; a retry or a precondition that is only believed in does harm.
var unsupportedHeaders = []string{"Idempotency-Key", "If-Match"}

// unsupportedAgentQuery are the query parameters of GET /agents/{agent_name}
// that have no effect in this release: it has no statistics yet.
var unsupportedAgentQuery = []string{
	"time_range", "start_date", "end_date", "deployment_id", "status_filter", "guardrail_outcome", "test_name",
	"exclude_test_runs", "search", "convert_costs_to",
}

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

// refuseHeaders is the middleware that answers 422 for unsupportedHeaders.
func (s *Server) refuseHeaders(ctx huma.Context, next func(huma.Context)) {
	for _, name := range unsupportedHeaders {
		if ctx.Header(name) == "" {
			continue
		}
		field := notSupported("header." + name)
		err := huma.WriteErr(s.api, ctx, http.StatusUnprocessableEntity, "the request is not valid",
			&huma.ErrorDetail{Location: field.Location, Message: field.Message})
		if err != nil {
			s.logger.DebugContext(ctx.Context(), "the client went before its answer", "error", err)
		}
		return
	}
	next(ctx)
}

// Resolve refuses what would be ignored.
func (in *AgentInput) Resolve(ctx huma.Context) []error {
	var out []error
	url := ctx.URL()
	query := url.Query()
	for _, name := range unsupportedAgentQuery {
		if query.Has(name) {
			field := notSupported("query." + name)
			out = append(out, &huma.ErrorDetail{Location: field.Location, Message: field.Message})
		}
	}
	return out
}
