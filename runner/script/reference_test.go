// SPDX-License-Identifier: Apache-2.0

package script

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/testenv/refpage"
	"github.com/agentplatform/agentplatform/runner/engine/httptool"
)

// exampleAnswers are the answers of the host in the examples of built-ins.
var exampleAnswers = map[string]string{
	"env": `"https://shop.example"`, "http.request": `{"status": 200, "headers": {}, "body": "", "json": {"state": "paid"}, "truncated": false}`,
	"http.save":      `{"id": "s1", "name": "invoice.pdf", "size": 1, "mime_type": "application/pdf"}`,
	"send_connector": `{"delivery_id": "d1", "status": "queued"}`, "files.list": `[{"id": "f1", "name": "order.json", "mime_type": "application/json", "size": 12}]`,
	"files.text": `"{\"id\": 4711}"`, "files.json": `{"id": 4711}`, "sleep": `null`,
}

// Each example in the table of built-ins has its result.
func TestBuiltins_ExamplesHold(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	host := hostFunc(func(_ context.Context, request Request) (json.RawMessage, error) {
		return json.RawMessage(exampleAnswers[request.Name]), nil
	})
	for _, b := range bundle.Builtins() {
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			source := body("return " + b.Example)
			if b.Result != "" {
				source = body("got = "+b.Example, "want = "+b.Result, "if got != want or type(got) != type(want): fail(repr(got))")
			}
			call := callOn(source, "")
			if b.Owners != nil {
				call.Owner = b.Owners[0]
			}
			if b.Name == "abort" {
				call = callOn(strings.Replace(source, "run", bundle.StageBefore, 1), "")
				call.Owner, call.Function = bundle.OwnerHook, bundle.StageBefore
			}
			result, err := pool.Run(t.Context(), call, host)
			if b.Name == "fail" {
				requireError(t, err, runerror.ScriptError, "there is no such order", "tools/a.star:2:14")
				return
			}
			require.NoError(t, err)
			require.Equal(t, b.Result == "", result.Stop != nil || result.Abort != nil)
		})
	}
}

// A script of another owner cannot call a built-in.
func TestBuiltins_RejectOtherOwners(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	for _, b := range bundle.Builtins() {
		for owner := range limits {
			if b.IsFor(owner) {
				continue
			}
			t.Run(b.Name+" in "+string(owner), func(t *testing.T) {
				t.Parallel()
				call := callOn(body("return "+b.Example), "")
				call.Owner = owner
				_, err := pool.Run(t.Context(), call, nil)
				require.ErrorContains(t, err, fmt.Sprintf("%s cannot be called here: the script belongs to a %s", b.Name, owner))
			})
		}
	}
}

// Each built-in is computed by the child or by the host.
func TestBuiltins_HaveImplementations(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, b := range bundle.Builtins() {
		known[b.Name] = true
		require.True(t, implementations[b.Name] != nil || b.Effect != bundle.EffectNone, b.Name)
		_, err := parseSignature(b.Name, b.Signature)
		require.NoError(t, err)
	}
	for name := range implementations {
		require.True(t, known[name], name)
	}
}

const referenceIntro = `# Scripts

Scripts are [Starlark](https://github.com/bazelbuild/starlark/blob/master/spec.md) files (` + "`.star`" + `) in the folders of a
[project repository](../spec/repository.md). Starlark is a small dialect of Python. The runner executes each script in a process of its
own, without network, files, environment and secrets.

## Language

Scripts have sets, and no ` + "`while`" + `, no recursion, and no ` + "`if` or `for`" + ` outside of functions. A build parses all scripts and
resolves all names. It fails with file, line and column.

` + "`load(\"//tools/lib/money.star\", \"eur\")`" + ` loads names from another script of the repository. Names that begin with ` + "`_`" + ` are private.
Values outside of functions are computed once and cannot change later.

A file has at most %d KiB, and all scripts together at most %d MiB.

## Tools

A public function of a script in ` + "`tools/`" + ` is a tool. An agent names it by folder, file and function: ` + "`orders.write.refund`" + ` is the
function ` + "`refund` in `tools/orders/write.star`" + `, and ` + "`orders.write.*`" + ` are all public functions of the file.

` + "```python" + `
def refund(order_id, amount, reason = "damaged", context = None):
    """Refund an order.

    Args:
      order_id (string, pattern "^A[0-9]{5}$"): Number of the order.
      amount (number, 0.01..10000): In euros.
      reason (string, one of "damaged", "late"): Why.

    Idempotent: no
    """
` + "```" + `

The first paragraph of the docstring describes the tool for the model. The section ` + "`Args`" + ` has a line for each parameter:

| Part | Meaning |
|---|---|
| ` + "`string`, `integer`, `number`, `boolean`, `object`, `any`" + ` | Type of the value |
| ` + "`list of T`" + ` | List of values of a type |
| ` + "`min..max`" + ` | Bounds of a number, of the length of a string, or of the number of items of a list. Either one can be missing |
| ` + "`one of \"a\", \"b\"`" + ` | Allowed values |
| ` + "`pattern \"^A\"`" + ` | Regular expression (RE2) that must match in a string |
| ` + "`optional`" + ` | The parameter has a default, such as ` + "`None`" + ` |

- A parameter with a default is optional. The default must fit.
- The parameter ` + "`context`" + ` gets the context of the run, a map. Models do not see it.
  Scripts can add values, with at most %d KiB together. Values of the event cannot change. The REST API shows the added
  values of an ended run, and searches find them.
- ` + "`*args` and `**kwargs`" + ` are rejected.
- ` + "`Schema: refund`" + ` in place of ` + "`Args`" + ` takes the parameters from ` + "`schemas/refund.json`" + `: a JSON Schema of the type
  ` + "`object`" + `, with a property for each parameter and at most 64 KiB. Its references stay in the file.
- ` + "`Idempotent: yes`" + ` lets the runner repeat an interrupted call.

## Limits

`

// referencePage returns the text of the reference page.
func referencePage() string {
	var page strings.Builder
	fmt.Fprintf(&page, referenceIntro, bundle.MaxScriptSize>>10, bundle.MaxScripts>>20, maxContext>>10)
	page.WriteString("| Limit | Tools and steps | Middleware | Hooks |\n|---|---|---|---|\n")
	for _, row := range []struct {
		name  string
		value func(Limits) any
	}{
		{"Steps of the interpreter", func(l Limits) any { return fmt.Sprintf("%d million", l.Steps/1e6) }},
		{"Computing time", func(l Limits) any { return l.OwnTime }},
		{"Time with requests", func(l Limits) any { return totalTime(l.TotalTime) }},
		{"Requests that change something", func(l Limits) any { return l.Writes }},
		{"Requests that read", func(l Limits) any { return l.Reads }},
		{"HTTP requests, of both kinds", func(Limits) any { return maxHTTP }},
		{"Result as JSON", func(l Limits) any { return fmt.Sprintf("%d KiB", l.ResultBytes>>10) }},
	} {
		fmt.Fprintf(&page, "| %s |", row.name)
		for _, owner := range []bundle.ScriptOwner{bundle.OwnerTool, bundle.OwnerMiddleware, bundle.OwnerHook} {
			fmt.Fprintf(&page, " %v |", row.value(LimitsOf(owner)))
		}
		page.WriteString("\n")
	}
	fmt.Fprintf(&page, `
- Memory: %d MiB.
- Arguments and results of functions: %d KiB of JSON, with at most %d nested lists and maps.
- Response of an HTTP request: the body is cut at %d KiB (`+"`truncated`"+`). The script gets an error if the
  response then has more than %d KiB as JSON, with its headers and the escapes of its body. Save a large body with `+"`http.save`"+`.
- Log of a run: %d lines and %d KiB, %d KiB a line.

A script beyond a limit fails with %s. Other errors are %s. Models see the message of an error. The log
of the run also has the position and the call stack. [See what a run did](../traces.md) explains how to read it.

## Values

- Scripts get and return JSON values. Integers of any size keep their digits. Tuples become lists.
- Functions, sets, bytes, NaN and infinite numbers cannot be results.
- A number that no float equals has the type `+"`long_number`"+`. It keeps its digits. `+"`float(str(n))`"+` rounds it.

## Built-in functions

All built-ins of Starlark are available. These are added:
`, DefaultMemory>>20, MaxInput>>10, MaxDepth, httptool.MaxBody>>10, MaxResponse>>10, MaxLogs.Lines, MaxLogs.Bytes>>10, maxLogLine>>10, "`"+runerror.ScriptLimit+"`", "`"+runerror.ScriptError+"`")
	for _, b := range bundle.Builtins() {
		writeBuiltin(&page, &b)
	}
	return page.String()
}

func totalTime(limit time.Duration) string {
	if limit == 0 {
		return "`timeout` of the agent"
	}
	return limit.String()
}

// ownerNames are the names of owners on the page. The scripts of steps have the owner of tools.
var ownerNames = map[bundle.ScriptOwner]string{
	bundle.OwnerTool: "tools and steps", bundle.OwnerMiddleware: "middleware", bundle.OwnerHook: "hooks",
}

// writeBuiltin writes the section of a built-in.
func writeBuiltin(page *strings.Builder, b *bundle.Builtin) {
	fmt.Fprintf(page, "\n### %s\n\n```python\n%s(%s)\n```\n\n%s\n", b.Name, b.Name, b.Signature, b.Doc)
	if b.Errors != "" {
		fmt.Fprintf(page, "\nErrors: %s\n", lowerFirst(b.Errors))
	}
	if b.Owners != nil {
		var owners []string
		for _, owner := range b.Owners {
			owners = append(owners, ownerNames[owner])
		}
		slices.Sort(owners)
		fmt.Fprintf(page, "\nOnly in scripts of: %s.\n", strings.Join(owners, ", "))
	}
	fmt.Fprintf(page, "\n```python\n%s", b.Example)
	if b.Result != "" {
		fmt.Fprintf(page, "  # %s", b.Result)
	}
	page.WriteString("\n```\n")
}

// lowerFirst makes a sentence continue after a colon.
func lowerFirst(text string) string {
	if strings.HasPrefix(text, "`") {
		return text
	}
	return strings.ToLower(text[:1]) + text[1:]
}

// The page docs/reference/starlark.md describes scripts and their built-ins.
func TestReference_DescribesScripts(t *testing.T) {
	t.Parallel()
	refpage.Check(t, "starlark.md", referencePage())
}
