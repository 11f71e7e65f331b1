// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhatIsAlmostReadIsWarnedOf: by each command that looks at a folder, and none fails for it.
func TestWhatIsAlmostReadIsWarnedOf(t *testing.T) {
	t.Parallel()
	dir := folderWith(t, map[string]string{
		"agents/hello.yaml": helloAgent, "connector/orders.yaml": "x", "tool/other.star": "x", "docs/agent/a.yaml": "x", "README.md": "x",
	})
	want := "warning: " + filepath.Join(dir, "connector") + ": is not read, for the folder is called connectors; rename it where that is meant\n" +
		"warning: " + filepath.Join(dir, "tool") + ": is not read, for the folder is called tools; rename it where that is meant\n"
	for _, command := range []string{"lint", "test"} {
		_, messages, err := run(t, command, dir)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(messages, want), "%s: %s", command, messages)
	}
	out, messages, err := run(t, "lint", dir, "-o", "json")
	require.NoError(t, err)
	require.JSONEq(t, "[]", out, "nothing is wrong")
	require.Contains(t, messages, want)

	p := newProject(t)
	p.kind = "test"
	p.has(`"status":"deployed","is_live":true`)
	p.streams = []func(http.ResponseWriter, string){endedAtOnce}
	_, messages, err = p.agentctl("deploy", "--upload", dir)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(messages, want), messages)

	says, changed, stop := p.dev(dir, plainly)
	says.until(t, "live in staging")
	writeFile(t, filepath.Join(dir, "agents/hello.yaml"), helloAgent+"description: Better\n")
	changed <- struct{}{}
	for strings.Count(says.all(), "live in staging") < 2 {
		<-says.more
	}
	require.NoError(t, stop())
	require.Equal(t, 1, strings.Count(says.all(), want), "it is said once")

	_, messages, err = run(t, "lint", folderWith(t, map[string]string{"agent/hello.yaml": helloAgent}))
	require.Equal(t, exitOutcome, exitCode(err), "there is no agent")
	require.Contains(t, messages, "agent: is not read, for the folder is called agents")
}
