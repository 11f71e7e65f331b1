// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// TestAProjectHasAShareOfThePlaces: what it takes of its own is its own matter, and
// there is room for others until all are taken.
func TestAProjectHasAShareOfThePlaces(t *testing.T) {
	t.Parallel()
	p, projects := newPlaces(8), []uuid.UUID{uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New()}
	for _, project := range projects[:4] {
		require.Equal(t, roomLeft, p.take(project, 1))
		require.Equal(t, roomLeft, p.take(project, 1))
		require.Equal(t, shareTaken, p.take(project, 1))
	}
	require.Equal(t, placesTaken, p.take(projects[4], 1))
	p.give(projects[0], 1)
	require.Equal(t, roomLeft, p.take(projects[4], 1))
	require.Equal(t, placesTaken, p.take(projects[0], 1))

	few := newPlaces(2)
	require.Equal(t, roomLeft, few.take(projects[0], 1), "at least one")
	require.Equal(t, shareTaken, few.take(projects[0], 1))

	large := newPlaces(8)
	require.Equal(t, roomLeft, large.take(projects[0], 100), "alone")
	require.Equal(t, shareTaken, large.take(projects[0], 0+1))
	large.give(projects[0], 100)
	require.Zero(t, large.total)
	require.Empty(t, large.taken, "a project that has none is forgotten")
}
