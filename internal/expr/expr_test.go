// SPDX-License-Identifier: Apache-2.0

package expr_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/expr"
)

func TestOn_EvaluatesKeys(t *testing.T) {
	t.Parallel()
	deep := `{"n":[[` + strings.Repeat("1,", 20_000) + `1]]}`
	for _, c := range []struct{ expression, input, key, err string }{
		{`input.id`, `{"id":"a b"}`, "a b", ""},
		{`input.id`, `{"id":""}`, "", ""},
		{`input.id`, `{"id":7}`, "7", ""},
		{`input.id`, `{"id":7.5}`, "7.5", ""},
		{`input.id`, `{"id":1e20}`, "100000000000000000000", ""},
		{`input.id`, `{"id":9007199254740993}`, "9007199254740993", ""}, // no double has this value
		{`input.id`, `{"id":-9223372036854775808}`, "-9223372036854775808", ""},
		{`input.id`, `{"id":18446744073709551615}`, "18446744073709551615", ""},
		{`input.id`, `{"id":99999999999999999999}`, "99999999999999999999", ""}, // no number of CEL has this value
		{`input.id`, `{"id":0.1000000000000000055511151231257827}`, "0.1000000000000000055511151231257827", ""},
		{`double(input.id)`, `{"id":0.1000000000000000055511151231257827}`, "0.1", ""},
		{`string(input.id) + "!"`, `{"id":99999999999999999999}`, "99999999999999999999!", ""},
		{`input.id`, `{"id":true}`, "true", ""},
		{`input.id * 2.0`, `{"id":2}`, "4", ""},
		{`size(input.list)`, `{"list":[1,2]}`, "2", ""},
		{`uint(3)`, `{}`, "3", ""},
		{`input`, `"text"`, "text", ""},
		{`has(input.id) ? input.id : ''`, `{}`, "", ""},
		{`input.customer.id + '/' + string(input.list[1])`, `{"customer":{"id":"c"},"list":[1,2]}`, "c/2", ""},
		{`input.id`, `{}`, "", "no such key: id"},
		{`input.id`, `{"id":null}`, "", "it returns a null_type; a key is a string, a number or a bool"},
		{`input.id`, `{"id":[1]}`, "", "it returns a list; a key is a string, a number or a bool"},
		{`input.id`, `not JSON`, "", "the input is not JSON"},
		{`input.id`, `{"id":1} {}`, "", "the input is not JSON: unexpected data after the value"},
		{`input.id`, ``, "", "the input is not JSON"},
		{`input.id.matches("^a+$")`, `{"id":"aaa"}`, "true", ""},
		{`matches(input.id, "^a+$")`, `{"id":"b"}`, "false", ""},
		{`matches(input.id, "^a+$")`, `{"id":1}`, "", "no such overload"},
		{`input.id.matches("(?:ab){450}c")`, `{"id":"` + strings.Repeat("ab", 400) + `"}`, "", "cost limit"}, // the pattern has 12 bytes
		{`input.list.filter(a, input.id.matches("(?:ab){450}c")).size()`, `{"id":"ab","list":[` + strings.Repeat("1,", 200) + `1]}`, "", "cost limit"},
		{`input.n == input.n && input.n != input.m && input.n in [input.n] && input.n.n == 1 && "n" in input.n`, `{"n":{"n":1},"m":{"n":2}}`, "true", ""},
		{`[1] == [1, 2] || [input.n] == [2] || {"a": 1} == {"b": 1} || 3 in [1, 2]`, `{"n":1}`, "false", ""},
		{`input.n == input.n`, deep, "", "cost limit"}, // all other values are in its list of one value
		{`input.n != input.n`, deep, "", "cost limit"},
		{`input.n in [input.n]`, deep, "", "cost limit"},
		{`input.n.map(a, input.n) == input.n.map(a, input.n)`, deep, "", "cost limit"},
		{`input.n == []`, deep, "false", ""},
		{`[` + strings.Repeat("1,", 40) + `1].all(a, [` + strings.Repeat("1,", 20) + `1].all(b, double(input.t) == 1.0))`, `{"t":"` + strings.Repeat("0", 60_000) + `1"}`, "", "cost limit"},
		{`[` + strings.Repeat("1,", 40) + `1].all(a, size(input.t) > 0)`, `{"t":"` + strings.Repeat("0", 60_000) + `1"}`, "", "cost limit"},
		{`input.list.map(a, input.list.map(b, a)).size()`, `{"list":[` + strings.Repeat("1,", 200) + `1]}`, "", "cost limit"},
	} {
		t.Run(fmt.Sprintf("%.40s of %.40s", c.expression, c.input), func(t *testing.T) {
			key, err := expr.On([]byte(c.input))(c.expression)
			require.Equal(t, c.key, key, c.expression)
			if c.err == "" {
				require.NoError(t, err, c.expression)
			} else {
				require.ErrorContains(t, err, c.err, c.expression)
			}
		})
	}
}

func TestOn_LimitsTotalCost(t *testing.T) {
	t.Parallel()
	key := expr.On([]byte(`{"list":[` + strings.Repeat("1,", 500) + `1]}`))
	var refused int
	for i := range 100 {
		if _, err := key(strings.Repeat(" ", i) + `input.list.filter(a, a > 0).size()`); err != nil {
			require.ErrorContains(t, err, "exceed the total cost limit")
			refused++
		}
	}
	require.Positive(t, refused)
	require.Less(t, refused, 100)
	_, err := key(`input.list.filter(a, a > 0).size()`)
	require.NoError(t, err, "it was evaluated before")
}

func TestCheckKey_ReportsProblems(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		`input.id`:                                 "",
		`string(input.id)`:                         "",
		`size(input.id)`:                           "",
		`input.id ==`:                              "at line 1, column 12: Syntax error",
		`output.id`:                                "at line 1, column 1: undeclared reference to 'output'",
		"input.id +\n\n now()":                     "at line 3, column 5: undeclared reference to 'now'",
		`[input.id]`:                               "it returns a list",
		`timestamp(input.at)`:                      "it returns a google.protobuf.Timestamp",
		`input.id.matches("^a+$")`:                 "",
		`string("".matches(input.p))`:              "at line 1, column 24: the pattern of matches must be a string literal",
		`matches("", input.p)`:                     "at line 1, column 18: the pattern of matches must be a string literal",
		`[1].exists(e, "".matches("a" + input.p))`: "must be a string literal",
		`matches("", "a{1000}a")`:                  "at line 1, column 13: the pattern of matches: it compiles to more than 1000 instructions",
		`input.id.matches("a{1000}a{1000}")`:       "more than 1000 instructions",
		`input.id.matches("(")`:                    "missing closing )",
		strings.Repeat(" ", expr.MaxSize) + `"a"`:  "more than 1024 bytes",
		strings.Repeat("(", 500) + "1" + strings.Repeat(")", 500): "recursion",
	} {
		t.Run(fmt.Sprintf("%.60s", expression), func(t *testing.T) {
			err := expr.CheckKey(expression)
			if want == "" {
				require.NoError(t, err, expression)
			} else {
				require.ErrorContains(t, err, want, expression)
			}
		})
	}
}

func FuzzKeys(f *testing.F) {
	f.Add(`input.id`, []byte(`{"id":1}`))
	f.Fuzz(func(t *testing.T, expression string, input []byte) {
		if expr.CheckKey(expression) == nil {
			_, _ = expr.On(input)(expression) // must not panic
		}
	})
}
