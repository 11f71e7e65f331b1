// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

func TestSchema_WritesSchemas(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "repository", ".schemas")
	_, _, err := run(t, "schema", "--out", folder)
	require.NoError(t, err)
	_, _, err = run(t, "schema", "--out", folder)
	require.NoError(t, err, "schemas of another release are overwritten")
	outside := filepath.Join(t.TempDir(), "outside")
	require.NoError(t, os.Remove(filepath.Join(folder, "agent.json")))
	require.NoError(t, os.Symlink(outside, filepath.Join(folder, "agent.json")))
	_, _, err = run(t, "schema", "--out", folder)
	require.ErrorContains(t, err, "escapes", "nothing is written outside of the folder")
	require.NoFileExists(t, outside)
	require.NoError(t, os.Remove(filepath.Join(folder, "agent.json")))
	_, _, err = run(t, "schema", "--out", folder)
	require.NoError(t, err)
	list, _, err := run(t, "schema")
	require.NoError(t, err)
	for _, k := range bundle.Kinds {
		require.Contains(t, list, k.Files)
		out, _, err := run(t, "schema", string(k.Kind))
		require.NoError(t, err)
		require.True(t, json.Valid([]byte(out)))
		written, err := os.ReadFile(filepath.Join(folder, string(k.Kind)+".json"))
		require.NoError(t, err)
		require.Equal(t, out, string(written))
	}
	_, _, err = run(t, "schema", "nothing")
	require.ErrorContains(t, err, `unknown kind of file "nothing"`)
	_, _, err = run(t, "schema", "agent", "--out", folder)
	require.ErrorContains(t, err, "--out")
}
