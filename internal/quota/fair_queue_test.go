// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// Each project gets one item per round, in FIFO order. A project without items moves to the end
// when it gets one.
func TestFairQueue_ServesProjectsRoundRobin(t *testing.T) {
	t.Parallel()
	q, greedy, modest := NewFairQueue[string](), named("greedy"), named("modest")
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
	require.Empty(t, q.waiting, "a project without items is forgotten")
}

// The project then moves to the end.
func TestFairQueue_PopMovesProjectToEnd(t *testing.T) {
	t.Parallel()
	q, first, second := NewFairQueue[string](), named("first"), named("second")
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
