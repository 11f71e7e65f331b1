// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
)

// onResponses are the names of an expression on an HTTP response.
var onResponses = slices.Concat(onJSON, []cel.EnvOption{
	cel.Variable("status", cel.IntType), cel.Variable("headers", cel.MapType(cel.StringType, cel.StringType)), cel.Variable("body", cel.DynType),
})

// responses is the environment of expressions on HTTP responses.
var responses = mustEnv(onResponses)

// Response is an expression that computes a JSON value from an HTTP response.
type Response struct{ evaluation *evaluation }

// HTTPResponse is a response for an expression. Headers have lower-case names. Body is decoded by
// exactjson, or is a text; the expression may change it in place.
type HTTPResponse struct {
	Status  int
	Headers map[string]string
	Body    any
}

// NewResponse compiles an expression over status, headers and body.
func NewResponse(expression string) (*Response, error) {
	checked, err := checkExpression(responses, expression)
	if err != nil {
		return nil, err
	}
	evaluation, err := planned(responses, checked, maxVerdictCost)
	if err != nil {
		return nil, err
	}
	return &Response{evaluation: evaluation}, nil
}

// Value evaluates the expression. It returns a value for json.Marshal whose numbers have all
// digits. It returns an error if the value has no JSON, or if the context ends before.
func (r *Response) Value(ctx context.Context, response HTTPResponse) (any, error) {
	headers := response.Headers
	if headers == nil {
		headers = map[string]string{}
	}
	value, _, err := r.evaluation.evaluate(ctx, map[string]any{"status": response.Status, "headers": headers, "body": withValues(response.Body)})
	if err != nil {
		return nil, err
	}
	out, err := new(jsonConverter).convert(value, 0)
	if err != nil {
		return nil, fmt.Errorf("it cannot be written as JSON: %w", err)
	}
	return out, nil
}
