// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

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
