// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// PostgreSQL reports a damaged database for a row with an unreadable value. Only that row is set
// aside.
func TestPostDeliveries_SetsDamagedRowAside(t *testing.T) {
	t.Parallel()
	of, s, db := scene(t)
	exec := func(statement string, args ...any) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), statement, args...)
		require.NoError(t, err)
	}
	c := store.Connector{
		Ref: store.ObjectRef{Namespace: "n", Kind: store.KindConnector, Name: "results", ObjectUID: "results", Generation: 1}, ID: uuid.New(),
		ProjectID: of.Project, EnvironmentID: of.Environment, Name: "results", Type: "webhook", Mode: "outbound", Enabled: true, Config: []byte(`{}`),
	}
	require.NoError(t, s.PutConnector(t.Context(), c))
	c.Ref.Kind, c.Ref.ObjectUID = store.KindConnectorLink, "by results"
	require.NoError(t, s.PutLink(t.Context(), store.Link{
		Ref: c.Ref, ID: uuid.New(), ProjectID: of.Project, ConnectorID: c.ID, AgentName: of.Links[0].AgentName, Outbound: &store.OutboundPolicy{Mode: store.LinkAutomatic},
	}))
	for range 8 {
		of.Trip(t.Context(), t)
	}
	exec(`CREATE FUNCTION damaged() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'compressed data is corrupt' USING ERRCODE = 'XX001'; END $$`)
	exec(`ALTER TABLE outbox ADD COLUMN damaged boolean NOT NULL DEFAULT FALSE`)
	exec(`CREATE TRIGGER damaged BEFORE DELETE ON outbox FOR EACH ROW WHEN (OLD.damaged) EXECUTE FUNCTION damaged()`)
	exec(`UPDATE outbox SET damaged = TRUE WHERE ctid = (SELECT o.ctid FROM outbox o WHERE o.consumer = 'deliveries' ORDER BY o.ended_id OFFSET 3 LIMIT 1)`)
	_, err := s.PostDeliveries(t.Context(), 100)
	var aside *store.SetAsideError
	require.ErrorAs(t, err, &aside)
	require.Len(t, aside.Rows, 1)
	require.ErrorContains(t, err, "compressed data is corrupt")
	claimed, err := s.ClaimDeliveries(t.Context(), store.DeliveryClaim{Limit: 100, PerConnector: 100, Lease: time.Hour})
	require.NoError(t, err)
	require.Len(t, claimed, 7)
}
