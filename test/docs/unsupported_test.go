// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/later"
)

const (
	repositoryPage = "docs/spec/repository.md"
	// unsupportedRow begins the meaning of a key or folder that a build refuses whatever it holds.
	unsupportedRow = "**Unsupported.** "
	// unsupportedValue follows a value that a build refuses.
	unsupportedValue = "` (unsupported)"
)

// tableBelow are the rows of the table with this first line, each as its cells.
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

// named are the words in code of a cell, without the [] of a list.
func named(cell string) (names []string) {
	for _, found := range codePattern.FindAllStringSubmatch(cell, -1) {
		names = append(names, strings.TrimSuffix(found[1], "[]"))
	}
	return names
}

// isUnsupportedKey reports whether a build refuses a key of an agent, because of the key or of all types that have it.
func isUnsupportedKey(key string, types []string) bool {
	return later.Has(later.File, "agent."+key, "") ||
		len(types) > 0 && !slices.ContainsFunc(types, func(name string) bool { return !later.Has(later.File, "agent.type", name) })
}

// The table of an agent's keys marks each key that a build refuses, and no other.
func TestRepository_MarksUnsupportedKeys(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, row := range tableBelow(t, page(t, repositoryPage), "| Key | Types | Meaning | Default |") {
		for _, key := range named(row[0]) {
			seen[key] = true
			require.Equal(t, isUnsupportedKey(key, named(row[1])), strings.HasPrefix(row[2], " "+unsupportedRow), "key %s", key)
		}
	}
	for _, key := range later.FieldsOf(later.File, "agent") {
		require.True(t, seen[key], "the table has no row of the key %s", key)
	}
}

// The table of an agent's keys marks each value that a build refuses, and no other.
func TestRepository_MarksUnsupportedValues(t *testing.T) {
	t.Parallel()
	// Some values have names of their own in the table.
	shown := map[string]struct{ key, text string }{
		"tool.condition": {"tools", "{reference: condition}"}, "folder.tools": {"tools", "folder.file.function"},
	}
	var want []string
	for _, name := range later.At(later.File) {
		if key, of := strings.CutPrefix(name.Field, "agent."); of && name.Value != "" {
			want = append(want, key+": "+name.Value)
		}
		if value, known := shown[name.Field]; known {
			want = append(want, value.key+": "+value.text)
		}
	}
	var marked []string
	for _, row := range tableBelow(t, page(t, repositoryPage), "| Key | Types | Meaning | Default |") {
		parts := strings.Split(row[2], unsupportedValue)
		for _, part := range parts[:len(parts)-1] {
			marked = append(marked, named(row[0])[0]+": "+part[strings.LastIndex(part, "`")+1:])
		}
	}
	require.ElementsMatch(t, want, marked)
}

// The table of a repository's files marks each folder that a build refuses, and no other.
func TestRepository_MarksUnsupportedFolders(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, row := range tableBelow(t, page(t, repositoryPage), "| Path | Holds |") {
		for _, path := range named(row[0]) {
			folder, _, _ := strings.Cut(path, "/")
			seen[folder] = true
			require.Equal(t, later.Has(later.File, "folder."+folder, ""), strings.HasPrefix(row[1], " "+unsupportedRow), "folder %s", folder)
		}
	}
	for _, folder := range later.FieldsOf(later.File, "folder") {
		require.True(t, seen[folder], "the table has no row of the folder %s", folder)
	}
}
