// SPDX-License-Identifier: Apache-2.0

package expr_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/expr"
)

func TestVerdicts(t *testing.T) {
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
	} {
		v, err := expr.NewVerdict(expression)
		require.NoError(t, err, expression)
		holds, err := v.Holds(run)
		require.NoError(t, err, expression)
		require.Equal(t, want, holds, expression)
	}
}

func TestVerdictsThatAreNone(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		`output ==`:               "at its line 1",
		`outpt == "x"`:            "undeclared reference to 'outpt'",
		`output`:                  "it yields a string; write a condition",
		strings.Repeat("a", 2000): "more than 1024 bytes",
	} {
		_, err := expr.NewVerdict(expression)
		require.ErrorContains(t, err, want, expression)
	}
}

func TestVerdictsThatCannotBeGiven(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ expression, output, want string }{
		"no JSON":       {`json(output).a == 1`, "hello", "the text is no JSON"},
		"no such key":   {`json(output).b == 1`, `{"a":1}`, "no such key"},
		"no condition":  {`json(output).a`, `{"a":1}`, "it yields no true or false but a double"},
		"too many":      {`size(json(output)) > 0`, "[0" + strings.Repeat(",0", 200_000) + "]", "more than 100000 values"},
		"too dear":      {strings.Repeat(`output.contains("b") || `, 30) + `false`, strings.Repeat("a", 1<<20), "cost limit exceeded"},
		"matches costs": {strings.Repeat(`output.matches("(a|b)*c") || `, 30) + `false`, strings.Repeat("a", 1<<20), "cost limit exceeded"},
	} {
		v, err := expr.NewVerdict(c.expression)
		require.NoError(t, err, name)
		_, err = v.Holds(expr.Ended{Output: c.output})
		require.ErrorContains(t, err, c.want, name)
	}
}

func TestWhatAVerdictLooksAt(t *testing.T) {
	t.Parallel()
	v, err := expr.NewVerdict(`!output.contains("x") && [1].exists(e, status == "failed" && e == 1)`)
	require.NoError(t, err)
	require.True(t, v.LooksAt("output"))
	require.True(t, v.LooksAt("status"))
	require.False(t, v.LooksAt("error"))
}
