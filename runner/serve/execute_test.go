// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// Only runs that did not complete write a line to the log.
func TestEndLevel_ShowsRunsThatDidNotComplete(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		out  engine.Outcome
		want slog.Level
	}{
		"completed":              {engine.Outcome{Status: engine.Completed}, slog.LevelDebug},
		"completed with a cause": {engine.Outcome{Status: engine.Completed, Cause: errors.New("x")}, slog.LevelInfo},
		"failed":                 {engine.Outcome{Status: engine.Failed}, slog.LevelInfo},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, endLevel(c.out))
		})
	}
}

// A process that restarts in the same pod does not get the claims of its predecessor, which may
// have crashed it. They count as lost.
func TestRunnerID_IsUniquePerProcess(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for range 2 {
		s, err := New(Options{Dispatch: &dispatchapi.Client{}, Engine: engine.New(engine.Config{}), RunnerID: "pod-1"})
		require.NoError(t, err)
		name := s.request().RunnerID
		require.True(t, strings.HasPrefix(name, "pod-1/"), name)
		require.Equal(t, name, s.request().RunnerID, "it stays the same")
		names[name] = true
	}
	require.Len(t, names, 2)
}
