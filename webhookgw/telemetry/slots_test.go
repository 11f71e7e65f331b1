// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// Projects with the same destination share few slots. The projects that got none begin when one is free.
func TestSlots_LimitDestinations(t *testing.T) {
	t.Parallel()
	now, s := time.Unix(5000, 0), slots{projects: map[uuid.UUID]*project{}}
	projects := newRuns(slotsPerDestination + 2)
	for i, id := range projects {
		require.Equal(t, i < slotsPerDestination, s.beginTurn(id, fastSlot, "one:4318", now), i)
	}
	require.True(t, s.beginTurn(uuid.New(), fastSlot, "other:4318", now))
	fast, without, slow := s.claimable(now)
	require.Equal(t, fastSlots-slotsPerDestination-1, fast)
	require.Subset(t, without, projects)
	require.Empty(t, slow)
	s.endTurn(projects[0], false, now)
	_, without, _ = s.claimable(now)
	waiting := 0
	for _, id := range projects[slotsPerDestination:] {
		for _, out := range without {
			if id == out {
				waiting++
			}
		}
	}
	require.Equal(t, 1, waiting, "one of two can begin")
}

// A slow project gets slow slots only, in turn, until a turn has no slow request.
func TestSlots_ServeSlowProjectsInTurn(t *testing.T) {
	t.Parallel()
	now, s := time.Unix(5000, 0), slots{projects: map[uuid.UUID]*project{}}
	projects := newRuns(slowSlots + 2)
	for i, id := range projects {
		require.True(t, s.beginTurn(id, fastSlot, id.String(), now))
		require.Equal(t, i < slowSlots, s.makeSlow(id), i)
	}
	for _, id := range projects {
		s.endTurn(id, false, now)
	}
	require.True(t, s.makeSlow(projects[0]), "after its end")
	fast, without, slow := s.claimable(now)
	require.Equal(t, fastSlots, fast)
	require.ElementsMatch(t, projects, without)
	require.Equal(t, projects[:slowSlots], slow)
	for _, id := range slow {
		require.True(t, s.beginTurn(id, slowSlot, id.String(), now))
	}
	_, _, none := s.claimable(now)
	require.Empty(t, none, "all slow slots are taken")
	s.endTurn(projects[0], false, now)
	s.endTurn(projects[1], true, now)
	_, without, slow = s.claimable(now)
	require.Equal(t, projects[slowSlots:], slow)
	require.NotContains(t, without, projects[0], "it is no longer slow")
	require.Contains(t, without, projects[1], "it pauses")
	s.claimable(now.Add(2 * maxAge))
	require.Len(t, s.projects, 2, "only projects with a slot are remembered")
}

// A slow project was claimable while a slow slot was free. A fast project took that slot before the turn began.
func TestSlots_BeginNoTurnBeyondTheSlowSlots(t *testing.T) {
	t.Parallel()
	now, s := time.Unix(5000, 0), slots{projects: map[uuid.UUID]*project{}}
	projects := newRuns(slowSlots + 1)
	waiting := projects[slowSlots]
	require.True(t, s.beginTurn(waiting, fastSlot, "collector", now))
	require.True(t, s.makeSlow(waiting))
	s.endTurn(waiting, false, now)
	for _, id := range projects[:slowSlots-1] {
		require.True(t, s.beginTurn(id, fastSlot, id.String(), now))
		require.True(t, s.makeSlow(id))
	}
	_, _, slow := s.claimable(now)
	require.Equal(t, []uuid.UUID{waiting}, slow)
	last := projects[slowSlots-1]
	require.True(t, s.beginTurn(last, fastSlot, last.String(), now))
	require.True(t, s.makeSlow(last))
	require.False(t, s.beginTurn(waiting, slowSlot, "collector", now))
	_, _, slow = s.claimable(now)
	require.Empty(t, slow)
}
