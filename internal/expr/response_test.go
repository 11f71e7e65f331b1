// SPDX-License-Identifier: Apache-2.0

package expr_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/expr"
)

// A result has the JSON values of the response, with all digits.
func TestResponse_ReturnsJSON(t *testing.T) {
	t.Parallel()
	body := `{"id":9007199254740993,"big":123456789012345678901234567890,"price":1.10,"n":1e3,"neg":-0.5,"ok":true,"none":null,` +
		`"items":[{"sku":"a","count":2},{"sku":"b","count":1}]}`
	for name, c := range map[string]struct{ expression, want string }{
		"field":               {`body.ok`, `true`},
		"integer beyond 2^53": {`{"id": body.id}`, `{"id":9007199254740993}`},
		"number of 30 digits": {`body.big`, `123456789012345678901234567890`},
		"fraction":            {`body.price`, `1.1`},
		"exponent":            {`body.n`, `1000`},
		"negative":            {`[body.neg]`, `[-0.5]`},
		"null":                {`body.none`, `null`},
		"list":                {`body.items.map(i, i.sku)`, `["a","b"]`},
		"filtered":            {`body.items.filter(i, i.count > 1)`, `[{"count":2,"sku":"a"}]`},
		"status and header":   {`{"s": status, "t": headers["content-type"]}`, `{"s":200,"t":"application/json"}`},
		"whole body":          {`body.items[1]`, `{"count":1,"sku":"b"}`},
		"missing field":       {`has(body.other) ? body.other : "none"`, `"none"`},
		"text":                {`string(status)`, `"200"`},
		"uint":                {`uint(5)`, `5`},
		"nested json":         {`json("[1, {\"a\": 2}]")`, `[1,{"a":2}]`},
	} {
		t.Run(name, func(t *testing.T) {
			var decoded any
			require.NoError(t, exactjson.Decode([]byte(body), &decoded))
			result, err := expr.NewResponse(c.expression)
			require.NoError(t, err)
			value, err := result.Value(t.Context(), expr.HTTPResponse{Status: 200, Headers: map[string]string{"content-type": "application/json"}, Body: decoded})
			require.NoError(t, err)
			text, err := json.Marshal(value)
			require.NoError(t, err)
			require.Equal(t, c.want, string(text), "keys are sorted")
		})
	}
}

func TestResponse_RejectsInvalidExpressions(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"body.":                   "at line 1, column",
		"output":                  "undeclared reference",
		"body.matches(body.p)":    "must be a string literal",
		strings.Repeat("1+", 600): "more than 1024 bytes",
		"timestamp(body.at).x":    "does not support field selection",
	} {
		t.Run(expression[:min(len(expression), 20)], func(t *testing.T) {
			_, err := expr.NewResponse(expression)
			require.ErrorContains(t, err, want)
		})
	}
}

func TestResponse_FailsOnUnusableValues(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx        context.Context //nolint:containedctx // a row
		expression string
		body       any
		want       string
	}{
		"missing field":   {t.Context(), "body.x", map[string]any{}, "no such key"},
		"text, not a map": {t.Context(), "body.x", "<html>", "no such"},
		"bytes":           {t.Context(), "bytes('a')", nil, "it has a bytes; convert it with string()"},
		"key of a number": {t.Context(), "{1: 2}", nil, "keys are texts"},
		"not finite":      {t.Context(), "1.0 / 0.0", nil, "not finite"},
		"too expensive":   {t.Context(), "body.map(a, body.map(b, body.map(c, 1)))", make([]any, 1000), "cost limit exceeded"},
		"repeated body":   {t.Context(), "body.map(a, body)", make([]any, 2000), "it has more than 1048576 bytes"},
		"ended context":   {ended, "1", nil, "canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := expr.NewResponse(c.expression)
			require.NoError(t, err)
			_, err = result.Value(c.ctx, expr.HTTPResponse{Status: 200, Body: c.body})
			require.ErrorContains(t, err, c.want)
		})
	}
}
