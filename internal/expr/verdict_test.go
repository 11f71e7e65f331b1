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

func TestVerdict_Holds(t *testing.T) {
	t.Parallel()
	run := expr.Ended{
		Output: `{"total": 3, "name": "Ada"}`, Error: "", Status: "completed",
		Context: map[string]any{"input": map[string]any{"id": 7.0}, "headers": map[string]any{"x-github-event": "push"}},
	}
	for expression, want := range map[string]bool{
		`output.contains("Ada")`:                         true,
		`output.contains("Bob")`:                         false,
		`output.lowerAscii().contains("ada")`:            true,
		`status == "completed" && error == ""`:           true,
		`json(output).total == 3`:                        true,
		`json(output).total > 2.5`:                       true,
		`json(output).name == "Ada" && size(output) > 3`: true,
		`context.input.id == 7`:                          true,
		`context.headers["x-github-event"] == "push"`:    true,
		`output.matches("total.*3")`:                     true,
		`output.replace("Ada", "Bob").contains("Bob")`:   true,
		`output.replace("a", "b", 1).indexOf("b") == 5`:  true,
		`"%d, %s".format([3, "a"]) == "3, a" && ["a", "b"].join("-") == "a-b" && ["a", "b"].join() == "ab"`: true,
		`"abab".lastIndexOf("b") == 3 && "abab".indexOf("b", 2) == 3`:                                       true,
	} {
		t.Run(expression, func(t *testing.T) {
			v, err := expr.NewVerdict(expression)
			require.NoError(t, err)
			holds, err := v.Holds(t.Context(), run)
			require.NoError(t, err)
			require.Equal(t, want, holds)
		})
	}
}

// Two JSON numbers are equal if and only if their digits say so, regardless of CEL's numbers.
func TestVerdict_ComparesNumbersByTheirDigits(t *testing.T) {
	t.Parallel()
	run := expr.Ended{
		Output: `{"id": 9007199254740993, "huge": 99999999999999999999, "long": 0.1000000000000000055511151231257827}`, Status: "completed",
		Context: map[string]any{"input": map[string]any{
			"id": json.Number("9007199254740993"), "near": json.Number("9007199254740992.0"), "unsigned": json.Number("18446744073709551615"),
			"huge": json.Number("99999999999999999999"), "next": json.Number("100000000000000000000"), "same": json.Number("99999999999999999999.0"),
			"long": json.Number("0.1000000000000000055511151231257827"), "short": json.Number("0.1"), "beyond": json.Number("1e400"),
			"list": []any{json.Number("99999999999999999999")}, "exponent": json.Number("1e6"),
		}},
	}
	for expression, want := range map[string]bool{
		`context.input.id == 9007199254740993`:                        true,
		`context.input.id == 9007199254740992`:                        false,
		`context.input.id == context.input.near`:                      false,
		`context.input.near == 9007199254740992`:                      true,
		`context.input.id == json(output).id`:                         true,
		`context.input.unsigned == 18446744073709551615u`:             true,
		`context.input.huge == json(output).huge`:                     true,
		`context.input.huge == context.input.same`:                    true,
		`context.input.huge == context.input.next`:                    false,
		`context.input.next == context.input.huge`:                    false,
		`context.input.huge == 1e20`:                                  false,
		`1e20 == context.input.huge`:                                  false,
		`context.input.next == 1e20`:                                  true,
		`context.input.huge in context.input.list`:                    true,
		`context.input.next in context.input.list`:                    false,
		`{"a": context.input.huge} == {"a": json(output).huge}`:       true,
		`context.input.long == 0.1`:                                   false,
		`context.input.long == context.input.short`:                   false,
		`context.input.long == json(output).long`:                     true,
		`double(context.input.long) == 0.1`:                           true,
		`string(context.input.huge) == "99999999999999999999"`:        true,
		`context.input.beyond == context.input.huge`:                  false,
		`context.input.beyond == 1.0 / 0.0`:                           false,
		`context.input.exponent == 1000000`:                           true,
		`context.input.short == 0.1 && context.input.short > 0`:       true,
		`context.input.huge != 1 && !(context.input.huge == 1)`:       true,
		`context.input.filter(k, context.input[k] == 1e20).size()==1`: true,
	} {
		t.Run(expression, func(t *testing.T) {
			t.Parallel()
			v, err := expr.NewVerdict(expression)
			require.NoError(t, err)
			holds, err := v.Holds(t.Context(), run)
			require.NoError(t, err)
			require.Equal(t, want, holds)
		})
	}
}

func TestNewVerdict_RejectsInvalidExpressions(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		`output ==`:               "at line 1",
		`outpt == "x"`:            "undeclared reference to 'outpt'",
		`output`:                  "it returns a string; write a condition",
		strings.Repeat("a", 2000): "more than 1024 bytes",
	} {
		t.Run(fmt.Sprintf("%.60s", expression), func(t *testing.T) {
			_, err := expr.NewVerdict(expression)
			require.ErrorContains(t, err, want, expression)
		})
	}
}

func TestVerdict_ReturnsEvaluationErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ expression, output, want string }{
		"no JSON":       {`json(output).a == 1`, "hello", "the text is not JSON"},
		"long order":    {`json(output).a > 1`, `{"a":99999999999999999999}`, "no such overload"},
		"order of long": {`1 < json(output).a`, `{"a":99999999999999999999}`, "no such overload"},
		"no such key":   {`json(output).b == 1`, `{"a":1}`, "no such key"},
		"no condition":  {`json(output).a`, `{"a":1}`, "it must return true or false, not a double"},
		"too many":      {`size(json(output)) > 0`, "[0" + strings.Repeat(",0", 200_000) + "]", "more than 100000 values"},
		"too dear":      {strings.Repeat(`output.contains("b") || `, 30) + `false`, strings.Repeat("a", 1<<20), "cost limit exceeded"},
		"json costs":    {strings.Repeat(`size(json(output)) == 1 || `, 30) + `false`, `["` + strings.Repeat("a", 1<<20) + `", 1]`, "cost limit exceeded"},
		"replace grows": {`size("aaaaaaaaaa"` + strings.Repeat(`.replace("a", "aaaaaaaaaa")`, 8) + `) > 0`, "", "replace: cost limit exceeded"},
		"in one step":   {`output.replace("a", output) == ""`, strings.Repeat("a", 1<<20), "replace: cost limit exceeded"},
		"between":       {`output.split("").join(output) == ""`, strings.Repeat("a", 10<<10), "join: cost limit exceeded"},
		"parts":         {`[` + strings.Repeat("output, ", 30) + `output].join() == ""`, strings.Repeat("a", 1<<20), "join: cost limit exceeded"},
		"format":        {`"` + strings.Repeat("%s", 30) + `".format([` + strings.Repeat("output, ", 29) + `output]) == ""`, strings.Repeat("a", 1<<20), "cost limit exceeded"},
		"search":        {`output.indexOf(output) == 1`, strings.Repeat("a", 1<<20), "cost limit exceeded"},
		"from the end":  {`output.lastIndexOf(output) == 1`, strings.Repeat("a", 1<<20), "cost limit exceeded"},
		"matches costs": {strings.Repeat(`output.matches("(a|b)*c") || `, 30) + `false`, strings.Repeat("a", 1<<20), "cost limit exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := expr.NewVerdict(c.expression)
			require.NoError(t, err)
			_, err = v.Holds(t.Context(), expr.Ended{Output: c.output})
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestVerdict_LooksAt(t *testing.T) {
	t.Parallel()
	v, err := expr.NewVerdict(`!output.contains("x") && [1].exists(e, status == "failed" && e == 1)`)
	require.NoError(t, err)
	require.True(t, v.LooksAt("output"))
	require.True(t, v.LooksAt("status"))
	require.False(t, v.LooksAt("error"))
}

func TestVerdict_EndsWithContext(t *testing.T) {
	t.Parallel()
	v, err := expr.NewVerdict(`json(output).all(a, a == 1)`)
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("it is late"))
	_, err = v.Holds(ctx, expr.Ended{Output: "[1" + strings.Repeat(",1", 10_000) + "]"})
	require.ErrorContains(t, err, "it is late")
}
