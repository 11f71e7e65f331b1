// SPDX-License-Identifier: Apache-2.0

package runnerpool

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func pools(n int) (names []types.NamespacedName) {
	for i := range n {
		names = append(names, types.NamespacedName{Namespace: "team", Name: fmt.Sprint(i)})
	}
	return names
}

// For any order of events, the number of rollouts that are not late is limited, and no waiting pool is
// lost.
func TestRolloutLimit_KeepInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := pools(12)
		rollouts, now := &rolloutLimit{}, time.Unix(0, 0)
		began := map[types.NamespacedName]time.Time{}
		expire := func() {
			maps.DeleteFunc(began, func(_ types.NamespacedName, at time.Time) bool { return now.Sub(at) >= maxRolloutTime })
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				pool := rapid.SampledFrom(all).Draw(t, "pool")
				expire()
				_, had := began[pool]
				got := rollouts.startRollout(pool, now)
				require.Equal(t, had || len(began) < maxRollouts, got, "its turn comes where there is room, and stays until it is late")
				if got && !had {
					began[pool] = now
				}
				require.Equal(t, got, !slices.Contains(rollouts.waiting, pool), "a pool without a slot waits")
			},
			"end": func(t *rapid.T) {
				pool := rapid.SampledFrom(all).Draw(t, "pool")
				waiting := slices.Clone(rollouts.waiting)
				next, ok := rollouts.endRollout(pool, now)
				delete(began, pool)
				expire()
				waiting = slices.DeleteFunc(waiting, func(w types.NamespacedName) bool { return w == pool })
				require.Equal(t, len(waiting) > 0 && len(began) < maxRollouts, ok, "while there is room somebody asks next")
				if ok {
					require.Equal(t, waiting[0], next, "who came first")
				}
			},
			"time passes": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 200).Draw(t, "seconds")) * time.Second)
			},
			"": func(t *rapid.T) {
				expire()
				require.LessOrEqual(t, len(began), maxRollouts)
				for _, pool := range all {
					_, has := began[pool]
					require.Equal(t, has, rollouts.isRollingOut(pool, now))
				}
				for _, w := range rollouts.waiting {
					require.NotContains(t, began, w, "a pool with a slot does not wait")
				}
				require.Len(t, rollouts.waiting, len(slices.Compact(slices.SortedFunc(slices.Values(rollouts.waiting), byName))), "nobody waits twice")
			},
		})
	})
}

func byName(a, b types.NamespacedName) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) }

// Many pools that wait at the same time are served in their order.
func TestRolloutLimit_ServeInOrder(t *testing.T) {
	t.Parallel()
	all, rollouts, now := pools(100), &rolloutLimit{}, time.Unix(0, 0)
	for i, pool := range all {
		require.Equal(t, i < maxRollouts, rollouts.startRollout(pool, now))
	}
	for i, pool := range all {
		next, ok := rollouts.endRollout(pool, now)
		require.Equal(t, i+maxRollouts < len(all), ok)
		if !ok {
			continue
		}
		require.Equal(t, all[i+maxRollouts], next)
		require.True(t, rollouts.startRollout(next, now))
	}
	require.Empty(t, rollouts.started)
	require.Empty(t, rollouts.waiting)

	for _, pool := range all[:maxRollouts+1] {
		rollouts.startRollout(pool, now)
	}
	require.False(t, rollouts.isRollingOut(all[maxRollouts], now))
	require.True(t, rollouts.startRollout(all[maxRollouts], now.Add(maxRolloutTime)), "a stuck rollout delays other pools no longer")
}

// A namespace with many pools does not delay the pools of other namespaces.
func TestRolloutLimit_AreFairPerNamespace(t *testing.T) {
	t.Parallel()
	rollouts, now := &rolloutLimit{}, time.Unix(0, 0)
	greedy := pools(20)
	modest := types.NamespacedName{Namespace: "modest", Name: "1"}
	other := types.NamespacedName{Namespace: "modest", Name: "2"}
	for i, pool := range greedy {
		require.Equal(t, i < maxRollouts, rollouts.startRollout(pool, now), "all of them, while nobody else waits")
	}
	require.False(t, rollouts.startRollout(modest, now))
	require.False(t, rollouts.startRollout(other, now))
	next, ok := rollouts.endRollout(greedy[0], now)
	require.True(t, ok)
	require.Equal(t, modest, next, "not the first pool of a project with more rollouts")
	require.False(t, rollouts.startRollout(greedy[6], now), "a waiting pool of the project precedes it")
	require.True(t, rollouts.startRollout(modest, now))

	next, _ = rollouts.endRollout(greedy[1], now)
	require.Equal(t, other, next)
	require.True(t, rollouts.startRollout(other, now))
	for _, pool := range greedy[2:maxRollouts] {
		next, ok = rollouts.endRollout(pool, now)
		require.True(t, ok)
		require.True(t, rollouts.startRollout(next, now), "and then theirs again")
		require.Equal(t, "team", next.Namespace)
	}
}
