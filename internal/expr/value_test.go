// SPDX-License-Identifier: Apache-2.0

package expr_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/expr"
)

// valueOf compiles an expression over ticket, order and text.
func valueOf(t testing.TB, expression string) (*expr.Value, error) {
	t.Helper()
	variables, err := expr.NewVariables([]string{"ticket", "order", "text"})
	require.NoError(t, err)
	return variables.NewValue(expression)
}

// namedValues decodes a value of ticket.
func namedValues(t testing.TB, ticket string) map[string]any {
	t.Helper()
	value, err := expr.Input([]byte(ticket))
	require.NoError(t, err)
	return map[string]any{"ticket": value, "order": nil, "text": "hello"}
}

func TestValue_ComputesJSON(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		`ticket.id`:                              `9007199254740993`,
		`ticket.long`:                            `123456789012345678901234567890`,
		`{"order": ticket.id, "text": text}`:     `{"order":9007199254740993,"text":"hello"}`,
		`order`:                                  `null`,
		`order == null ? "none" : "some"`:        `"none"`,
		`ticket.tags.map(t, t + "!")`:            `["a!","b!"]`,
		`json("{\"a\": 1}").a`:                   `1`,
		`text.upperAscii()`:                      `"HELLO"`,
		`[text, ticket.tags[1]]`:                 `["hello","b"]`,
		`5`:                                      `5`,
		`has(ticket.other) ? ticket.other : "-"`: `"-"`,
	} {
		t.Run(expression, func(t *testing.T) {
			value, err := valueOf(t, expression)
			require.NoError(t, err)
			got, err := value.Compute(t.Context(), namedValues(t, `{"id":9007199254740993,"long":123456789012345678901234567890,"tags":["a","b"]}`))
			require.NoError(t, err)
			text, err := json.Marshal(got)
			require.NoError(t, err)
			require.Equal(t, want, string(text))
		})
	}
}

func TestValue_Holds(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]bool{`ticket.n > 1`: true, `order != null`: false, `ticket.open`: true, `text == "bye"`: false} {
		t.Run(expression, func(t *testing.T) {
			value, err := valueOf(t, expression)
			require.NoError(t, err)
			holds, err := value.Holds(t.Context(), namedValues(t, `{"n":2,"open":true}`))
			require.NoError(t, err)
			require.Equal(t, want, holds)
		})
	}
}

// The error of a run says why an expression failed, and never contains data.
func TestValue_ErrorsHaveNoData(t *testing.T) {
	t.Parallel()
	const secret = "4711"
	cause := errors.New("stopped")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for _, row := range []struct {
		name, expression, want string
		ctx                    func() context.Context
	}{
		{"missing key", `ticket.category == "x"`, "no such key: category", nil},
		{"computed key", `{"a": 1}[ticket.id]`, "no such key", nil},
		{"conversion", `int(ticket.words)`, "an operation of it is not possible with these values", nil},
		{"types", `ticket.id + 1`, "no such overload", nil},
		{"division", `1 / (ticket.zero > 0.0 ? 1 : 0)`, "division by zero", nil},
		{"no JSON", `json(ticket.words)`, "json: the text is not JSON", nil},
		{"no condition", `ticket.id`, "it returns a string; write a condition that is true or false", nil},
		{"cost", `ticket.list.all(a, ticket.list.all(b, ticket.list.all(c, true)))`, "a loop: cost limit exceeded; simplify the expression, or read less data", nil},
		{"ended context", `true`, "stopped", func() context.Context { return ended }},
	} {
		t.Run(row.name, func(t *testing.T) {
			value, err := valueOf(t, row.expression)
			require.NoError(t, err)
			ctx := t.Context()
			if row.ctx != nil {
				ctx = row.ctx()
			}
			_, err = value.Holds(ctx, namedValues(t, fmt.Sprintf(`{"id":%q,"words":"w %s","zero":0,"list":[%s1]}`, secret, secret, strings.Repeat("1,", 500))))
			require.EqualError(t, err, row.want)
			require.NotContains(t, err.Error(), secret)
		})
	}
}

func TestValue_RejectsUnusableResults(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		`b"x"`:                          "it cannot be written as JSON: it has a bytes; convert it with string()",
		`{1: 2}`:                        "it cannot be written as JSON: a key is a int; keys are texts",
		`ticket.map(a, ticket)`:         "it cannot be written as JSON: it has more than 1048576 bytes",
		`duration("1s")`:                "it cannot be written as JSON: it has a google.protobuf.Duration; convert it with string()",
		`{"n": double("1e308") * 10.0}`: "it cannot be written as JSON: it has a number that is not finite",
	} {
		t.Run(expression, func(t *testing.T) {
			value, err := valueOf(t, expression)
			require.NoError(t, err)
			_, err = value.Compute(t.Context(), namedValues(t, "["+strings.Repeat("1,", 2000)+"1]"))
			require.EqualError(t, err, want)
		})
	}
}

// A problem has the position in the expression.
func TestNewValue_ReportsProblems(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		`ticket.`:                          "at line 1, column 8: Syntax error",
		`ticket == unknown`:                "at line 1, column 11: undeclared reference to 'unknown'",
		"ticket ==\n  now()":               "at line 2, column 6: undeclared reference to 'now'",
		`text.matches(order)`:              "at line 1, column 14: the pattern of matches must be a string literal",
		`timestamp(text).getMinutes(text)`: "",
		strings.Repeat(" ", 1024) + "1":    "the expression has more than 1024 bytes",
	} {
		t.Run(strings.TrimSpace(expression), func(t *testing.T) {
			_, err := valueOf(t, expression)
			if want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, want)
			var problem *expr.Problem
			require.Equal(t, strings.HasPrefix(want, "at line"), errors.As(err, &problem))
		})
	}
}

func TestValue_Uses(t *testing.T) {
	t.Parallel()
	value, err := valueOf(t, "text == \"a\" &&\n  ticket.list.exists(order, order == text) && [1].all(n, n > 0)")
	require.NoError(t, err)
	require.Equal(t, []expr.Use{{"text", 1, 1}, {"ticket", 2, 3}, {"order", 2, 29}}, value.Uses())
}

func TestIsVariable_RejectsNamesOfCEL(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"ticket": true, "_x9": true, "size": true, "json": true,
		"": false, "9a": false, "a-b": false, "a.b": false, "in": false, "true": false, "null": false, "package": false, "void": false,
		"int": false, "list": false, "type": false, "null_type": false, "google": true, " a": false, "`a`": false,
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, want, expr.IsVariable(name))
			if want {
				variables, err := expr.NewVariables([]string{name})
				require.NoError(t, err)
				value, err := variables.NewValue(name)
				require.NoError(t, err)
				got, err := value.Compute(t.Context(), map[string]any{name: "x"})
				require.NoError(t, err)
				require.Equal(t, "x", got)
			}
		})
	}
}

func BenchmarkNewValue(b *testing.B) {
	variables, err := expr.NewVariables([]string{"ticket"})
	require.NoError(b, err)
	for b.Loop() {
		_, err := variables.NewValue(`ticket.category == "billing"`)
		require.NoError(b, err)
	}
}

func BenchmarkNewVariables(b *testing.B) {
	for b.Loop() {
		_, err := expr.NewVariables([]string{"ticket"})
		require.NoError(b, err)
	}
}
