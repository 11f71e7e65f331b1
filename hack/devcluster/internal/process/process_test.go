// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func sleeper(t *testing.T) Spec {
	t.Helper()
	path, err := exec.LookPath("sleep")
	require.NoError(t, err)
	dir := t.TempDir()
	return Spec{Path: path, Args: []string{"600"}, Log: filepath.Join(dir, "log"), PID: filepath.Join(dir, "pid")}
}

func TestProcess_StartsAndStops(t *testing.T) {
	t.Parallel()
	spec := sleeper(t)
	started, err := Start(spec)
	require.NoError(t, err)
	require.True(t, started.Alive())

	found, err := Find(spec.PID)
	require.NoError(t, err)
	require.Equal(t, started, found)

	require.NoError(t, found.Stop(t.Context(), time.Minute))
	require.False(t, started.Alive())
	found, err = Find(spec.PID)
	require.NoError(t, err)
	require.Nil(t, found)
	require.NoError(t, started.Stop(t.Context(), time.Minute), "one that is gone is no error")
}

func TestFind_IgnoresOtherProcesses(t *testing.T) {
	t.Parallel()
	record := filepath.Join(t.TempDir(), "pid")
	found, err := Find(record)
	require.NoError(t, err)
	require.Nil(t, found, "no record")

	mine := strconv.Itoa(os.Getpid()) + " 1\n" // this process, but begun at another time
	require.NoError(t, os.WriteFile(record, []byte(mine), 0o644))
	found, err = Find(record)
	require.NoError(t, err)
	require.Nil(t, found)
}

func TestStart_NamesMissingProgram(t *testing.T) {
	t.Parallel()
	spec := sleeper(t)
	spec.Path = filepath.Join(t.TempDir(), "none")
	_, err := Start(spec)
	require.ErrorIs(t, err, os.ErrNotExist)
}
