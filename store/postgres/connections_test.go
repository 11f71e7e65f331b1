// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv"
)

// A process takes at most the configured number of connections, for statements, lists and hints.
func TestConnections_RespectMaximum(t *testing.T) {
	t.Parallel()
	for given, want := range map[int32][2]int32{0: {16, 8}, DefaultConnections: {16, 8}, MinConnections: {4, 2}, 9: {4, 3}, 10: {4, 4}, 11: {5, 4}, 14: {8, 4}, 16: {10, 4}, 17: {10, 5}, MaxConnections: {666, 332}} {
		t.Run(fmt.Sprint(given), func(t *testing.T) {
			require.NoError(t, CheckConnections(given))
			most, lists := Options{Connections: given}.poolSizes()
			require.Equal(t, want, [2]int32{most, lists}, given)
		})
	}
	for _, wrong := range []int32{-1, 1, MinConnections - 1, MaxConnections + 1} {
		require.ErrorContains(t, CheckConnections(wrong), "choose 8 to")
		_, err := Open(t.Context(), Options{DSN: "postgres://127.0.0.1:1/none", Connections: wrong})
		require.Error(t, err)
	}
}

// If the server allows the configured number and one more for migrating, it rejects no connection,
// even with all of them in use.
func TestConnections_IncludeAllPools(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	admin, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, admin.Close(context.Background())) })
	do := func(statement string) {
		_, err := admin.Exec(context.Background(), statement)
		require.NoError(t, err)
	}
	do(`CREATE ROLE counted LOGIN PASSWORD 'counted' CONNECTION LIMIT 9`)
	do(`GRANT ALL ON SCHEMA public TO counted`)
	t.Cleanup(func() { do(`DROP OWNED BY counted`); do(`DROP ROLE counted`) })
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.User = url.UserPassword("counted", "counted")
	s := openedStore(t, Options{DSN: u.String(), Connections: MinConnections})
	require.NoError(t, s.Migrate(t.Context()))
	var held []*pgxpool.Conn
	for _, pool := range s.pools {
		for range pool.Config().MaxConns {
			conn, err := pool.Acquire(t.Context())
			require.NoError(t, err)
			held = append(held, conn)
		}
	}
	require.Eventually(t, func() bool {
		var taken int
		require.NoError(t, admin.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE usename = 'counted'`).Scan(&taken))
		return taken == MinConnections
	}, time.Minute, time.Millisecond, "two carry hints")
	for _, conn := range held {
		conn.Release()
	}
	require.NoError(t, s.Migrate(t.Context()))
}

// The server ends an idle transaction, whatever its process does.
func TestSession_EndsIdleTransaction(t *testing.T) {
	t.Parallel()
	s := openedStore(t, Options{DSN: testenv.Postgres(t)})
	for _, pool := range s.pools {
		var limit string
		require.NoError(t, pool.QueryRow(t.Context(), `SHOW idle_in_transaction_session_timeout`).Scan(&limit))
		require.Equal(t, "1min", limit)
	}
}
