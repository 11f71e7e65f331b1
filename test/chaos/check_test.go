// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
)

// The ledger must be able to fail: each broken promise is found.
func TestBookFindsBrokenPromises(t *testing.T) {
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

// The queries must be able to find what they look for.
func TestBookFindsRowsThatMustNotBe(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ spoil, broken string }{
		"nothing": {`SELECT`, ""},
		"a connector run open again": {`INSERT INTO open_connector_runs SELECT project_id, id, environment_id, connector_id, 'running', trigger_type,
			content_type, 0, run_ids, 1, 0, started_at FROM ended_connector_runs`, "1 connector runs are open and have ended"},
		"a run open again": {`INSERT INTO open_runs (project_id, id, environment_id, connector_id, connector_run_id, link_id, agent_name, input_id,
			status, class, queued_at) SELECT project_id, id, environment_id, connector_id, connector_run_id, link_id, agent_name, input_id,
			'queued', 1, queued_at FROM ended_runs LIMIT 1`, "1 agent runs are open and have ended"},
		"a connector run lost": {`DELETE FROM ended_connector_runs`, "2 agent runs belong to no connector run"},
		"a key of nothing":     {`UPDATE idempotency_keys SET connector_run_id = gen_random_uuid()`, "1 idempotency keys stand for no connector run"},
		"an input of nothing":  {`DELETE FROM ended_connector_runs`, "1 inputs belong to no connector run"},
		"a journal lost":       {`DELETE FROM journal`, "2 runs that ended have not the answers"},
		"a call lost":          {`DELETE FROM model_calls`, "2 runs that ended have not the calls of their model"},
		"executed twice":       {`INSERT INTO journal SELECT project_id, run_id, 2, token, kind, data, unsafe, at FROM journal`, "2 runs that ended have not the answers"},
		"a run lost":           {`DELETE FROM ended_runs`, "2 journal entries belong to no run that ended"},
		"not consumed":         {`INSERT INTO outbox SELECT project_id, 'storage', id, 1, 1 FROM ended_runs LIMIT 1`, "1 rows of the outbox are left"},
		"consumed twice":       {`UPDATE stored_bytes SET bytes = bytes + 7`, "7 bytes are counted too many or too few"},
		"never consumed":       {`DELETE FROM stored_bytes`, "bytes are counted too many or too few"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := pgx.Connect(t.Context(), testenv.PostgresPrepared(t, "an ended event", func(dsn string) error { return oneEvent(t, dsn) }))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
			var connector uuid.UUID
			require.NoError(t, conn.QueryRow(t.Context(), `SELECT connector_id FROM idempotency_keys`).Scan(&connector))
			_, err = conn.Exec(t.Context(), c.spoil)
			require.NoError(t, err)
			b, err := readBook(t.Context(), conn, hooks{
				agents: []agent{echo(0), echo(1)}, linked: map[uuid.UUID][]agent{connector: {echo(0), echo(1)}},
			})
			require.NoError(t, err)
			if c.broken == "" {
				require.Empty(t, b.broken)
				return
			}
			require.Contains(t, strings.Join(b.broken, "\n"), c.broken)
		})
	}
}

// oneEvent fills a database with an event under a key, accepted, executed and counted.
func oneEvent(t *testing.T, dsn string) error {
	t.Helper()
	ctx := t.Context()
	st, err := postgres.Open(ctx, postgres.Options{DSN: dsn, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() { require.NoError(t, st.Close()) }()
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
		Environment: store.Key{ProjectID: project, ID: event.EnvironmentID}, RunnerID: "r", Places: 2 * links, Limit: links, Lease: time.Minute,
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
	_, err = st.CountStored(ctx, 100)
	return err
}

func TestReadAnswerTakesNoOther(t *testing.T) {
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
		_, err := readAnswer([]byte(body))
		require.Equal(t, ok, err == nil, body)
	}
}
