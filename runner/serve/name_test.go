// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/engine"
)

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
