// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlcore"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// behind reads ended runs from another database, like a connection to a stale replica. It reads the
// outbox and all other tables from its own.
type behind struct {
	engine
	past sqldb.Queryer
}

func (b behind) Reader() sqldb.Queryer { return behindReader{b.engine.Reader(), b.past} }

type behindReader struct {
	sqldb.Queryer
	past sqldb.Queryer
}

func (b behindReader) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if strings.Contains(query, "FROM ended_") {
		return b.past.QueryContext(ctx, query, args...)
	}
	return b.Queryer.QueryContext(ctx, query, args...)
}

// Rollups, the index and deliveries wait until their runs can be read.
func TestConsumers_WaitForStaleReplica(t *testing.T) {
	t.Parallel()
	s, replica := newPosting(t, 1), newPosting(t, 0)
	late := sqlcore.New(sqlcore.Options{
		Engine: behind{engine{s.Store}, replica.reader}, Publish: s.publish, ListsAtOnce: readers,
		Dialect: sqldb.Dialect{Address: "rowid", BadData: isConstraint, NoTable: noTable},
	})
	tables := []string{"outbox WHERE consumer = 'deliveries'", "outbox_rollups", "outbox_words"}
	count := func(what string) (rows int) {
		require.NoError(t, s.read.QueryRowContext(t.Context(), `SELECT count(*) FROM `+what).Scan(&rows))
		return rows
	}
	consume := func(by *sqlcore.Core, check func(err error)) {
		_, err := by.RollUp(t.Context(), 10)
		check(err)
		_, err = by.IndexRuns(t.Context(), 10, func(store.Searched) []string { return []string{"word"} })
		check(err)
		_, err = by.PostDeliveries(t.Context(), 10)
		check(err)
	}
	consume(late, func(err error) { require.ErrorContains(t, err, "reads stale data from a replica") })
	for _, table := range tables {
		require.NotZero(t, count(table), "rows set aside wait")
		require.NoError(t, s.Write(t.Context(), func(ctx context.Context, tx *sqldb.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE `+strings.Fields(table)[0]+` SET posted_at = 1`)
			return err
		}))
	}
	consume(s.Core, func(err error) { require.NoError(t, err) })
	for _, table := range tables {
		require.Zero(t, count(table))
	}
	for _, table := range []string{"deliveries", "agent_totals", "run_words"} {
		require.Equal(t, 1, count(table), table)
	}
}
