// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// TestProjectsTakeTurns: one thing of each, in the order in which it came; who has nothing
// more waits for its turn anew when it has.
func TestProjectsTakeTurns(t *testing.T) {
	t.Parallel()
	q, greedy, modest := NewTurns[string](), named("greedy"), named("modest")
	for _, item := range []string{"g1", "g2", "g3", "g4"} {
		q.Push(greedy, item)
	}
	q.Push(modest, "m1")
	q.Push(modest, "m2")
	next := func() string {
		project, item, ok := q.Next()
		require.True(t, ok)
		require.Equal(t, item, q.Pop(project))
		return item
	}
	require.Equal(t, []string{"g1", "m1", "g2", "m2", "g3"}, []string{next(), next(), next(), next(), next()})
	q.PutBack(greedy, "g3")
	q.Push(modest, "m3")
	require.Equal(t, []uuid.UUID{greedy, modest}, slices.Collect(q.Projects()))
	require.Equal(t, []string{"g3", "m3", "g4"}, []string{next(), next(), next()})
	_, _, ok := q.Next()
	require.False(t, ok)
	require.Empty(t, q.waiting, "who has nothing is forgotten")
}

// TestAProjectCanBeServedOutOfTurn: it then has had its turn.
func TestAProjectCanBeServedOutOfTurn(t *testing.T) {
	t.Parallel()
	q, first, second := NewTurns[string](), named("first"), named("second")
	q.Push(first, "f1")
	q.Push(first, "f2")
	q.Push(second, "s1")
	q.Push(second, "s2")
	item, ok := q.First(second)
	require.True(t, ok)
	require.Equal(t, item, q.Pop(second))
	require.Equal(t, []uuid.UUID{first, second}, slices.Collect(q.Projects()))
	_, ok = q.First(named("nobody"))
	require.False(t, ok)
	require.Equal(t, []string{"f1", "f2", "s2"}, q.All())
	require.Empty(t, q.All())
	_, ok = q.First(first)
	require.False(t, ok)
}
