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
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// fault opens connections of which a statement fails where it says so.
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

// patience is a context whose time is over once somebody says so.
type patience struct {
	context.Context //nolint:containedctx // it is one
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

// posting is a store with results to be posted, of which one may fail.
type posting struct {
	*Store
	t    *testing.T
	runs []uuid.UUID // in the order in which they are tried
	// bad is the one of which what is written fails so many times, or -1 for always; all says that
	// it fails of any.
	bad   uuid.UUID
	all   bool
	times int
	fails error
	// at is the beginning of what is written that fails.
	at string
	// then is called when it does.
	then func()
}

// newPosting lets so many runs end.
func newPosting(t *testing.T, runs int) *posting {
	t.Helper()
	path := migrated(t)
	s, err := Open(t.Context(), Options{Path: path, Evaluate: expr.On})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	p := &posting{Store: s, t: t, at: `INSERT INTO deliveries`, then: func() {}}
	require.NoError(t, s.writer.db.Close())
	s.writer.db = sql.OpenDB(fault{databaseAt(path, "immediate", "rwc"), p.fail})
	s.writer.db.SetMaxOpenConns(1)
	scene := p.project()
	for range runs {
		scene.Trip(t.Context(), t)
	}
	p.runs = p.waiting(scene.Project)
	require.Len(t, p.runs, runs)
	return p
}

// project makes one of which results are sent.
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

// waiting are the runs of a project whose results are to be posted.
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

// fail says whether a statement does. The writer asks it, for one call at a time.
func (p *posting) fail(query string, args []driver.NamedValue) error {
	if p.fails == nil || p.times == 0 || !strings.Contains(query, p.at) {
		return nil
	}
	for _, a := range args { // some of which are ids
		if p.all || a.Value == p.bad.String() {
			p.times--
			fails := p.fails
			p.then()
			return fails
		}
	}
	return nil
}

// posted posts, and says what came of that: how many became deliveries, and how many are set aside.
func (p *posting) posted(ctx context.Context, limit int) (made, aside int, err error) {
	p.t.Helper()
	_, err = p.PostDeliveries(ctx, limit)
	p.fails = nil
	claimed, failed := p.ClaimDeliveries(p.t.Context(), store.DeliveryClaim{Limit: 200, PerConnector: 200, Lease: time.Hour})
	require.NoError(p.t, failed)
	require.NoError(p.t, p.read.QueryRowContext(p.t.Context(), `SELECT count(*) FROM outbox WHERE failures > 0`).Scan(&aside))
	return len(claimed), aside, err
}

var errStrange = errors.New("compressed data is corrupt")

// TestARowThatNobodyElseIsLikeIsSetAside, whatever its error is, but none for what the store cannot do.
func TestARowThatNobodyElseIsLikeIsSetAside(t *testing.T) {
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
			made, aside, err := p.posted(t.Context(), c.limit)
			require.Equal(t, c.made, made)
			require.Equal(t, c.aside, aside)
			var found *store.SetAsideError
			require.Equal(t, c.aside > 0, errors.As(err, &found))
			require.Equal(t, c.aside > 0 || c.made == 0, errors.Is(err, errStrange))
		})
	}
}

// TestARowThatTakesTooLongIsSetAside: one that had all the time of a call, while the store is
// quick with others.
func TestARowThatTakesTooLongIsSetAside(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit, aside int
		breaks       func(p *posting)
	}{
		"one alone":                        {1, 1, func(p *posting) { p.bad = p.runs[0] }},
		"one among others":                 {2, 0, func(p *posting) { p.bad = p.runs[0] }},
		"one alone, as others do too then": {1, 0, func(p *posting) { p.all = true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPosting(t, 2)
			c.breaks(p)
			ctx := patience{t.Context(), make(chan struct{})}
			over := false
			p.fails, p.times, p.then = context.DeadlineExceeded, -1, func() {
				if !over {
					close(ctx.over)
				}
				over = true
			}
			made, aside, err := p.posted(ctx, c.limit)
			require.Zero(t, made)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, c.aside, aside)
		})
	}
}

// TestWhatWasSetAsideIsSaid, also where the store is away before all others were tried.
func TestWhatWasSetAsideIsSaid(t *testing.T) {
	t.Parallel()
	p := newPosting(t, 2)
	p.bad, p.times, p.fails = p.runs[0], -1, errStrange
	tried, away := 0, errors.New("the store is away")
	p.then = func() {
		if tried++; tried == 3 { // with the other, alone, and once more
			p.all, p.fails = true, away
		}
	}
	made, aside, err := p.posted(t.Context(), 100)
	require.Zero(t, made)
	require.Equal(t, 1, aside)
	require.ErrorIs(t, err, away)
	require.ErrorContains(t, err, errStrange.Error())
	require.ErrorContains(t, err, p.runs[0].String())
	require.NotErrorAs(t, err, new(*store.SetAsideError), "not all others were posted")
}

// TestARowThatTakesTooLongIsFoundAmongProjects: although there is always one that goes well, so
// that the next call asks for more, and whose turn comes with it.
func TestARowThatTakesTooLongIsFoundAmongProjects(t *testing.T) {
	t.Parallel()
	p := newPosting(t, 0)
	projects := []*storebench.Scene{p.project(), p.project(), p.project()}
	slices.SortFunc(projects, func(a, b *storebench.Scene) int { return bytes.Compare(a.Project[:], b.Project[:]) })
	for _, project := range projects {
		project.Trip(t.Context(), t)
	}
	p.bad = p.waiting(projects[0].Project)[0]
	for limit, calls := 2, 0; calls < 10; calls++ {
		ctx, over := patience{t.Context(), make(chan struct{})}, false
		p.fails, p.times, p.then = context.DeadlineExceeded, -1, func() {
			if !over {
				close(ctx.over)
			}
			over = true
		}
		if _, err := p.PostDeliveries(ctx, limit); err == nil {
			limit = 2
		} else {
			limit = 1
		}
		projects[2].Trip(t.Context(), t)
	}
	require.Empty(t, p.waiting(projects[1].Project), "nobody waits for it")
	var aside int
	require.NoError(t, p.read.QueryRowContext(t.Context(), `SELECT count(*) FROM outbox WHERE failures > 0`).Scan(&aside))
	require.Equal(t, 1, aside)
}

// TestWhatTakesTooLongToBeCountedIsSetAside: what cannot be rolled up or indexed in the time that
// there is keeps no other project waiting.
func TestWhatTakesTooLongToBeCountedIsSetAside(t *testing.T) {
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
				ctx, over := patience{t.Context(), make(chan struct{})}, false
				p.fails, p.times, p.then = context.DeadlineExceeded, -1, func() {
					if !over {
						close(ctx.over)
					}
					over = true
				}
				_, _ = c.consume(ctx, p)
			}
			all, aside := rows(slow.Project)
			require.Equal(t, 3, all)
			require.Equal(t, 3, aside)
			all, _ = rows(other.Project)
			require.Zero(t, all)
		})
	}
}
