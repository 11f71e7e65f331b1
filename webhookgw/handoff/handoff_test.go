// SPDX-License-Identifier: Apache-2.0

package handoff

import (
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

func environment() store.Key { return store.Key{ProjectID: uuid.New(), ID: uuid.New()} }

func wait(all *Runners, environment store.Key, name string) *Runner {
	return all.Wait(store.RunnerKey{Environment: environment, ID: name}, 1)
}

// TestHold_LongestWaitingFirst: Hold returns the longest-waiting runner of the environment, once.
func TestHold_LongestWaitingFirst(t *testing.T) {
	t.Parallel()
	all, one, other := NewRunners(), environment(), environment()
	for _, name := range []string{"a", "b", "c"} {
		wait(all, one, name)
	}
	wait(all, other, "d")
	require.Equal(t, "a", all.Hold(one).ID)
	require.Equal(t, "b", all.Hold(one).ID)
	require.Equal(t, "d", all.Hold(other).ID)
	require.Equal(t, "c", all.Hold(one).ID)
	require.Nil(t, all.Hold(one))
	require.Empty(t, all.byEnvironment, "the runners are removed")
	require.Nil(t, (*Runners)(nil).Hold(one), "without runners")
}

// TestHold_SkipsRunnersThatLeft: a runner that left is removed.
func TestHold_SkipsRunnersThatLeft(t *testing.T) {
	t.Parallel()
	all, one := NewRunners(), environment()
	a, b := wait(all, one, "a"), wait(all, one, "b")
	_, given := a.Leave()
	require.False(t, given)
	require.Equal(t, b, all.Hold(one))
	require.Empty(t, all.byEnvironment)
}

// TestLeave_ReturnsGivenRuns: a runner that leaves while it is held waits for its runs.
func TestLeave_ReturnsGivenRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, one := NewRunners(), environment()
		runs := []store.Claimed{{Token: 1}}
		stays, leaves := wait(all, one, "stays"), wait(all, one, "leaves")
		all.Hold(one).Give(runs)
		require.Equal(t, runs, <-stays.Given())
		held := all.Hold(one)
		left := make(chan []store.Claimed, 1)
		go func() {
			got, given := leaves.Leave()
			require.True(t, given)
			left <- got
		}()
		synctest.Wait()
		require.Empty(t, left, "it is held")
		held.Give(runs)
		require.Equal(t, runs, <-left)
	})
}
