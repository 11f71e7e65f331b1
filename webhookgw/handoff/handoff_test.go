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

// TestWhoHasWaitedLongestIsHeld: of its environment, and once.
func TestWhoHasWaitedLongestIsHeld(t *testing.T) {
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
	require.Empty(t, all.byEnvironment, "nothing is left of them")
	require.Nil(t, (*Runners)(nil).Hold(one), "where there are none")
}

// TestWhoLeavesIsNotHeld: and nothing is left of it.
func TestWhoLeavesIsNotHeld(t *testing.T) {
	t.Parallel()
	all, one := NewRunners(), environment()
	a, b := wait(all, one, "a"), wait(all, one, "b")
	_, given := a.Leave()
	require.False(t, given)
	require.Equal(t, b, all.Hold(one))
	require.Empty(t, all.byEnvironment)
}

// TestWhatIsGivenIsNotLost: also to one that leaves while it is held, which waits for it.
func TestWhatIsGivenIsNotLost(t *testing.T) {
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
