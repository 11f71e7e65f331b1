// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

const (
	repositoryPage = "docs/spec/repository.md"
	// unsupportedRow begins the description of a folder whose files a build rejects.
	unsupportedRow = "**Unsupported.** "
)

// tableBelow returns the rows of the table with this first line, each as its cells.
func tableBelow(t *testing.T, text, head string) (rows [][]string) {
	t.Helper()
	_, after, found := strings.Cut(text, "\n"+head+"\n")
	require.True(t, found, head)
	table, _, _ := strings.Cut(after, "\n\n")
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|---") {
			rows = append(rows, strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|"))
		}
	}
	return rows
}

// named returns the words in code of a cell, without the [] of a list.
func named(cell string) (names []string) {
	for _, found := range codePattern.FindAllStringSubmatch(cell, -1) {
		names = append(names, strings.TrimSuffix(found[1], "[]"))
	}
	return names
}

// The table of a repository's files marks each folder that a build rejects, and no other.
func TestRepository_MarksUnsupportedFolders(t *testing.T) {
	t.Parallel()
	marked := map[string]bool{}
	for _, row := range tableBelow(t, page(t, repositoryPage), "| Path | Holds |") {
		for _, path := range named(row[0]) {
			if folder, _, _ := strings.Cut(path, "/"); strings.HasPrefix(row[1], " "+unsupportedRow) {
				marked[folder] = true
			}
		}
	}
	require.ElementsMatch(t, bundle.UnsupportedFolders(), slices.Collect(maps.Keys(marked)))
}
