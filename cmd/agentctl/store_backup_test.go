// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
)

// A backup is written to a file or to standard output, with its progress on standard error. Restore restores it.
func TestStoreBackup_RestoresFromFileAndStream(t *testing.T) {
	t.Parallel()
	path, folder := sqlitetest.Migrated(t), t.TempDir()
	streamed, messages, err := run(t, "store", "backup", "--sqlite", path, "--to", "-")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(streamed, "SQLite format 3\x00"))
	require.Contains(t, messages, "100% of ")

	file := filepath.Join(folder, "copy.db")
	out, _, err := run(t, "store", "backup", "--sqlite", path, "--to", file)
	require.NoError(t, err)
	require.Empty(t, out)
	_, _, err = run(t, "store", "backup", "--sqlite", path, "--to", file)
	require.ErrorContains(t, err, "exists already")

	_, messages, err = run(t, "store", "restore", "--sqlite", filepath.Join(folder, "a.db"), "--from", file)
	require.NoError(t, err)
	require.Contains(t, messages, "restored ")
	root := newRootCommand("agentctl")
	root.SetArgs([]string{"store", "restore", "--sqlite", filepath.Join(folder, "b.db"), "--from", "-"})
	root.SetIn(strings.NewReader(streamed))
	root.SetErr(&bytes.Buffer{})
	require.NoError(t, root.ExecuteContext(t.Context()))
	_, _, err = run(t, "store", "restore", "--sqlite", path, "--from", file)
	require.ErrorContains(t, err, "--replace")
}

// Errors name the missing flag. A backup is never written to a terminal.
func TestStoreBackup_ChecksItsFlags(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"store backup --to -":            "--sqlite: must be the file of the store",
		"store backup --sqlite a.db":     "--to: must be a file",
		"store restore --sqlite a.db":    "--from: must be a file",
		"store restore --from a.db":      "--sqlite: must be the file of the store",
		"store backup --sqlite a --to -": "--to: standard output is a terminal",
	} {
		t.Run(line, func(t *testing.T) {
			root := newRootCommand("agentctl")
			root.SetArgs(strings.Fields(line))
			root.SetOut(&terminal{&bytes.Buffer{}})
			root.SetErr(&bytes.Buffer{})
			require.ErrorContains(t, root.ExecuteContext(t.Context()), want)
		})
	}
}
