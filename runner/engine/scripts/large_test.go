// SPDX-License-Identifier: Apache-2.0

package scripts_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// Each entry of a script fits into the journal, whatever the script stops with, logs, sets or sends.
func TestScript_EntriesFitJournal(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"stop":           `stop("<" * 200000)`,
		"log":            "for i in range(15):\n        log(\"<\" * 4000)\n    return {\"a\": \"x\" * 200000}",
		"context":        `context["k"] = "<" * 60000`,
		"body":           `return http.post(env("SHOP") + "/", body = "<" * 300000)["status"]`,
		"idempotent":     `return http.put(env("SHOP") + "/", body = "<" * 300000, idempotency_key = "k")["status"]`,
		"many variables": "for i in range(2000):\n        env(\"SHOP\")",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, "def run(context):\n    \"\"\"Does it.\"\"\"\n    "+body+"\n", "{name: t_run}")
			out, journal := b.execute(t, nil)
			require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
			for _, e := range journal {
				limit := dispatchapi.MaxModelAnswer
				if e.Kind == dispatchapi.JournalToolResult {
					limit = dispatchapi.MaxToolResult
				}
				require.LessOrEqual(t, len(e.Data), limit, e.Kind)
			}
			require.LessOrEqual(t, len(journal), 1100)
			again, _ := b.execute(t, journal)
			require.Equal(t, out.Output, again.Output, "from its journal")
		})
	}
}

// The journal has the body of a response once, without its JSON value. A response that does not fit is an error, the same in each
// attempt.
func TestScript_RejectsLargeResponses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, path, want string
	}{
		{"whole", "/large/100000", `{"result":100000}`},
		{"large", "/large/240000", `{"result":240000}`},
		{"too large", "/escaped/60000", "bytes as JSON text, at most 258048 are allowed; request less data"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, `def run(context):
    """Does it."""
    return len(http.get(env("SHOP") + "`+row.path+`")["json"]["text"])
`, "{name: t_run}")
			out, journal := b.execute(t, nil)
			require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
			require.Contains(t, out.Output, row.want)
			again, _ := b.execute(t, journal[:len(journal)-2])
			require.Equal(t, out.Output, again.Output, "from its journal")
		})
	}
}
