// SPDX-License-Identifier: Apache-2.0

package environment

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
func TestTurns_KeepInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := pools(12)
		turns, now := &turns{}, time.Unix(0, 0)
		began := map[types.NamespacedName]time.Time{}
		expire := func() {
			maps.DeleteFunc(began, func(_ types.NamespacedName, at time.Time) bool { return now.Sub(at) >= turnTime })
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				pool := rapid.SampledFrom(all).Draw(t, "pool")
				expire()
				_, had := began[pool]
				got := turns.takeTurn(pool, now)
				require.Equal(t, had || len(began) < poolsAtOnce, got, "its turn comes where there is room, and stays until it is late")
				if got && !had {
					began[pool] = now
				}
				require.Equal(t, got, !slices.Contains(turns.waiting, pool), "who has no turn waits")
			},
			"end": func(t *rapid.T) {
				pool := rapid.SampledFrom(all).Draw(t, "pool")
				waiting := slices.Clone(turns.waiting)
				next, ok := turns.endTurn(pool, now)
				delete(began, pool)
				expire()
				waiting = slices.DeleteFunc(waiting, func(w types.NamespacedName) bool { return w == pool })
				require.Equal(t, len(waiting) > 0 && len(began) < poolsAtOnce, ok, "while there is room somebody asks next")
				if ok {
					require.Equal(t, waiting[0], next, "who came first")
				}
			},
			"time passes": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 200).Draw(t, "seconds")) * time.Second)
			},
			"": func(t *rapid.T) {
				expire()
				require.LessOrEqual(t, len(began), poolsAtOnce)
				for _, pool := range all {
					_, has := began[pool]
					require.Equal(t, has, turns.hasTurn(pool, now))
				}
				for _, w := range turns.waiting {
					require.NotContains(t, began, w, "nobody waits who has a turn")
				}
				require.Len(t, turns.waiting, len(slices.Compact(slices.SortedFunc(slices.Values(turns.waiting), byName))), "nobody waits twice")
			},
		})
	})
}

func byName(a, b types.NamespacedName) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) }

// Many pools that wait at the same time are served in their order.
func TestTurns_ServeInOrder(t *testing.T) {
	t.Parallel()
	all, turns, now := pools(100), &turns{}, time.Unix(0, 0)
	for i, pool := range all {
		require.Equal(t, i < poolsAtOnce, turns.takeTurn(pool, now))
	}
	for i, pool := range all {
		next, ok := turns.endTurn(pool, now)
		require.Equal(t, i+poolsAtOnce < len(all), ok)
		if !ok {
			continue
		}
		require.Equal(t, all[i+poolsAtOnce], next)
		require.True(t, turns.takeTurn(next, now))
	}
	require.Empty(t, turns.began)
	require.Empty(t, turns.waiting)

	for _, pool := range all[:poolsAtOnce+1] {
		turns.takeTurn(pool, now)
	}
	require.False(t, turns.hasTurn(all[poolsAtOnce], now))
	require.True(t, turns.takeTurn(all[poolsAtOnce], now.Add(turnTime)), "what does not come to its end holds up nobody for longer")
}

// A namespace with many pools does not delay the pools of other namespaces.
func TestTurns_AreFairPerNamespace(t *testing.T) {
	t.Parallel()
	turns, now := &turns{}, time.Unix(0, 0)
	greedy := pools(20)
	modest := types.NamespacedName{Namespace: "modest", Name: "1"}
	other := types.NamespacedName{Namespace: "modest", Name: "2"}
	for i, pool := range greedy {
		require.Equal(t, i < poolsAtOnce, turns.takeTurn(pool, now), "all of them, while nobody else waits")
	}
	require.False(t, turns.takeTurn(modest, now))
	require.False(t, turns.takeTurn(other, now))
	next, ok := turns.endTurn(greedy[0], now)
	require.True(t, ok)
	require.Equal(t, modest, next, "not who came first, of those that have more")
	require.False(t, turns.takeTurn(greedy[6], now), "who waits of them goes before")
	require.True(t, turns.takeTurn(modest, now))

	next, _ = turns.endTurn(greedy[1], now)
	require.Equal(t, other, next)
	require.True(t, turns.takeTurn(other, now))
	for _, pool := range greedy[2:poolsAtOnce] {
		next, ok = turns.endTurn(pool, now)
		require.True(t, ok)
		require.True(t, turns.takeTurn(next, now), "and then theirs again")
		require.Equal(t, "team", next.Namespace)
	}
}
