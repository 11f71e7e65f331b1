// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// written are the files that a page writes by cat, as a shell would.
var written = regexp.MustCompile(`(?ms)^cat (>>?) (\S+) <<'EOF'\n(.*?)^EOF$`)

// TestTheFirstAgentOfTheDocsPasses: at each step, what the page has written until there is right and its
// tests pass, as many as it says.
func TestTheFirstAgentOfTheDocsPasses(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/first-agent.md")
	require.NoError(t, err)
	steps := strings.Split(string(page), "\n## ")
	dir, runs := t.TempDir(), 0
	for _, step := range steps {
		for _, file := range written.FindAllStringSubmatch(step, -1) {
			path := filepath.Join(dir, file[2])
			before := ""
			if file[1] == ">>" {
				text, err := os.ReadFile(path)
				require.NoError(t, err)
				before = string(text)
			}
			writeFile(t, path, before+file[3])
		}
		for _, said := range regexp.MustCompile(`(?m)^agentctl (lint|test) +# (.*)$`).FindAllStringSubmatch(step, -1) {
			if strings.HasPrefix(said[2], "the value") {
				continue
			}
			_, messages, err := run(t, said[1], dir)
			require.NoError(t, err, said[0])
			require.Equal(t, said[2]+"\n", messages, said[0])
			runs++
		}
	}
	require.Equal(t, 3, runs)
}
