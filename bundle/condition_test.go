// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// conditional returns a repository with an agent that has tools.
func conditional(tools string) bundle.Files {
	return bundle.Files{
		"agents/main.yaml":  []byte("name: main\nmodel: openai/x\ntools: " + tools + "\n"),
		"tools/orders.yaml": []byte("base_url: https://shop.example.com\ntools:\n  find: {description: Finds., request: GET /}\n  refund: {description: Refunds., request: POST /}\n"),
		"apis/shop.yaml":    []byte("openapi: 3.1.0\ninfo: {title: Shop, version: '1'}\nservers: [{url: 'https://shop.example.com'}]\npaths: {/a: {get: {operationId: list, summary: Lists., responses: {}}}}\n"),
	}
}

// A condition is compiled for each form of a reference.
func TestConditions_AreCompiled(t *testing.T) {
	t.Parallel()
	for name, reference := range map[string]string{
		"built-in": "current_time", "HTTP tool": "orders.refund", "wildcard": "orders.*", "operation": "'api:shop.list'", "operations": "'api:shop.*'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := bundle.Parse(conditional("[{" + reference + ": 'context.tier == \"gold\" && input.total > 10 && headers.a != \"b\"'}]"))
			require.NoError(t, err)
			tool := p.Agent("main").Tools[0]
			require.Equal(t, strings.Trim(reference, "'"), tool.Reference)
			require.True(t, tool.Condition.IsWritten())
			require.Len(t, tool.Condition.Value().Uses(), 3)
			require.Equal(t, 3, tool.Condition.At().Line)
		})
	}
}

func TestConditions_ReportProblems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ tools, want string }{
		"unknown variable": {"[{current_time: 'contxt.tier == 1'}]", `agents/main.yaml:3:25: "tools[0]": undeclared reference to 'contxt'; use one of context, headers, input`},
		"type":             {"[{current_time: 1 + 1}]", `agents/main.yaml:3:24: "tools[0]": it returns a int; write a condition that is true or false`},
		"operator":         {"[current_time, {orders.*: '1 + \"a\" > 2'}]", `agents/main.yaml:3:37: "tools[1]": found no matching overload for '_+_'`},
		"syntax":           {"[{current_time: 'input.total >'}]", `agents/main.yaml:3:38: "tools[0]": Syntax error`},
		"computed pattern": {"[{current_time: 'input.name.matches(input.pattern)'}]", `the pattern of matches must be a string literal`},
		"empty":            {"[{current_time: ''}]", `agents/main.yaml:3:10: "tools[0]" has no condition; write it after the colon, or write the reference alone`},
		"null":             {"[{current_time: }]", `agents/main.yaml:3:10: "tools[0]" has no condition`},
		"list":             {"[{current_time: [a]}]", `"tools[0].current_time" must be a CEL expression, not a list`},
		"two references":   {"[{current_time: true, orders.find: true}]", `"tools[0]" must be a tool's reference or {reference: condition}`},
		"unknown tool":     {"[{orders.fnd: 'true'}]", `tools/orders.yaml has no tool "fnd"; correct the name`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := bundle.Parse(conditional(c.tools))
			require.ErrorContains(t, err, c.want)
		})
	}
}
