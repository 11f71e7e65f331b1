// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/idempotency"
	"github.com/agentplatform/agentplatform/store/sqlcore"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Accept implements store.Ingest: one statement for all events. Events with the same idempotency key get
// the result of the first of them.
func (s *Store) Accept(ctx context.Context, events []store.Event) ([]store.Admission, error) {
	out := make([]store.Admission, len(events))
	decided := make([]bool, len(events))
	var failed error
	for failed == nil {
		now := idempotency.NextEvents(events, decided, out)
		if len(now) == 0 {
			return out, nil
		}
		failed = s.acceptSplit(ctx, events, now, out, decided)
	}
	failed = fmt.Errorf("accepting %d events: %w", len(events), failed)
	for i := range out {
		if !decided[i] {
			out[i] = store.Admission{Err: failed}
		}
	}
	return out, failed
}

// acceptSplit accepts the events with the given indexes. If the data of one is invalid, it
// halves the batch until that event is alone.
func (s *Store) acceptSplit(ctx context.Context, events []store.Event, which []int, out []store.Admission, decided []bool) error {
	err := retryConflicts(func() error { return s.acceptBatch(ctx, events, which, out, decided) })
	switch {
	case !badData(err) && !errors.Is(err, store.ErrNotFound):
		return err
	case len(which) == 1:
		out[which[0]], decided[which[0]] = store.Admission{Err: err}, true
		return nil
	}
	half := len(which) / 2
	if err := s.acceptSplit(ctx, events, which[:half], out, decided); err != nil {
		return err
	}
	return s.acceptSplit(ctx, events, which[half:], out, decided)
}

// acceptStatement asserts the versions of connectors and that secrets have not expired, claims the
// idempotency keys, and inserts the rows of the events that pass. Some sub-selects are deliberately
// not joins: they run as index lookups and hashed sets, whatever the planner assumes about the
// lengths of the arrays. Blobs are locked before their existence is checked, so that none is
// deleted in between. Keys are claimed in order, which prevents deadlocks between batches. Unused
// parts are omitted: most batches have neither blobs nor keys, and the server prepares each part
// for each batch.
func acceptStatement(p acceptParts) string {
	return `WITH clock AS MATERIALIZED (
	SELECT now_us() AS us
)` + chooseText(p.blobs, `, stored AS MATERIALIZED (
	SELECT b.project_id, b.id, b.size, b.complete FROM unnest(`+eventRows.arrayParameter(1, "project_id")+`, `+eventRows.arrayParameter(1, "input_blob")+`) AS w (project_id, id)
	JOIN blobs b ON b.project_id = w.project_id AND b.id = w.id FOR UPDATE OF b
)`, "") + `, ev AS MATERIALIZED (
	SELECT stamp(e.id, clock.us, e.number) AS id, e.project_id, e.environment_id, e.connector_id, e.trigger_type, e.input,
		` + chooseText(p.blobs, `COALESCE((SELECT b.size FROM stored b WHERE b.project_id = e.project_id AND b.id = e.input_blob), e.input_size)`, `e.input_size`) +
		` + e.added_size AS input_size, e.files, e.headers, e.hops, e.traceparent,
		e.input_blob, e.content_type, ARRAY(SELECT stamp(u, clock.us, e.first_run + n) FROM unnest(e.run_ids::uuid[]) WITH ORDINALITY AS t (u, n) ORDER BY n) AS run_ids,
		cardinality(e.run_ids::uuid[]) AS runs, e.key, e.fingerprint, e.ttl, e.repeat, e.number,
		COALESCE((SELECT c.version FROM connectors c
			WHERE c.project_id = e.project_id AND c.id = e.connector_id) = e.version, FALSE)
			AND (e.secret_until IS NULL OR clock.us < e.secret_until) AS current,
		` + chooseText(p.blobs, `e.input_blob IS NULL OR COALESCE((SELECT b.complete FROM stored b
			WHERE b.project_id = e.project_id AND b.id = e.input_blob), FALSE)`, `TRUE`) + ` AS whole, e.runner, e.token, e.agent, e.link, e.replay_of,
		` + chooseText(p.begun, `CASE WHEN e.runner IS NOT NULL THEN `+sqlcore.LiveAgent+` END`, `NULL::text`) + ` AS live
	FROM clock, ` + eventRows.fromClause(1, "e") + `
)` + chooseText(p.keys, `, keyed AS (
	INSERT INTO idempotency_keys AS k (project_id, connector_id, key, fingerprint, connector_run_id, run_ids, expires_at)
	SELECT project_id, connector_id, key, fingerprint, id, run_ids, now_us() + ttl FROM ev
	WHERE current AND whole AND NOT repeat AND key IS NOT NULL ORDER BY project_id, connector_id, key
	ON CONFLICT (project_id, connector_id, key) DO UPDATE SET fingerprint = excluded.fingerprint,
		connector_run_id = excluded.connector_run_id, run_ids = excluded.run_ids, expires_at = excluded.expires_at
	WHERE k.expires_at <= now_us() RETURNING project_id, connector_run_id
)`, "") + `, chosen AS MATERIALIZED (
	SELECT * FROM ev WHERE current AND whole AND NOT repeat ` + chooseText(p.keys, `AND (key IS NULL OR (project_id, id) IN (SELECT project_id, connector_run_id FROM keyed))`, "") + `
)` + chooseText(p.blobs, `, kept AS (
	UPDATE blobs b SET mark = 'history' FROM chosen WHERE b.project_id = chosen.project_id AND b.id = chosen.input_blob
)`, "") + `, input_rows AS (
	INSERT INTO inputs (project_id, id, content_type, data, blob_id, files, headers, hops, traceparent)
	SELECT project_id, id, content_type, input, input_blob, files, headers, hops, traceparent FROM chosen
), connector_rows AS (
	INSERT INTO open_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type, content_type,
		input_size, run_ids, runs_left, runs_failed, runs_completed, replay_of, started_at)
	SELECT project_id, id, environment_id, connector_id, 'running', trigger_type, content_type, input_size, run_ids, runs, 0, 0, replay_of, clock.us
	FROM chosen, clock
), run_rows AS (
	INSERT INTO open_runs (project_id, id, environment_id, connector_id, connector_run_id, link_id, agent_name, input_id,
		status, class, concurrency_key, blocked, queued_at)
	SELECT r.project_id, stamp(r.id, clock.us, r.number), r.environment_id, r.connector_id, stamp(r.connector_run_id, clock.us, r.event), r.link_id,
		r.agent_name, stamp(r.connector_run_id, clock.us, r.event), 'queued', r.class, r.concurrency_key, r.blocked, clock.us
	FROM clock, ` + runRows.fromClause(1+len(eventRows), "r") + `
	WHERE ((r.project_id, r.event) IN (SELECT project_id, number FROM chosen WHERE live IS NULL)) IS TRUE
)` + chooseText(p.begun, `, begun_rows AS (
	INSERT INTO open_runs (project_id, id, environment_id, connector_id, connector_run_id, link_id, agent_name, input_id,
		status, class, queued_at, started_at, deployment_id, token, attempt, runner_id, lease_until)
	SELECT project_id, run_ids[1], environment_id, connector_id, id, link, agent, id, 'running', 0, clock.us, clock.us,
		left(live, 36)::uuid, token, 1, runner, clock.us + `+strconv.FormatInt(store.UnconfirmedLease.Microseconds(), 10)+`
	FROM chosen, clock WHERE live IS NOT NULL
)`, "") + `
SELECT current, whole, ((project_id, ev.id) IN (SELECT project_id, id FROM chosen)) IS TRUE, clock.us, live FROM ev, clock`
}

// acceptParts are the optional parts of a batch: events with a blob, with a key, or with a direct
// handoff.
type acceptParts struct{ blobs, keys, begun bool }

// acceptStatements are the statements for all combinations, built once.
var acceptStatements = func() map[acceptParts]string {
	all := map[acceptParts]string{}
	for n := range 8 {
		parts := acceptParts{blobs: n&1 != 0, keys: n&2 != 0, begun: n&4 != 0}
		all[parts] = acceptStatement(parts)
	}
	return all
}()

// chooseText returns one text or the other.
func chooseText(wanted bool, text, otherwise string) string {
	if wanted {
		return text
	}
	return otherwise
}

// eventResult is the result of the statement for an event.
type eventResult struct {
	current, whole, chosen bool
	at                     int64
	live                   *string // deployment and bundle of a started run
}

// acceptBatch accepts events with different keys. Runs that fail at once end in the same
// transaction, and runs with a concurrency key try to get it. Only these batches need a transaction
// of several statements.
func (s *Store) acceptBatch(ctx context.Context, events []store.Event, which []int, out []store.Admission, decided []bool) error {
	batch, settling := newBatch(events, which), false
	for _, i := range which {
		settling = settling || sqlcore.Settles(events[i])
	}
	var fates []eventResult
	run := func(ctx context.Context, q sqldb.Queryer) (err error) {
		fates, err = readEventResults(ctx, q, acceptStatements[batch.neededParts()], batch.arguments())
		return err
	}
	var hints []store.Hint
	if !settling {
		if err := s.schema.CheckUsable(); err != nil {
			return err
		}
		if err := run(ctx, s.db); err != nil {
			return err
		}
	} else if err := s.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if err := run(ctx, tx); err != nil {
			return err
		}
		var (
			accepted   []store.Event
			admissions []store.Admission
		)
		for n, i := range which {
			if fates[n].chosen {
				accepted, admissions = append(accepted, events[i]), append(admissions, batch.admissionOf(n, fates[n]))
			}
		}
		if err := s.KeepFiles(ctx, tx, accepted); err != nil {
			return err
		}
		return s.Settle(ctx, tx, accepted, admissions)
	}); err != nil {
		return err
	}
	earlier := s.readEarlierEvents(ctx, events, which, fates)
	for n, i := range which {
		out[i], decided[i] = earlier.judgeEvent(events[i], i, fates[n], batch.admissionOf(n, fates[n]))
		if fates[n].chosen && fates[n].live == nil && !sqlcore.EndsAtOnce(events[i]) {
			hints = append(hints, store.Hint{Topic: store.TopicQueued, Key: store.Key{ProjectID: events[i].ProjectID, ID: events[i].EnvironmentID}})
		}
	}
	s.publish(hints)
	return nil
}

func readEventResults(ctx context.Context, q sqldb.Queryer, statement string, args []any) (fates []eventResult, err error) {
	rows, err := q.QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err returns its error
	for rows.Next() {
		var f eventResult
		if err := rows.Scan(&f.current, &f.whole, &f.chosen, &f.at, &f.live); err != nil {
			return nil, err
		}
		fates = append(fates, f)
	}
	return fates, rows.Err()
}

// numberedKey is the idempotency key of an event with a number.
type numberedKey struct {
	*store.Event
	number int64
}

var numberedKeys = rowset[numberedKey]{
	columnOf("number", func(k *numberedKey) int64 { return k.number }),
	uuidColumn("project_id", func(k *numberedKey) uuid.UUID { return k.ProjectID }),
	uuidColumn("connector_id", func(k *numberedKey) uuid.UUID { return k.ConnectorID }),
	columnOf("key", func(k *numberedKey) string { return sqldb.Text(k.Idempotency.Key) }),
}

// earlierStatement selects the earlier events with idempotency keys.
var earlierStatement = `SELECT w.number, k.connector_run_id, k.fingerprint, k.run_ids
	FROM ` + numberedKeys.fromClause(1, "w") + `
	JOIN idempotency_keys k ON k.project_id = w.project_id AND k.connector_id = w.connector_id AND k.key = w.key
	WHERE k.expires_at > now_us()`

// earlierEvents has the earlier events with the same keys by number, or err if they are unknown.
type earlierEvents struct {
	first map[int64]*idempotency.StoredResult
	err   error
}

// readEarlierEvents reads, in one query, the earlier events with the keys of these events.
func (s *Store) readEarlierEvents(ctx context.Context, events []store.Event, which []int, fates []eventResult) earlierEvents {
	var keys []numberedKey
	for n, i := range which {
		if fates[n].current && fates[n].whole && !fates[n].chosen {
			keys = append(keys, numberedKey{&events[i], int64(i)})
		}
	}
	found := earlierEvents{first: map[int64]*idempotency.StoredResult{}}
	if len(keys) > 0 {
		found.err = readEarlier(ctx, s.db, found.first, keys)
	}
	return found
}

func readEarlier(ctx context.Context, q sqldb.Queryer, into map[int64]*idempotency.StoredResult, keys []numberedKey) error {
	rows, err := q.QueryContext(ctx, earlierStatement, numberedKeys.arguments(keys)...)
	if err != nil {
		return fmt.Errorf("reading idempotency keys: %w", err)
	}
	defer func() { _ = rows.Close() }() // Err returns its error
	for rows.Next() {
		var (
			number int64
			first  idempotency.StoredResult
		)
		if err := first.Scan(rows, &number); err != nil {
			return fmt.Errorf("reading idempotency keys: %w", err)
		}
		into[number] = &first
	}
	return rows.Err()
}

// judgeEvent returns the result of an event. decided is false if the key of the event has just expired.
func (known earlierEvents) judgeEvent(e store.Event, number int, f eventResult, admitted store.Admission) (a store.Admission, decided bool) {
	switch {
	case !f.current:
		return store.Admission{Verdict: store.Outdated}, true
	case !f.whole:
		return store.Admission{Err: fmt.Errorf("input blob %s: %w", e.InputBlob, store.ErrNotFound)}, true
	case f.chosen:
		return admitted, true
	case known.err != nil: // the other events of the batch are committed
		return store.Admission{Err: known.err}, true
	}
	first := known.first[int64(number)]
	switch {
	case first != nil:
		return first.Answer(e), true
	case e.Repeat:
		return store.Admission{Verdict: store.Expired}, true
	}
	return a, false
}
