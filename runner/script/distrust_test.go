// SPDX-License-Identifier: Apache-2.0

package script

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// sendHijacked is a child that a script has taken over: it sends a list of messages, whatever its parent sends.
func sendHijacked(text string) {
	var messages []json.RawMessage
	if err := json.Unmarshal([]byte(text), &messages); err != nil {
		panic(err)
	}
	for _, message := range messages {
		if err := writeMessage(os.Stdout, message); err != nil {
			panic(err)
		}
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// hijackedCall returns a call whose child sends messages, and the pool for it.
func hijackedCall(t *testing.T, owner bundle.ScriptOwner, messages ...string) (*Pool, Call) {
	call := callOn(body("return 1"), "")
	call.Owner = owner
	call.Offers = func(name string) bool { return name != "files.list" }
	call.Limits = LimitsOf(owner)
	call.Limits.ResultBytes = 100
	return newPool(t, Options{Command: []string{os.Args[0], "hijacked", "[" + strings.Join(messages, ",") + "]"}}), call
}

// A child cannot get more from its parent than its script was offered, whatever it sends.
func TestPool_EndsHijackedChild(t *testing.T) {
	t.Parallel()
	text := func(size int) string { return `"` + strings.Repeat("a", size) + `"` }
	request := func(name string) string { return fmt.Sprintf(`{"request":{"name":%q,"args":{"method":"GET"}}}`, name) }
	for name, row := range map[string]struct {
		owner         bundle.ScriptOwner
		message, want string
	}{
		"built-in of another owner": {bundle.OwnerTool, request("send_connector"), `it asked for "send_connector"`},
		"refused by the host":       {bundle.OwnerTool, request("files.list"), `it asked for "files.list"`},
		"unknown":                   {bundle.OwnerTool, request("shell"), `it asked for "shell"`},
		"pure":                      {bundle.OwnerTool, request("json.encode"), `it asked for "json.encode"`},
		"attachment without files":  {bundle.OwnerMiddleware, request(FileData), `it asked for "file.data"`},
		"large result":              {bundle.OwnerTool, `{"done":{"value":` + text(99) + `}}`, "its result is too large"},
		"large context":             {bundle.OwnerTool, `{"done":{"context":` + text(maxContext) + `}}`, "its result is too large"},
		"abort in a tool":           {bundle.OwnerTool, `{"done":{"abort":1}}`, "it ended the run or the call"},
		"stop in a guardrail":       {bundle.OwnerGuardrail, `{"done":{"stop":{"message":"x"}}}`, "it ended the run or the call"},
		"large error":               {bundle.OwnerTool, `{"done":{"error":{"cause":` + text(maxErrorText+1) + `}}}`, "its error is too large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, call := hijackedCall(t, row.owner, row.message)
			_, err := pool.Run(t.Context(), call, hostFunc(func(context.Context, Request) (json.RawMessage, error) {
				t.Error("the host got the request")
				return json.RawMessage(`1`), nil
			}))
			var failed *Error
			require.ErrorAs(t, err, &failed)
			require.Equal(t, runerror.ScriptError, failed.Code)
			require.Equal(t, "the process of the script does what scripts cannot do, and was ended", failed.Message)
			require.Contains(t, failed.Cause, row.want)
			require.Empty(t, pool.pids())
		})
	}
}

// A child that ignores the budget of the log gets no more lines into the run than the budget.
func TestPool_BoundsLogOfHijackedChild(t *testing.T) {
	t.Parallel()
	line := `{"log":{"level":"info","text":"` + strings.Repeat("a", 40) + `","position":{"file":"a.star"}}}`
	for name, row := range map[string]struct {
		budget LogBudget
		want   int
	}{
		"lines": {LogBudget{Lines: 3, Bytes: 1000}, 3},
		"bytes": {LogBudget{Lines: 10, Bytes: 100}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			pool, call := hijackedCall(t, bundle.OwnerTool, line, line, line, line, `{"done":{"value":1}}`)
			call.Logs = row.budget
			result, err := pool.Run(t.Context(), call, nil)
			require.NoError(t, err)
			require.Len(t, result.Logs, row.want)
		})
	}
}

// Texts with characters that HTML escapes keep their size on the way to the parent.
func TestPool_KeepsSizeOfResults(t *testing.T) {
	t.Parallel()
	want := strings.Repeat("<&>", 87_000)
	result, err := newPool(t, Options{}).Run(t.Context(), callOn(body(`return "<&>" * 87000`), ""), nil)
	require.NoError(t, err)
	var got string
	require.NoError(t, json.Unmarshal(result.Value, &got))
	require.Equal(t, want, got)
}
