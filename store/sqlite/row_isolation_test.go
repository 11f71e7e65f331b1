// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// fault opens connections on which chosen statements fail.
type fault struct {
	database
	fails func(query string, args []driver.NamedValue) error
}

// Connect implements driver.Connector.
func (f fault) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := f.database.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return faultyConn{conn.(connection), f}, nil
}

type faultyConn struct {
	connection
	fault fault
}

// PrepareContext implements driver.ConnPrepareContext.
func (c faultyConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.connection.PrepareContext(ctx, query)
	return faultyStmt{stmt, query, c.fault}, err
}

type faultyStmt struct {
	driver.Stmt
	query string
	fault fault
}

// QueryContext implements driver.StmtQueryContext.
func (s faultyStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.fault.fails(s.query, args); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

// ExecContext implements driver.StmtExecContext.
func (s faultyStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.fault.fails(s.query, args); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

// patience is a context that a test ends.
type patience struct {
	context.Context //nolint:containedctx // it implements context.Context
	over            chan struct{}
}

func (p patience) Done() <-chan struct{} { return p.over }

func (p patience) Err() error {
	select {
	case <-p.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// posting is a store with outbox rows for results. Some of them may fail.
type posting struct {
	*Store
	t    *testing.T
	runs []uuid.UUID // in the order of processing
	// bad is the run whose writes fail so many times, or -1 for always. all makes the writes of
	// every run fail.
	bad   uuid.UUID
	all   bool
	times int
	fails error
	// at is the beginning of the failing statement.
	at string
	// then is called after a failure.
	then func()
}

// newPosting returns a posting with so many ended runs.
func newPosting(t *testing.T, runs int) *posting {
	t.Helper()
	path := migrated(t)
	s, err := Open(t.Context(), Options{Path: path, Evaluate: expr.On})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	p := &posting{Store: s, t: t, at: `INSERT INTO deliveries`, then: func() {}}
	require.NoError(t, s.writer.db.Close())
	s.writer.db = sql.OpenDB(fault{databaseAt(path, "immediate", "rwc"), p.shouldFail})
	s.writer.db.SetMaxOpenConns(1)
	scene := p.project()
	for range runs {
		scene.Trip(t.Context(), t)
	}
	p.runs = p.waiting(scene.Project)
	require.Len(t, p.runs, runs)
	return p
}

// project returns a project whose results are sent.
func (p *posting) project() *storebench.Scene {
	p.t.Helper()
	t, s := p.t, p.Store
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
	return scene
}

// waiting returns the runs of a project with outbox rows.
func (p *posting) waiting(project uuid.UUID) (runs []uuid.UUID) {
	p.t.Helper()
	rows, err := p.read.QueryContext(p.t.Context(), `SELECT ended_id FROM outbox WHERE consumer = 'deliveries' AND project_id = $1 ORDER BY ended_id`, project.String())
	require.NoError(p.t, err)
	defer func() { require.NoError(p.t, rows.Close()) }()
	for rows.Next() {
		var id uuid.UUID
		require.NoError(p.t, rows.Scan(&id))
		runs = append(runs, id)
	}
	require.NoError(p.t, rows.Err())
	return runs
}

// shouldFail reports whether a statement fails. The writer calls it, for one call at a time.
func (p *posting) shouldFail(query string, args []driver.NamedValue) error {
	if p.fails == nil || p.times == 0 || !strings.Contains(query, p.at) {
		return nil
	}
	for _, a := range args { // some of them are IDs
		if p.all || a.Value == p.bad.String() {
			p.times--
			fails := p.fails
			p.then()
			return fails
		}
	}
	return nil
}

// failSlowly makes statements fail, the first one at the end of the returned context.
func (p *posting) failSlowly() context.Context {
	ctx := patience{p.t.Context(), make(chan struct{})}
	p.fails, p.times, p.then = context.DeadlineExceeded, -1, sync.OnceFunc(func() { close(ctx.over) })
	return ctx
}

// postAndCount posts results and returns how many became deliveries, and how many were set aside.
func (p *posting) postAndCount(ctx context.Context, limit int) (made, aside int, err error) {
	p.t.Helper()
	_, err = p.PostDeliveries(ctx, limit)
	p.fails = nil
	claimed, failed := p.ClaimDeliveries(p.t.Context(), store.DeliveryClaim{Limit: 200, PerConnector: 200, Lease: time.Hour})
	require.NoError(p.t, failed)
	require.NoError(p.t, p.read.QueryRowContext(p.t.Context(), `SELECT count(*) FROM outbox WHERE failures > 0`).Scan(&aside))
	return len(claimed), aside, err
}

var errStrange = errors.New("compressed data is corrupt")

// A row that fails alone is set aside whatever its error is. A general failure of the store sets no
// row aside.
func TestPostDeliveries_SetsFailingRowAside(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit       int
		breaks      func(p *posting)
		made, aside int
	}{
		"among others":          {100, func(p *posting) { p.bad, p.times = p.runs[3], -1 }, 7, 1},
		"alone":                 {1, func(p *posting) { p.bad, p.times = p.runs[0], -1 }, 0, 1},
		"for a moment":          {100, func(p *posting) { p.bad, p.times = p.runs[3], 1 }, 8, 0},
		"alone, for a moment":   {1, func(p *posting) { p.bad, p.times = p.runs[0], 1 }, 1, 0},
		"all of them":           {100, func(p *posting) { p.all, p.times = true, -1 }, 0, 0},
		"all of them, each one": {1, func(p *posting) { p.all, p.times = true, -1 }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPosting(t, 8)
			c.breaks(p)
			p.fails = errStrange
			made, aside, err := p.postAndCount(t.Context(), c.limit)
			require.Equal(t, c.made, made)
			require.Equal(t, c.aside, aside)
			var found *store.SetAsideError
			require.Equal(t, c.aside > 0, errors.As(err, &found))
			require.Equal(t, c.aside > 0 || c.made == 0, errors.Is(err, errStrange))
		})
	}
}

// A row that uses all the time of a call is set aside if the store is fast with other rows.
func TestPostDeliveries_SetsSlowRowAside(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit, aside int
		breaks       func(p *posting)
	}{
		"one alone":                           {1, 1, func(p *posting) { p.bad = p.runs[0] }},
		"one among others":                    {2, 0, func(p *posting) { p.bad = p.runs[0] }},
		"one alone, like others at that time": {1, 0, func(p *posting) { p.all = true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPosting(t, 2)
			c.breaks(p)
			made, aside, err := p.postAndCount(p.failSlowly(), c.limit)
			require.Zero(t, made)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, c.aside, aside)
		})
	}
}

// Rows that were set aside are reported, also if the store becomes unavailable before all others
// were tried.
func TestPostDeliveries_ReportsRowsSetAside(t *testing.T) {
	t.Parallel()
	p := newPosting(t, 2)
	p.bad, p.times, p.fails = p.runs[0], -1, errStrange
	tried, away := 0, errors.New("the store is unavailable")
	p.then = func() {
		if tried++; tried == 3 { // with the other row, alone, and once more
			p.all, p.fails = true, away
		}
	}
	made, aside, err := p.postAndCount(t.Context(), 100)
	require.Zero(t, made)
	require.Equal(t, 1, aside)
	require.ErrorIs(t, err, away)
	require.ErrorContains(t, err, errStrange.Error())
	require.ErrorContains(t, err, p.runs[0].String())
	require.NotErrorAs(t, err, new(*store.SetAsideError), "some others were not posted")
}

// The failing row is found although other rows always succeed, so that the next call takes more
// rows and more projects.
func TestPostDeliveries_FindsSlowRowAmongProjects(t *testing.T) {
	t.Parallel()
	p := newPosting(t, 0)
	projects := []*storebench.Scene{p.project(), p.project(), p.project()}
	slices.SortFunc(projects, func(a, b *storebench.Scene) int { return bytes.Compare(a.Project[:], b.Project[:]) })
	for _, project := range projects {
		project.Trip(t.Context(), t)
	}
	p.bad = p.waiting(projects[0].Project)[0]
	for limit, calls := 2, 0; calls < 10; calls++ {
		if _, err := p.PostDeliveries(p.failSlowly(), limit); err == nil {
			limit = 2
		} else {
			limit = 1
		}
		projects[2].Trip(t.Context(), t)
	}
	require.Empty(t, p.waiting(projects[1].Project), "the caller has gone")
	var aside int
	require.NoError(t, p.read.QueryRowContext(t.Context(), `SELECT count(*) FROM outbox WHERE failures > 0`).Scan(&aside))
	require.Equal(t, 1, aside)
}

// A row that cannot be rolled up or indexed in time delays no other project.
func TestRollUp_SetsSlowRowAside(t *testing.T) {
	t.Parallel()
	for at, c := range map[string]struct {
		outbox  string
		consume func(ctx context.Context, p *posting) (int, error)
	}{
		`INSERT INTO run_rollups`: {"outbox_rollups", func(ctx context.Context, p *posting) (int, error) { return p.RollUp(ctx, 100) }},
		`INSERT INTO run_words`: {"outbox_words", func(ctx context.Context, p *posting) (int, error) {
			return p.IndexRuns(ctx, 100, func(store.Searched) []string { return []string{"word"} })
		}},
	} {
		t.Run(c.outbox, func(t *testing.T) {
			t.Parallel()
			p := newPosting(t, 0)
			slow, other := p.project(), p.project()
			for range 3 {
				slow.Trip(t.Context(), t)
				other.Trip(t.Context(), t)
			}
			rows := func(project uuid.UUID) (all, aside int) {
				require.NoError(t, p.read.QueryRowContext(t.Context(), `SELECT count(*), COALESCE(SUM(failures > 0), 0) FROM `+c.outbox+` WHERE project_id = $1`, project.String()).Scan(&all, &aside))
				return all, aside
			}
			p.at, p.bad = at, slow.Project
			for range 20 {
				_, _ = c.consume(p.failSlowly(), p)
			}
			all, aside := rows(slow.Project)
			require.Equal(t, 3, all)
			require.Equal(t, 3, aside)
			all, _ = rows(other.Project)
			require.Zero(t, all)
		})
	}
}
