// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// A store on a server without writes is not ready, for example on a replica after a failover. Once
// a primary exists, the next Ping finds it on new connections.
func TestPing_RejectsReadOnlyServer(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	admin, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, admin.Close(context.Background())) })
	alter := func(how string) {
		_, err := admin.Exec(t.Context(), `ALTER DATABASE `+pgx.Identifier{strings.TrimPrefix(u.Path, "/")}.Sanitize()+` `+how)
		require.NoError(t, err)
	}
	alter(`SET default_transaction_read_only = on`)
	s := openAt(t, dsn)
	_, err = s.Cluster(t.Context())
	require.ErrorIs(t, err, store.ErrNotFound, "reads work")
	for range 2 {
		require.ErrorContains(t, s.Ping(t.Context()), "takes no writes")
	}
	alter(`RESET default_transaction_read_only`)
	require.NoError(t, s.Ping(t.Context()))
}
