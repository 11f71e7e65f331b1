// SPDX-License-Identifier: Apache-2.0

package openrun

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// A lease may change hands between two reads.
func TestClaim_HidesTokensOfOtherRunners(t *testing.T) {
	t.Parallel()
	project, lost, held := uuid.New(), uuid.New(), uuid.New()
	claimed := func(id uuid.UUID, token int64) store.Claimed {
		return store.Claimed{Run: store.Run{ProjectID: project, ID: id}, Token: token}
	}
	leases := []store.Lease{{Run: store.Key{ProjectID: project, ID: lost}, Token: 1}, {Run: store.Key{ProjectID: project, ID: held}, Token: 1}}
	runs, inputs := dropChangedLeases(leases, []store.Claimed{claimed(lost, 2), claimed(held, 1)}, []uuid.UUID{lost, held})
	require.Equal(t, []store.Claimed{claimed(held, 1)}, runs)
	require.Equal(t, []uuid.UUID{held}, inputs)
}
