// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// A transaction that records successful attempts locks their deliveries before it waits for the
// connector, which a claim has locked. So the claim skips these deliveries.
func TestClaimDeliveries_SkipsRowsBeingRecorded(t *testing.T) {
	t.Parallel()
	for name, there := range map[string]bool{"the connector sends": true, "the connector is deleted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of, s, db := scene(t)
			connector, id := of.Connector, uuid.Must(uuid.NewV7())
			if !there {
				connector = uuid.New()
			}
			exec := func(statement string, args ...any) {
				t.Helper()
				_, err := db.ExecContext(t.Context(), statement, args...)
				require.NoError(t, err)
			}
			exec(`INSERT INTO deliveries (project_id, id, environment_id, connector_id, link_id, run_id, kind, attempt, due_at, lease_until, started_at)
				VALUES ($1, $2, $3, $4, $2, $2, 'payload', 1, 1, 1, 1)`, of.Project, id, of.Environment, connector)
			exec(`INSERT INTO destinations (project_id, connector_id, due_at, failures, paused_reason) VALUES ($1, $2, 1, 0, '')`, of.Project, connector)
			claim := func() []store.ClaimedDelivery {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				claimed, err := s.ClaimDeliveries(ctx, store.DeliveryClaim{Limit: 10, PerConnector: 10, Lease: time.Hour})
				require.NoError(t, err)
				return claimed
			}
			records, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = records.ExecContext(t.Context(), `SELECT 1 FROM deliveries WHERE project_id = $1 FOR UPDATE`, of.Project)
			require.NoError(t, err)
			require.Empty(t, claim())
			require.NoError(t, records.Rollback())
			exec(`UPDATE destinations SET due_at = 1`) // a connector without claimed deliveries is checked a while later

			claimed := claim()
			if !there {
				require.Empty(t, claimed)
				run, err := s.ConnectorRun(t.Context(), store.Key{ProjectID: of.Project, ID: id})
				require.NoError(t, err)
				require.Equal(t, store.ConnectorRunCancelled, run.Status)
				return
			}
			require.Len(t, claimed, 1)
			require.Equal(t, 2, claimed[0].Delivery.Attempt)
			past, _, err := s.Attempts(t.Context(), claimed[0].Delivery.Key())
			require.NoError(t, err)
			require.Len(t, past, 1)
			require.Equal(t, store.ErrorClassLost, past[0].ErrorClass)
		})
	}
}

// A transaction that records attempts locks the delivery before it waits for the connector, which
// is locked while its deliveries expire.
func TestExpireDeliveries_SkipsRowsBeingRecorded(t *testing.T) {
	t.Parallel()
	of, s, db := scene(t)
	var ids []uuid.UUID
	for range 3 {
		id := uuid.Must(uuid.NewV7())
		_, err := db.ExecContext(t.Context(), `INSERT INTO deliveries (project_id, id, environment_id, connector_id, link_id, run_id, kind, attempt, due_at, lease_until, started_at)
			VALUES ($1, $2, $3, $4, $2, $2, 'payload', 1, 1, 1, 1)`, of.Project, id, of.Environment, of.Connector)
		require.NoError(t, err)
		ids = append(ids, id)
	}
	_, err := db.ExecContext(t.Context(), `INSERT INTO destinations (project_id, connector_id, due_at, failures, paused_reason) VALUES ($1, $2, 1, 0, '')`, of.Project, of.Connector)
	require.NoError(t, err)
	expired := func() int {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		n, err := s.ExpireDeliveries(ctx, -time.Hour, 10)
		require.NoError(t, err)
		return n
	}
	records, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = records.ExecContext(t.Context(), `SELECT 1 FROM deliveries WHERE project_id = $1 AND id = $2 FOR UPDATE`, of.Project, ids[1])
	require.NoError(t, err)
	require.Equal(t, 2, expired())
	require.NoError(t, records.Rollback())
	require.Equal(t, 1, expired())
	for _, id := range ids {
		run, err := s.ConnectorRun(t.Context(), store.Key{ProjectID: of.Project, ID: id})
		require.NoError(t, err)
		require.Equal(t, store.ConnectorRunFailed, run.Status)
	}
}
