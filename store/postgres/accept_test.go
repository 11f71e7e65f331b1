// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// An event is accepted with its input or not at all, also if the blob is being deleted meanwhile.
func TestAccept_RejectsDeletedBlob(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	s := openAt(t, dsn)
	db := openDB(t, dsn)
	scene := storebench.NewScene(t, s, 1)
	blob := uuid.Must(uuid.NewV7())
	_, err := s.PutBlob(t.Context(), store.Key{ProjectID: scene.Project, ID: blob}, strings.NewReader("content"))
	require.NoError(t, err)
	e := scene.Event(t)
	e.Input, e.InputBlob = nil, &blob

	dropping, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	for _, statement := range []string{
		`DELETE FROM blob_chunks WHERE project_id = $1 AND blob_id = $2`, `DELETE FROM blobs WHERE project_id = $1 AND id = $2`,
	} {
		_, err := dropping.ExecContext(t.Context(), statement, scene.Project, blob)
		require.NoError(t, err)
	}
	accepted := make(chan []store.Admission, 1)
	go func() {
		admissions, _ := s.Accept(t.Context(), []store.Event{e}) // the admission has the error too
		accepted <- admissions
	}()
	for waits := 0; waits == 0; {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waits))
	}
	require.NoError(t, dropping.Commit())
	require.ErrorIs(t, (<-accepted)[0].Err, store.ErrNotFound)
}

// statements counts the executed statements.
type statements struct{ atomic.Int64 }

// TraceQueryStart implements pgx.QueryTracer.
func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.Add(1)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A batch costs few statements, whatever its events are. The events wait for each other, and
// another tenant chooses their kind.
func TestAccept_UsesFewStatements(t *testing.T) {
	t.Parallel()
	const many = 60
	for name, change := range map[string]func(e *store.Event){
		"plain":             func(*store.Event) {},
		"without runs":      func(e *store.Event) { e.Runs = nil },
		"whose runs fail":   func(e *store.Event) { e.Runs[0].ErrorCode = "files_required" },
		"that are repeated": func(e *store.Event) { e.Idempotency = &store.Idempotency{Key: "known", TTL: time.Hour} },
		"with another body": func(e *store.Event) {
			e.Idempotency = &store.Idempotency{Key: "known", Fingerprint: []byte("x"), TTL: time.Hour}
		},
		"that are too late":     func(e *store.Event) { e.Repeat, e.Idempotency = true, &store.Idempotency{Key: uuid.NewString()} },
		"with an old version":   func(e *store.Event) { e.ConnectorVersion-- },
		"with a waiting runner": func(e *store.Event) { e.RunnerID = "r" },
		"with keys":             func(e *store.Event) { e.Idempotency = &store.Idempotency{Key: uuid.NewString(), TTL: time.Hour} },
		"with the same slot":    func(e *store.Event) { e.Runs[0].Concurrency.Text = "k" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent statements
			s, err := postgres.Open(t.Context(), postgres.Options{DSN: migrated(t)}.Tuned(func(config *pgx.ConnConfig) { config.Tracer = &sent }))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			scene := storebench.NewScene(t, s, 1)
			first := scene.Event(t)
			first.Idempotency = &store.Idempotency{Key: "known", Fingerprint: []byte("y"), TTL: time.Hour}
			accept := func(n int) int64 {
				events := make([]store.Event, n)
				for i := range events {
					events[i] = scene.Event(t)
					change(&events[i])
				}
				before := sent.Load()
				_, err := s.Accept(t.Context(), events)
				require.NoError(t, err)
				return sent.Load() - before
			}
			_, err = s.Accept(t.Context(), []store.Event{first})
			require.NoError(t, err)
			one := accept(1)
			require.LessOrEqual(t, accept(many), one+2)
		})
	}
}

// A batch may need several statements, each with its own commit. If the server fails at a later
// one, earlier events keep their verdicts. The outcome of the others is unknown, and they have the
// error.
func TestAccept_KeepsVerdictsBeforeFailure(t *testing.T) {
	t.Parallel()
	key := &store.Idempotency{Key: "k", TTL: time.Hour}
	plain := func(*store.Event) {}
	bad := func(e *store.Event) { e.Trigger = "\xff" }
	late := func(e *store.Event) { e.ContentType = "late/late" }
	for name, batch := range map[string]struct {
		changes []func(e *store.Event)
		// decided are the verdicts of the first events.
		decided []store.Verdict
	}{
		"in a later round": {[]func(e *store.Event){
			func(e *store.Event) { e.ConnectorVersion, e.Idempotency = e.ConnectorVersion-1, key },
			plain,
			func(e *store.Event) { late(e); e.Idempotency = key },
		}, []store.Verdict{store.Outdated, store.Accepted}},
		"in a later half": {[]func(e *store.Event){plain, bad, late, plain}, []store.Verdict{store.Accepted, noVerdict}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, s, db := scene(t)
			_, err := db.ExecContext(t.Context(), fullDisk)
			require.NoError(t, err)
			events := make([]store.Event, len(batch.changes))
			for i, change := range batch.changes {
				events[i] = c.Event(t)
				change(&events[i])
			}
			admissions, err := s.Accept(t.Context(), events)
			require.ErrorContains(t, err, "the disk is full")
			require.Len(t, admissions, len(events))
			for i, a := range admissions {
				switch {
				case i >= len(batch.decided):
					require.Equal(t, err, a.Err, "event %d", i)
				case batch.decided[i] == noVerdict:
					require.Error(t, a.Err, "event %d", i)
					require.NotErrorIs(t, err, a.Err, "it has its own error")
				default:
					require.NoError(t, a.Err, "event %d", i)
					require.Equal(t, batch.decided[i], a.Verdict, "event %d", i)
				}
				if a.Err == nil && a.Verdict == store.Accepted {
					_, err := s.ConnectorRun(t.Context(), store.Key{ProjectID: c.Project, ID: a.ConnectorRunID})
					require.NoError(t, err)
				}
			}
			var stored int
			require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM open_connector_runs`).Scan(&stored))
			require.Equal(t, 1, stored)
		})
	}
}

// noVerdict marks an event with an error.
const noVerdict store.Verdict = -1

// fullDisk makes the server fail for inputs with a content type, with an error that is not the
// event's fault.
const fullDisk = `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.content_type = 'late/late' THEN RAISE 'the disk is full' USING ERRCODE = 'disk_full'; END IF;
		RETURN NEW;
	END $$;
	CREATE TRIGGER fail BEFORE INSERT ON inputs FOR EACH ROW EXECUTE FUNCTION fail()`

// Every statement is valid, also for batches that no test has.
func TestAcceptStatements_Parse(t *testing.T) {
	t.Parallel()
	_, _, db := scene(t)
	statements := postgres.AcceptStatements()
	require.Len(t, statements, 8)
	for parts, statement := range statements {
		t.Run(parts, func(t *testing.T) {
			prepared, err := db.PrepareContext(t.Context(), statement)
			require.NoError(t, err)
			require.NoError(t, prepared.Close())
		})
	}
}
