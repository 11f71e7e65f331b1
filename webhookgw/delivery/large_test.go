// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// largeOf is a delivery of a project whose output is large.
func largeOf(project uuid.UUID, since time.Time) claimed {
	blob := uuid.New()
	return claimed{ClaimedDelivery: store.ClaimedDelivery{Delivery: store.Delivery{ID: uuid.New(), ProjectID: project}, OutputBlob: &blob}, since: since}
}

// TestLargeOnesHavePlacesInTurns: a project has a part, and one that waits begins as soon as
// there is a place that it may have.
func TestLargeOnesHavePlacesInTurns(t *testing.T) {
	t.Parallel()
	now, l := time.Now(), newLarges()
	projects := make([]uuid.UUID, 16)
	for i := range projects {
		projects[i] = uuid.New()
	}
	waits := 0
	has := map[uuid.UUID]int{}
	for _, project := range projects {
		for range 2 * maxLarge / largeParts {
			if l.enter(largeOf(project, now)) {
				has[project]++
			} else {
				waits++
			}
		}
	}
	require.EqualValues(t, maxLarge, l.places.Taken())
	require.Equal(t, maxLarge/largeParts, has[projects[0]], "a part")
	require.Positive(t, has[projects[4]], "some are left for the next")
	for len(has) > 0 {
		for project, n := range has { // one that has a place ends
			if has[project]--; n == 1 {
				delete(has, project)
			}
			next, late := l.leave(project, now)
			require.Zero(t, len(late))
			waits -= len(next)
			for _, d := range next {
				has[d.Delivery.ProjectID]++
				require.LessOrEqual(t, has[d.Delivery.ProjectID], maxLarge/largeParts)
			}
			break
		}
	}
	require.Zero(t, waits, "each has begun")
	require.Zero(t, l.places.Taken())
	require.Empty(t, l.waiting)
	require.Empty(t, l.turns)
}

func ids(all []claimed) (ids []uuid.UUID) {
	for _, d := range all {
		ids = append(ids, d.Delivery.ID)
	}
	return ids
}

// TestALargeOneWaitsSoLong: for one other, and is then given back for a while.
func TestALargeOneWaitsSoLong(t *testing.T) {
	t.Parallel()
	begin, project, l := time.Now(), uuid.New(), newLarges()
	for range maxLarge / largeParts {
		require.True(t, l.enter(largeOf(project, begin)))
	}
	first, second, third := largeOf(project, begin), largeOf(project, begin), largeOf(project, begin.Add(time.Second))
	for _, d := range []claimed{first, second, third} {
		require.False(t, l.enter(d))
	}
	next, late := l.leave(project, begin.Add(largeWait))
	require.Equal(t, []uuid.UUID{first.Delivery.ID}, ids(next))
	require.Empty(t, ids(late))
	next, late = l.leave(project, begin.Add(largeWait+1))
	require.Equal(t, []uuid.UUID{third.Delivery.ID}, ids(next))
	require.Equal(t, []uuid.UUID{second.Delivery.ID}, ids(late))
	require.LessOrEqual(t, 2*largeWait, lease-storeTimeout, "it is recorded before its claim ends")
	s := &Sender{opts: Options{Now: time.Now, Random: func() float64 { return 0 }}}
	a := s.givenBack(second)
	require.Equal(t, store.DeliveryRetry, a.Outcome)
	require.True(t, a.Free)
	require.GreaterOrEqual(t, a.Wait, largePause)
}
