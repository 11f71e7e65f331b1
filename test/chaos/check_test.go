// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

// The ledger must be able to fail: each broken promise is found.
func TestBook_FindsBrokenPromises(t *testing.T) {
	t.Parallel()
	connector, one, two, other := uuid.New(), uuid.New(), uuid.New(), uuid.New()
	whole := row{
		id: uuid.New(), connector: connector, input: []byte(`{"marker":"m"}`), links: links,
		runs: []uuid.UUID{one, two}, listed: []uuid.UUID{one, two}, states: []string{"completed"},
	}
	edit := func(change func(*row)) row {
		r := whole
		change(&r)
		return r
	}
	accepted := mark{sends: 1, runs: []uuid.UUID{one, two}}
	for name, c := range map[string]struct {
		mark   mark
		rows   []row
		broken string // "" when all is well
	}{
		"accepted":                    {accepted, []row{whole}, ""},
		"accepted and lost":           {accepted, nil, "there are 0 connector runs"},
		"accepted twice":              {accepted, []row{whole, whole}, "there are 2 connector runs"},
		"other runs than answered":    {accepted, []row{edit(func(r *row) { r.runs = []uuid.UUID{one, other} })}, "answered with the runs"},
		"a run lost":                  {accepted, []row{edit(func(r *row) { r.runs = r.runs[:1] })}, "has 1 agent runs"},
		"a link twice":                {accepted, []row{edit(func(r *row) { r.links = 1 })}, "of 1 links"},
		"another connector's":         {accepted, []row{edit(func(r *row) { r.connector = other })}, "another connector's"},
		"a key twice":                 {mark{sends: 2, keyed: true, runs: accepted.runs}, []row{whole, whole}, "there are 2 connector runs"},
		"a key without an answer":     {mark{sends: 2, keyed: true}, []row{whole}, "never came to an answer"},
		"unknown, not there":          {mark{sends: 1}, nil, ""},
		"unknown, there":              {mark{sends: 1}, []row{whole}, ""},
		"unknown, without agent runs": {mark{sends: 1}, []row{edit(func(r *row) { r.runs, r.links = nil, 0 })}, "has 0 agent runs"},
		"unknown, twice":              {mark{sends: 1}, []row{whole, whole}, "there are 2 connector runs"},
		"never sent":                  {mark{}, []row{whole}, "no gateway was reached"},
		"of nobody":                   {accepted, []row{whole, edit(func(r *row) { r.input = []byte(`{"marker":"x"}`) })}, "never made"},
		"stuck":                       {accepted, []row{edit(func(r *row) { r.states = []string{"completed", "queued"} })}, "not [completed]"},
		"failed":                      {accepted, []row{edit(func(r *row) { r.states = []string{"failed"} })}, "not [completed]"},
		"names other runs":            {accepted, []row{edit(func(r *row) { r.listed = []uuid.UUID{one, other} })}, "names the runs"},
		"garbled":                     {accepted, []row{whole, edit(func(r *row) { r.input = []byte(`{`) })}, "never sent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := book{hooks: hooks{linked: map[uuid.UUID][]agent{connector: {echo(0)}, other: {echo(0)}}}, runs: map[string][]row{}}
			for _, r := range c.rows {
				b.add(r)
			}
			m := c.mark
			m.text, m.connector = "m", connector
			broken := b.check(map[string]*mark{"m": &m})
			if c.broken == "" {
				require.Empty(t, broken)
				return
			}
			require.NotEmpty(t, broken)
			require.Contains(t, strings.Join(broken, "\n"), c.broken)
		})
	}
}

// spoilt maps each broken state of the database to the statement that creates it and to the expected report.
var spoilt = map[string]struct{ spoil, broken string }{
	"nothing": {`SELECT 1`, ""},
	"a connector run open again": {`INSERT INTO open_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type, content_type,
			input_size, run_ids, runs_left, runs_failed, runs_completed, started_at) SELECT project_id, id, environment_id, connector_id, 'running', trigger_type,
			content_type, 0, run_ids, 1, 0, 0, started_at FROM ended_connector_runs`, "1 connector runs are open and have ended"},
	"a run open again": {`INSERT INTO open_runs (project_id, id, environment_id, connector_id, connector_run_id, link_id, agent_name, input_id,
			status, class, queued_at) SELECT project_id, id, environment_id, connector_id, connector_run_id, link_id, agent_name, input_id,
			'queued', 1, queued_at FROM ended_runs LIMIT 1`, "1 agent runs are open and have ended"},
	"a connector run lost": {`DELETE FROM ended_connector_runs`, "2 agent runs belong to no connector run"},
	"a key of nothing":     {`UPDATE idempotency_keys SET connector_run_id = '00000000-0000-4000-8000-000000000000'`, "1 idempotency keys stand for no connector run"},
	"an input of nothing":  {`DELETE FROM ended_connector_runs`, "1 inputs belong to no connector run"},
	"a journal lost":       {`DELETE FROM journal`, "2 runs that ended have not the answers"},
	"a call lost":          {`DELETE FROM model_calls`, "2 runs that ended have not the calls of their model"},
	"executed twice": {`INSERT INTO journal (project_id, run_id, sequence, token, kind, data, unsafe, at)
		SELECT project_id, run_id, 2, token, kind, data, unsafe, at FROM journal`, "2 runs that ended have not the answers"},
	"a run lost":             {`DELETE FROM ended_runs`, "2 journal entries belong to no run that ended"},
	"not consumed":           {`INSERT INTO outbox (project_id, consumer, ended_id, bytes, posted_at) SELECT project_id, 'storage', id, 1, 1 FROM ended_runs LIMIT 1`, "1 rows of the outbox are left"},
	"a trace not exported":   {`INSERT INTO outbox_traces (project_id, run_id, ended_at, due_at) SELECT project_id, id, 1, 1 FROM ended_runs LIMIT 1`, "1 rows of the outbox are left"},
	"consumed twice":         {`UPDATE stored_bytes SET bytes = bytes + 7`, "7 bytes are counted too many or too few"},
	"never consumed":         {`DELETE FROM stored_bytes`, "bytes are counted too many or too few"},
	"a key not counted":      {`DELETE FROM idempotency_keys`, "337 bytes are counted too many or too few"},
	"an entry counted twice": {`UPDATE run_words SET bytes = 2 * bytes`, "bytes are counted too many or too few"},
	"an agent run lost":      {`DELETE FROM ended_runs WHERE agent_name = 'agent-1'`, "has 1 agent runs of 1 links"},
}

// The queries must find each kind of unexpected row in both stores.
func TestBook_FindsUnexpectedRows(t *testing.T) {
	t.Parallel()
	for engine, prepared := range map[string]func(*testing.T) *sql.DB{"PostgreSQL": eventOnServer, "SQLite": eventInFile} {
		for name, c := range spoilt {
			t.Run(engine+"/"+name, func(t *testing.T) {
				t.Parallel()
				db := prepared(t)
				t.Cleanup(func() { require.NoError(t, db.Close()) })
				conn, err := db.Conn(t.Context())
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, conn.Close()) })
				var connector uuid.UUID
				require.NoError(t, conn.QueryRowContext(t.Context(), `SELECT connector_id FROM idempotency_keys`).Scan(&connector))
				_, err = conn.ExecContext(t.Context(), c.spoil)
				require.NoError(t, err)
				b, err := readBook(t.Context(), conn, hooks{
					agents: []agent{echo(0), echo(1)}, linked: map[uuid.UUID][]agent{connector: {echo(0), echo(1)}},
				})
				require.NoError(t, err)
				if c.broken == "" {
					require.Empty(t, b.broken)
					require.Equal(t, []int{1, links}, []int{b.connectorRuns, b.agentRuns})
					return
				}
				require.Contains(t, strings.Join(b.broken, "\n"), c.broken)
			})
		}
	}
}

// eventOnServer returns a PostgreSQL database with one event.
func eventOnServer(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", testenv.PostgresPrepared(t, "an ended event", func(dsn string) error {
		st, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		return errors.Join(oneEvent(t, st), st.Close())
	}))
	require.NoError(t, err)
	return db
}

// eventInFile returns a SQLite database with one event.
func eventInFile(t *testing.T) *sql.DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	st, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, errors.Join(oneEvent(t, st), st.Close()))
	db, err := openFile(path, "rw")
	require.NoError(t, err)
	return db
}

// oneEvent fills a store with an event under a key, accepted, executed and counted.
func oneEvent(t *testing.T, st store.Store) error {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, st.Migrate(ctx))
	connector := store.Key{ProjectID: project, ID: seed(t, st, agent{}).ids[0]}
	route, err := st.Route(ctx, connector)
	require.NoError(t, err)
	event := store.Event{
		ConnectorRunID: uuid.New(), ProjectID: project, EnvironmentID: route.Connector.EnvironmentID, ConnectorID: connector.ID,
		ConnectorVersion: route.Connector.Version, Trigger: store.TriggerWebhook, ContentType: "application/json",
		Input: []byte(`{"marker":"m"}`), Idempotency: &store.Idempotency{Key: "m", TTL: time.Hour},
	}
	for _, link := range route.Links {
		event.Runs = append(event.Runs, store.EventRun{ID: uuid.New(), LinkID: link.ID, AgentName: link.AgentName})
	}
	admissions, err := st.Accept(ctx, []store.Event{event})
	require.NoError(t, err)
	require.NoError(t, admissions[0].Err)
	claimed, err := st.Claim(ctx, store.Claim{
		Environment: store.Key{ProjectID: project, ID: event.EnvironmentID}, RunnerID: "r", Slots: 2 * links, Limit: links, Lease: time.Minute,
	})
	require.NoError(t, err)
	require.Len(t, claimed.Runs, links)
	var ends []store.Completion
	for _, run := range claimed.Runs {
		ends = append(ends, store.Completion{
			Lease: store.Lease{Run: run.Run.Key(), Token: run.Token}, Status: store.RunCompleted, Output: "Done.",
			Journal: []store.JournalEntry{{Sequence: 1, Kind: store.JournalModelAnswer, Data: []byte(`{}`), Usage: &store.ModelUsage{Model: "p/m"}}},
		})
	}
	refused, err := st.Complete(ctx, ends)
	require.NoError(t, err)
	require.NoError(t, errors.Join(refused...))
	_, err = st.RollUp(ctx, 100)
	require.NoError(t, err)
	_, err = st.IndexRuns(ctx, 100, func(store.Searched) []string { return nil })
	require.NoError(t, err)
	_, err = st.CountStored(ctx, 100) // with the entries of the index
	return err
}

func TestReadAnswer_RejectsOtherAnswers(t *testing.T) {
	t.Parallel()
	a, b := uuid.NewString(), uuid.NewString()
	for body, ok := range map[string]bool{
		`{"status":"ok","dispatched_to":2,"run_ids":["` + a + `","` + b + `"]}`: true,
		``: false,
		`{"status":"ok","dispatched_to":0,"run_ids":[]}`:                                    false,
		`{"status":"ok","dispatched_to":2,"run_ids":["` + a + `"]}`:                         false,
		`{"status":"ok","dispatched_to":2,"run_ids":["` + a + `","` + a + `"]}`:             false,
		`{"status":"ok","dispatched_to":2,"run_ids":["` + a + `","` + b + `"],"more":true}`: false,
		`{"status":"ok","dispatched_to":2,"run_ids":["` + a + `","` + b + `"]}{}`:           false,
	} {
		t.Run(body, func(t *testing.T) {
			_, err := readAnswer([]byte(body))
			require.Equal(t, ok, err == nil)
		})
	}
}
