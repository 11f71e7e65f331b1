// SPDX-License-Identifier: Apache-2.0

package scripts_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// A value that a script sets to None is removed from the context, whatever script sets it, in each attempt.
func TestContext_NoneRemovesKey(t *testing.T) {
	t.Parallel()
	const agent, main = "agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [t.run]\n"
	const models, calls = "models/main.yaml", "steps: [{turn: 1, tool_calls: [{name: t_run}]}, {text: done}]"
	const same = "def after(response, context):\n    return response\n"
	for _, row := range []struct {
		name string
		// body is the body of a function that gets the context.
		files func(body string) []string
	}{
		{"middleware", func(body string) []string {
			return []string{"middleware/main.star", "def before(content, context):\n    context[\"a\"] = 1\n    context[\"b\"] = 2\n    return content\n" +
				"def after(response, context):\n" + body + "    return response\n", "tools/t.star", "def run():\n    \"\"\"R.\"\"\"\n"}
		}},
		{"tool", func(body string) []string {
			return []string{"middleware/main.star", "def before(content, context):\n    context[\"a\"] = 1\n    context[\"b\"] = 2\n    return content\n" + same,
				"tools/t.star", "def run(context):\n    \"\"\"R.\"\"\"\n" + body}
		}},
		{"hook", func(body string) []string {
			return []string{"hooks/main.star", "def before(tool, params, context):\n    context[\"a\"] = 1\n    context[\"b\"] = 2\n" +
				"def after(tool, params, result, context):\n" + body, "tools/t.star", "def run():\n    \"\"\"R.\"\"\"\n"}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, change := range []struct{ name, body, want string }{
				{"one", "    context[\"a\"] = None\n", `{"b":2}`},
				{"all", "    context[\"a\"] = None\n    context[\"b\"] = None\n", ""},
				{"pop", "    context.pop(\"a\")\n", `{"b":2}`},
				{"inside", "    context[\"a\"] = {\"deep\": None}\n    context[\"b\"] = None\n", `{"a":{"deep":null}}`},
				{"unknown", "    context[\"new\"] = None\n", `{"a":1,"b":2}`},
			} {
				t.Run(change.name, func(t *testing.T) {
					t.Parallel()
					b := newAround(t, append(row.files(change.body), agent, main, models, calls)...)
					out, journal := b.run(t, nil)
					require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
					require.Equal(t, change.want, string(out.Context))
					again, _ := b.run(t, journal)
					require.Equal(t, change.want, string(again.Context), "from its journal")
				})
			}
		})
	}
}

// A run whose scripts together set more than the limit fails when the context grows beyond it. Nothing happens after that.
func TestContext_TooLarge(t *testing.T) {
	t.Parallel()
	const half = dispatchapi.MaxContext/2 + 100
	set := func(key string) string { return fmt.Sprintf("    context[%q] = \"<\" * %d\n", key, half) }
	call := "{name: t_run, arguments: {name: %s}}"
	tool := "def run(name, context):\n    \"\"\"R.\n\n    Args:\n      name (string): N.\n    \"\"\"\n    context[name] = \"x\" * " + fmt.Sprint(half) + "\n"
	for _, row := range []struct {
		name  string
		files []string
		code  runerror.Code
		asked int
		text  string
	}{
		{"one script", []string{"middleware/main.star", "def before(content, context):\n" + set("a") + "    return content\n"}, "", 2, strings.Repeat("<", half)},
		{"line separators", []string{"middleware/main.star", "def before(content, context):\n    context[\"a\"] = \"\\u2028\\u2029\\\\u2028\" * " +
			fmt.Sprint(dispatchapi.MaxContext/14) + "\n    return content\n"}, "", 2, "\u2028\u2029\\\\u2028"},
		{"calls of one answer", []string{"models/main.yaml",
			"steps: [{turn: 1, tool_calls: [" + fmt.Sprintf(call, "a") + ", " + fmt.Sprintf(call, "b") + "]}, {text: done}]"}, runerror.ContextTooLarge, 1, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{
				"agents/main.yaml": "name: main\nmodel: scripted/main\ntools: [t.run]\n", "tools/t.star": tool,
				"models/main.yaml": "steps: [{turn: 1, tool_calls: [" + fmt.Sprintf(call, "b") + "]}, {text: done}]",
			}
			for i := 0; i < len(row.files); i += 2 {
				files[row.files[i]] = row.files[i+1]
			}
			var pairs []string
			for path, text := range files {
				pairs = append(pairs, path, text)
			}
			b := newAround(t, pairs...)
			out, journal := b.run(t, nil)
			require.Equal(t, row.code, out.ErrorCode, "%s %v", out.Error, out.Cause)
			require.LessOrEqual(t, len(out.Context), dispatchapi.MaxContext)
			asked := 0
			for _, e := range journal {
				if e.Kind == dispatchapi.JournalModelAnswer {
					asked++
				}
			}
			require.Equal(t, row.asked, asked)
			again, _ := b.run(t, journal)
			require.Equal(t, row.code, again.ErrorCode, "from its journal")
			if row.code == "" {
				require.True(t, json.Valid(out.Context))
				require.Contains(t, string(out.Context), row.text)
			}
		})
	}
}
