// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// named returns an ID for a name.
func named(name string) uuid.UUID { return uuid.NewSHA1(uuid.Nil, []byte(name)) }

// Other errors are returned unchanged.
func TestRefusal_SelectsError(t *testing.T) {
	t.Parallel()
	part, all, other := errors.New("part"), errors.New("all"), errors.New("other")
	require.Equal(t, part, Refusal(fmt.Errorf("now: %w", ErrProjectLimit), part, all))
	require.Equal(t, all, Refusal(ErrTotalLimit, part, all))
	require.Equal(t, other, Refusal(other, part, all))
	require.NoError(t, Refusal(nil, part, all))
}

// A project can use its own part completely. Others get slots until all are taken.
func TestPlaces_LimitProjectToItsPart(t *testing.T) {
	t.Parallel()
	p, projects := NewSlotSet(8, 4), make([]uuid.UUID, 6)
	for i := range projects {
		projects[i] = uuid.New()
	}
	for _, project := range projects[:3] {
		require.NoError(t, p.Take(project, 1))
		require.NoError(t, p.Take(project, 1))
		require.Equal(t, ErrProjectLimit, p.Take(project, 1))
	}
	for _, project := range projects[3:5] {
		require.NoError(t, p.Take(project, 1), "the last two slots are for projects without one")
		require.Equal(t, ErrTotalLimit, p.Take(project, 1))
	}
	require.Equal(t, ErrTotalLimit, p.Take(projects[5], 1))
	p.Give(projects[0], 1)
	require.NoError(t, p.Take(projects[5], 1))
	require.Equal(t, ErrTotalLimit, p.Take(projects[0], 1))

	few := NewSlotSet(2, 4)
	require.NoError(t, few.Take(projects[0], 1), "at least one")
	require.Equal(t, ErrProjectLimit, few.Take(projects[0], 1))

	large := NewSlotSet(8, 4)
	require.NoError(t, large.Take(projects[0], 100), "alone")
	require.Equal(t, ErrProjectLimit, large.Take(projects[0], 0+1))
	large.Give(projects[0], 100)
	require.Zero(t, large.Taken())
	require.Empty(t, large.byProject, "a project that has none is forgotten")
}

// A project waits only for itself, and others wait for it only for a limited time.
func TestBudget_BusyProjectDelaysOnlyItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(40, 4, 10, time.Second)
		take := func(project string, n int64) *Grant {
			got, err := b.Wait(t.Context(), named(project), n)
			require.NoError(t, err)
			return got
		}
		first := take("greedy", 1000) // its whole part
		next := make(chan *Grant, 2)
		for range 2 {
			go func() { next <- take("greedy", 4) }()
		}
		synctest.Wait()
		require.Empty(t, next, "they wait for their own project")
		take("modest", 10).End()
		first.Keep(5)
		(<-next).End()
		first.End()
		(<-next).End()
		require.Empty(t, b.byProject)
	})
}

// A wait ends with its caller or with its patience, if it is limited.
func TestBudget_WaitEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(40, 4, 10, time.Second)
		for _, project := range []string{"a", "b", "c", "greedy"} {
			_, err := b.Wait(t.Context(), named(project), 10)
			require.NoError(t, err)
		}
		_, err := b.Wait(t.Context(), named("greedy"), 1)
		require.Equal(t, ErrWaitTimeout, err)
		_, err = b.Wait(t.Context(), named("modest"), 1)
		require.Equal(t, ErrTotalLimit, err)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = b.Wait(gone, named("greedy"), 1)
		require.ErrorIs(t, err, context.Canceled)

		endless, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		patient := NewBudget(4, 4, 10, 0)
		_, err = patient.Wait(endless, named("greedy"), 1)
		require.NoError(t, err)
		_, err = patient.Wait(endless, named("greedy"), 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// No state remains for a project that has nothing.
func TestBudget_KeepsNoState(t *testing.T) {
	t.Parallel()
	b := NewBudget(40, 4, 10, time.Second)
	for range 100 {
		got, err := b.Wait(t.Context(), uuid.New(), 10)
		require.NoError(t, err)
		got.Keep(7)
		got.End()
	}
	require.Empty(t, b.byProject)
	require.True(t, b.all.TryAcquire(40))
}

// The number of waiting requests of a project is limited.
func TestBudget_LimitsQueue(t *testing.T) {
	t.Parallel()
	b := NewBudget(400, 4, 10, time.Second)
	for range 10 {
		_, err := b.Wait(t.Context(), named("greedy"), 1)
		require.NoError(t, err)
	}
	_, err := b.Wait(t.Context(), named("greedy"), 1)
	require.Equal(t, ErrProjectLimit, err)
	_, err = b.Wait(t.Context(), named("modest"), 1)
	require.NoError(t, err)
}

// A project gets at most half of the remaining slots, and none of the last ones if it has one. All
// slots can be used.
func TestPlaces_ReserveSlotsForOthers(t *testing.T) {
	t.Parallel()
	for all, want := range map[int64][]int{
		2:  {1, 1},
		4:  {1, 1, 1, 1},
		16: {4, 4, 4, 1, 1, 1, 1},
		64: {16, 16, 16, 8, 1, 1, 1, 1, 1, 1, 1, 1},
	} {
		t.Run(fmt.Sprint(all), func(t *testing.T) {
			p := NewSlotSet(all, 4)
			var taken []int
			for n := -1; n != 0; {
				project := uuid.New()
				for n = 0; p.Take(project, 1) == nil; {
					n++
				}
				if n > 0 {
					taken = append(taken, n)
				}
			}
			require.Equal(t, want, taken, "of %d", all)
		})
	}
}
