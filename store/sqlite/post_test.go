// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// asker opens connections that count their queries.
type asker struct {
	database
	asked *atomic.Int64
}

// Connect implements driver.Connector.
func (c asker) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.database.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return askedConn{conn.(connection), c.asked}, nil
}

type askedConn struct {
	connection
	asked *atomic.Int64
}

// PrepareContext implements driver.ConnPrepareContext.
func (c askedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.connection.PrepareContext(ctx, query)
	return askedStmt{stmt, c.asked}, err
}

type askedStmt struct {
	driver.Stmt
	asked *atomic.Int64
}

// QueryContext implements driver.StmtQueryContext.
func (c askedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	c.asked.Add(1)
	return c.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

// Ends runs of agents with one link and with many, and counts the reads until their deliveries are
// created.
func TestPostDeliveries_ReadsLinksOnce(t *testing.T) {
	t.Parallel()
	path, asked := migrated(t), new(atomic.Int64)
	s, err := Open(t.Context(), Options{Path: path, Evaluate: expr.On})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.read.Close())
	s.read = sql.OpenDB(asker{databaseAt(path, "deferred", "ro"), asked})
	s.reader = newStatements(s.read)
	scene := storebench.NewScene(t, s, 4)
	link := func(name, agent string) {
		c := store.Connector{
			Ref: store.ObjectRef{Namespace: "n", Kind: store.KindConnector, Name: name, ObjectUID: name, Generation: 1}, ID: uuid.New(),
			ProjectID: scene.Project, EnvironmentID: scene.Environment, Name: name, Type: "webhook", Mode: "outbound", Enabled: true, Config: []byte(`{}`),
		}
		require.NoError(t, s.PutConnector(t.Context(), c))
		c.Ref.Kind = store.KindConnectorLink
		require.NoError(t, s.PutLink(t.Context(), store.Link{
			Ref: c.Ref, ID: uuid.New(), ProjectID: scene.Project, ConnectorID: c.ID, AgentName: agent, Outbound: &store.OutboundPolicy{Mode: store.LinkAutomatic},
		}))
	}
	reads := func(deliveries int) int64 {
		e := scene.Event(t)
		_, err := s.Accept(t.Context(), []store.Event{e})
		require.NoError(t, err)
		claimed, err := s.Claim(t.Context(), store.Claim{
			Environment: store.Key{ProjectID: scene.Project, ID: scene.Environment}, RunnerID: "r", Slots: 50, Limit: len(e.Runs), Lease: time.Hour,
		})
		require.NoError(t, err)
		for _, run := range claimed.Runs {
			_, err := s.Complete(t.Context(), []store.Completion{{Lease: store.Lease{Run: run.Run.Key(), Token: run.Token}, Status: store.RunCompleted}})
			require.NoError(t, err)
		}
		asked.Store(0)
		_, err = s.PostDeliveries(t.Context(), 100)
		require.NoError(t, err)
		n := asked.Load()
		due, err := s.ClaimDeliveries(t.Context(), store.DeliveryClaim{Limit: 200, PerConnector: 200, Lease: time.Hour})
		require.NoError(t, err)
		require.Len(t, due, deliveries)
		return n
	}
	link("first", scene.Links[0].AgentName)
	one := reads(1)
	for i := range 10 {
		for j := range scene.Links {
			link(fmt.Sprintf("c-%d-%d", i, j), scene.Links[j].AgentName)
		}
	}
	require.Equal(t, one, reads(41))
	require.Less(t, one, int64(10))
}
