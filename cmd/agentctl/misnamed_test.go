// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FindMisnamed warns about names that look like a name of the layout.
func TestFindMisnamed_WarnsAboutSimilarNames(t *testing.T) {
	t.Parallel()
	dir := folderWith(t, map[string]string{
		"agents/hello.yaml": helloAgent, "connector/orders.yaml": "x", "tool/other.star": "x", "docs/agent/a.yaml": "x", "README.md": "x",
	})
	want := "warning: " + filepath.Join(dir, "connector") + ": is not read: the name of the folder is connectors; rename it if you meant that folder\n" +
		"warning: " + filepath.Join(dir, "tool") + ": is not read: the name of the folder is tools; rename it if you meant that folder\n"
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
	p.addDeployment(`"status":"deployed","is_live":true`)
	p.streams = []func(http.ResponseWriter, string){endedAtOnce}
	_, messages, err = p.agentctl("deploy", "--upload", dir)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(messages, want), messages)

	says, changed, stop := p.runDev(dir, unchanged)
	says.waitFor(t, "live in staging")
	writeTestFile(t, filepath.Join(dir, "agents/hello.yaml"), helloAgent+"description: Better\n")
	changed <- struct{}{}
	for strings.Count(says.content(), "live in staging") < 2 {
		<-says.more
	}
	require.NoError(t, stop())
	require.Equal(t, 1, strings.Count(says.content(), want), "the warning appears once")

	_, messages, err = run(t, "lint", folderWith(t, map[string]string{"agent/hello.yaml": helloAgent}))
	require.Equal(t, exitOutcome, exitCode(err), "there is no agent")
	require.Contains(t, messages, "agent: is not read: the name of the folder is agents")
}
