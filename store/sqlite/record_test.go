// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// ExecContext implements driver.StmtExecContext.
func (c askedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	c.asked.Add(1)
	return c.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

// Equal retries are recorded with one statement, however many deliveries the platform could not
// send.
func TestRecordAttempts_GroupsEqualRetries(t *testing.T) {
	t.Parallel()
	path, asked := migrated(t), new(atomic.Int64)
	s, err := Open(t.Context(), Options{Path: path, Evaluate: expr.On})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.writer.db.Close())
	s.writer.db = sql.OpenDB(asker{databaseAt(path, "immediate", "rwc"), asked})
	s.writer.db.SetMaxOpenConns(1)
	scene := storebench.NewScene(t, s, 1)
	c := store.Connector{
		Ref: store.ObjectRef{Namespace: "n", Kind: store.KindConnector, Name: "results", ObjectUID: "results", Generation: 1}, ID: uuid.New(),
		ProjectID: scene.Project, EnvironmentID: scene.Environment, Name: "results", Type: "webhook", Mode: "outbound", Enabled: true, Config: []byte(`{}`),
	}
	require.NoError(t, s.PutConnector(t.Context(), c))
	c.Ref.Kind, c.Ref.ObjectUID = store.KindConnectorLink, "by results"
	require.NoError(t, s.PutLink(t.Context(), store.Link{
		Ref: c.Ref, ID: uuid.New(), ProjectID: scene.Project, ConnectorID: c.ID, AgentName: scene.Links[0].AgentName, Outbound: &store.OutboundPolicy{Mode: store.LinkAutomatic},
	}))
	for range 41 {
		scene.Trip(t.Context(), t)
	}
	_, err = s.PostDeliveries(t.Context(), 100)
	require.NoError(t, err)
	statements := func(limit int) int64 {
		var attempts []store.Attempt
		claimed, err := s.ClaimDeliveries(t.Context(), store.DeliveryClaim{Limit: limit, PerConnector: 100, Lease: time.Hour})
		require.NoError(t, err)
		require.Len(t, claimed, limit)
		for _, d := range claimed {
			attempts = append(attempts, store.Attempt{Delivery: d.Delivery, Outcome: store.DeliveryRetry, Free: true, Wait: time.Hour, Error: "not at once"})
		}
		asked.Store(0)
		require.NoError(t, s.RecordAttempts(t.Context(), attempts))
		return asked.Load()
	}
	one := statements(1)
	require.Positive(t, one)
	require.Equal(t, one, statements(40))
}
