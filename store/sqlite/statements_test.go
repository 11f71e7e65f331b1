// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// countingConn counts prepared statements.
type countingConn struct {
	*sql.DB
	prepared atomic.Int64
}

func (c *countingConn) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	c.prepared.Add(1)
	return c.DB.PrepareContext(ctx, query)
}

func statementShape(n int) string { return fmt.Sprintf("SELECT %d", n) }

// asked runs a statement and returns its result.
func asked(t *testing.T, s *statements, n int) (found int) {
	t.Helper()
	require.NoError(t, s.QueryRowContext(t.Context(), statementShape(n)).Scan(&found))
	return found
}

func counting(t *testing.T) (*statements, *countingConn) {
	t.Helper()
	conn := &countingConn{DB: openDatabase(filepath.Join(t.TempDir(), "store.db"), "deferred", "rwc")}
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	s := newStatements(conn)
	t.Cleanup(func() { require.NoError(t, s.close()) })
	return s, conn
}

// A statement that is run again and again is prepared once, and no more than the limit are kept.
func TestStatements_KeepMostRecentlyUsed(t *testing.T) {
	t.Parallel()
	s, conn := counting(t)
	const shapes = 2 * preparedLimit
	for n := range shapes {
		require.Equal(t, n, asked(t, s, n))
		require.Equal(t, -1, asked(t, s, -1), "a frequently used statement stays")
	}
	require.EqualValues(t, shapes+1, conn.prepared.Load())
	require.Equal(t, preparedLimit, s.kept.Len())
	for range 3 {
		require.Equal(t, shapes, asked(t, s, shapes))
	}
	require.EqualValues(t, shapes+2, conn.prepared.Load(), "a new one is prepared once")
	require.Equal(t, 0, asked(t, s, 0))
	require.EqualValues(t, shapes+3, conn.prepared.Load(), "the first ones were dropped")
}

// A statement that others push out while it runs can finish, and its result can be read.
func TestStatements_KeepStatementInUse(t *testing.T) {
	t.Parallel()
	s, _ := counting(t)
	used := s.preparedStatement(t.Context(), statementShape(-1))
	for n := range preparedLimit {
		asked(t, s, n)
	}
	require.True(t, used.dropped)
	rows, err := used.QueryContext(t.Context())
	require.NoError(t, err)
	s.release(used)
	require.True(t, rows.Next())
	require.NoError(t, rows.Close())
	require.NoError(t, rows.Err())
	_, err = used.ExecContext(t.Context())
	require.Error(t, err, "it was closed after its last use")
}

// No statement is closed during its use.
func TestStatements_ConcurrentUse(t *testing.T) {
	t.Parallel()
	s, _ := counting(t)
	var group sync.WaitGroup
	errs := make(chan error, 4)
	for range cap(errs) {
		group.Go(func() {
			for n := range 2 * preparedLimit {
				var found int
				if err := s.QueryRowContext(t.Context(), statementShape(n)).Scan(&found); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(errs)
	require.NoError(t, <-errs)
}
