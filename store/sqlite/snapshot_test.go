// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Any number of concurrent snapshots can prepare their statements.
func TestSnapshot_LeavesConnection(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Options{Path: migrated(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	begun, end := make(chan struct{}, 2*readers), make(chan struct{})
	var group sync.WaitGroup
	for range 2 * readers {
		group.Go(func() {
			_ = engine{s}.Snapshot(t.Context(), func(context.Context, sqldb.Queryer) error {
				begun <- struct{}{}
				<-end
				return nil
			})
		})
	}
	for range readers - 1 {
		<-begun
	}
	conn, err := s.read.Conn(t.Context())
	require.NoError(t, err)
	require.Empty(t, begun, "the others wait")
	require.NoError(t, conn.Close())
	close(end)
	group.Wait()
}
