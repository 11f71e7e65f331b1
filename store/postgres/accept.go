// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlcore"
)

// Accept implements store.Ingest: one statement for all events, but for those
// whose idempotency key another event of the batch has too, which come after.
func (s *Store) Accept(ctx context.Context, events []store.Event) ([]store.Admission, error) {
	out := make([]store.Admission, len(events))
	waiting := make([]int, len(events))
	for i := range waiting {
		waiting[i] = i
	}
	for len(waiting) > 0 {
		var now, later []int
		keys := map[idempotencyKey]bool{}
		for _, i := range waiting {
			key, keyed := keyOf(events[i])
			if keyed && keys[key] {
				later = append(later, i)
				continue
			}
			keys[key] = true
			now = append(now, i)
		}
		if err := s.acceptSplit(ctx, events, now, out); err != nil {
			return nil, fmt.Errorf("accepting %d events: %w", len(events), err)
		}
		waiting = later
	}
	return out, nil
}

type idempotencyKey struct {
	connector store.Key
	key       string
}

func keyOf(e store.Event) (idempotencyKey, bool) {
	if e.Idempotency == nil {
		return idempotencyKey{}, false
	}
	return idempotencyKey{store.Key{ProjectID: e.ProjectID, ID: e.ConnectorID}, e.Idempotency.Key}, true
}

// acceptSplit accepts the events that which names; when the data of one is at
// fault it halves them until that one is alone.
func (s *Store) acceptSplit(ctx context.Context, events []store.Event, which []int, out []store.Admission) error {
	err := again(func() error { return s.acceptBatch(ctx, events, which, out) })
	switch {
	case !hasCode(err, "22", "23", "54"):
		return err
	case len(which) == 1:
		out[which[0]] = store.Admission{Err: err}
		return nil
	}
	half := len(which) / 2
	if err := s.acceptSplit(ctx, events, which[:half], out); err != nil {
		return err
	}
	return s.acceptSplit(ctx, events, which[half:], out)
}

// acceptStatement asserts the connectors' versions and that the secrets have not ended, claims the idempotency keys
// and inserts the rows of the events that pass. The sub-selects that are no
// plain joins are so on purpose: they run as index look-ups and hashed sets
// whatever the planner thinks of the arrays' lengths. Keys are claimed in their
// order, so that two batches cannot wait for each other.
const acceptStatement = `WITH ev AS MATERIALIZED (
	SELECT e.*,
		COALESCE((SELECT c.version FROM connectors c
			WHERE c.project_id = e.project_id AND c.id = e.connector_id) = e.version, FALSE)
			AND (e.secret_until IS NULL OR now_us() < e.secret_until) AS current,
		e.input_blob IS NULL OR COALESCE((SELECT b.complete FROM blobs b
			WHERE b.project_id = e.project_id AND b.id = e.input_blob), FALSE) AS whole
	FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::bigint[], $6::text[], $7::bytea[], $8::uuid[],
		$9::text[], $10::bigint[], $11::bigint[], $12::text[], $13::bytea[], $14::bigint[],
		$25::bigint[])
		AS e (id, project_id, environment_id, connector_id, version, trigger_type, input, input_blob,
			content_type, open_runs, failed_runs, key, fingerprint, ttl, secret_until)
), keyed AS (
	INSERT INTO idempotency_keys AS k (project_id, connector_id, key, fingerprint, connector_run_id, expires_at)
	SELECT project_id, connector_id, key, fingerprint, id, now_us() + ttl FROM ev
	WHERE current AND whole AND key IS NOT NULL ORDER BY project_id, connector_id, key
	ON CONFLICT (project_id, connector_id, key) DO UPDATE SET fingerprint = excluded.fingerprint,
		connector_run_id = excluded.connector_run_id, expires_at = excluded.expires_at
	WHERE k.expires_at <= now_us()
	RETURNING project_id, connector_run_id
), chosen AS MATERIALIZED (
	SELECT * FROM ev WHERE current AND whole AND (key IS NULL OR (project_id, id) IN (SELECT project_id, connector_run_id FROM keyed))
), connector_rows AS (
	INSERT INTO connector_runs (project_id, id, environment_id, connector_id, status, trigger_type, input,
		input_blob, content_type, open_runs, failed_runs, started_at, ended_at)
	SELECT project_id, id, environment_id, connector_id,
		CASE WHEN open_runs > 0 THEN 'running' WHEN failed_runs > 0 THEN 'failed' ELSE 'completed' END,
		trigger_type, input, input_blob, content_type, open_runs, failed_runs, now_us(),
		CASE WHEN open_runs = 0 THEN now_us() END
	FROM chosen
), agent_rows AS (
	INSERT INTO agent_runs (project_id, id, environment_id, connector_id, connector_run_id, link_id, position,
		agent_name, status, error_code, error, queued_at, ended_at)
	SELECT r.project_id, r.id, r.environment_id, r.connector_id, r.connector_run_id, r.link_id, r.position,
		r.agent_name, CASE WHEN r.error_code = '' THEN 'queued' ELSE 'failed' END, r.error_code, r.error, now_us(),
		CASE WHEN r.error_code <> '' THEN now_us() END
	FROM unnest($15::uuid[], $16::uuid[], $17::uuid[], $18::uuid[], $19::uuid[], $20::uuid[], $21::bigint[],
		$22::text[], $23::text[], $24::text[])
		AS r (id, project_id, environment_id, connector_id, connector_run_id, link_id, position, agent_name,
			error_code, error)
	WHERE ((r.project_id, r.connector_run_id) IN (SELECT project_id, id FROM chosen)) IS TRUE
)
SELECT current, whole, ((project_id, id) IN (SELECT project_id, id FROM chosen)) IS TRUE FROM ev`

// fate is what the statement says of an event.
type fate struct{ current, whole, chosen bool }

func (s *Store) acceptBatch(ctx context.Context, events []store.Event, which []int, out []store.Admission) error {
	var columns eventColumns
	for _, i := range which {
		columns.add(events[i])
	}
	rows, err := s.pool.Query(ctx, acceptStatement, columns.args()...)
	if err != nil {
		return err
	}
	fates, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f fate, err error) {
		err = row.Scan(&f.current, &f.whole, &f.chosen)
		return f, err
	})
	if err != nil {
		return err
	}
	var hints []store.Hint
	var again []int
	for n, i := range which {
		e := events[i]
		switch f := fates[n]; {
		case !f.current:
			out[i] = store.Admission{Verdict: store.Outdated}
		case !f.whole:
			out[i] = store.Admission{Err: fmt.Errorf("input blob %s: %w", e.InputBlob, store.ErrNotFound)}
		case f.chosen:
			out[i], hints = admitted(e, hints)
		default:
			earlier, err := sqlcore.Earlier(ctx, s.db, e)
			switch {
			case errors.Is(err, store.ErrNotFound): // it expired in this moment
				again = append(again, i)
			case err != nil: // the others of the batch are committed
				out[i] = store.Admission{Err: err}
			default:
				out[i] = earlier
			}
		}
	}
	s.publish(hints)
	if len(again) > 0 {
		return s.acceptBatch(ctx, events, again, out)
	}
	return nil
}

// admitted is the answer to an event whose rows were written.
func admitted(e store.Event, hints []store.Hint) (store.Admission, []store.Hint) {
	a := store.Admission{ConnectorRunID: e.ConnectorRunID, RunIDs: make([]uuid.UUID, len(e.Runs))}
	hint := store.Hint{Topic: store.TopicDone, Key: store.Key{ProjectID: e.ProjectID, ID: e.ConnectorRunID}}
	for i, run := range e.Runs {
		a.RunIDs[i] = run.ID
		if run.ErrorCode == "" {
			hint = store.Hint{Topic: store.TopicQueued, Key: store.Key{ProjectID: e.ProjectID, ID: e.EnvironmentID}}
		}
	}
	return a, append(hints, hint)
}

// eventColumns are events as the arrays of acceptStatement.
type eventColumns struct {
	id, project, environment, connector, blob []pgtype.UUID
	version, open, failed                     []int64
	trigger, contentType                      []string
	input, fingerprint                        [][]byte
	key                                       []*string
	ttl                                       []int64
	secretUntil                               []*int64

	run, runProject, runEnvironment, runConnector, runOf, runLink []pgtype.UUID
	runPosition                                                   []int64
	runAgent, runCode, runError                                   []string
}

func (c *eventColumns) add(e store.Event) {
	id, project, environment, connector := known(e.ConnectorRunID), known(e.ProjectID), known(e.EnvironmentID), known(e.ConnectorID)
	var open, failed int64
	for position, run := range e.Runs {
		if run.ErrorCode == "" {
			open++
		} else {
			failed++
		}
		c.run, c.runOf = append(c.run, known(run.ID)), append(c.runOf, id)
		c.runProject, c.runEnvironment = append(c.runProject, project), append(c.runEnvironment, environment)
		c.runConnector, c.runLink = append(c.runConnector, connector), append(c.runLink, known(run.LinkID))
		c.runPosition = append(c.runPosition, int64(position))
		c.runAgent = append(c.runAgent, sqlcore.Text(run.AgentName))
		c.runCode = append(c.runCode, string(run.ErrorCode))
		c.runError = append(c.runError, sqlcore.Text(run.Error))
	}
	c.id, c.project = append(c.id, id), append(c.project, project)
	c.environment, c.connector = append(c.environment, environment), append(c.connector, connector)
	c.version, c.trigger = append(c.version, e.ConnectorVersion), append(c.trigger, string(e.Trigger))
	var blob pgtype.UUID
	if e.InputBlob != nil {
		blob = known(*e.InputBlob)
	}
	c.input, c.blob = append(c.input, e.Input), append(c.blob, blob)
	c.contentType = append(c.contentType, sqlcore.Text(e.ContentType))
	c.secretUntil = append(c.secretUntil, sqlcore.MaybeInstant(e.SecretNotAfter))
	c.open, c.failed = append(c.open, open), append(c.failed, failed)
	if i := e.Idempotency; i != nil {
		key := sqlcore.Text(i.Key)
		c.key, c.fingerprint, c.ttl = append(c.key, &key), append(c.fingerprint, i.Fingerprint), append(c.ttl, i.TTL.Microseconds())
	} else {
		c.key, c.fingerprint, c.ttl = append(c.key, nil), append(c.fingerprint, nil), append(c.ttl, 0)
	}
}

func (c *eventColumns) args() []any {
	return []any{
		c.id, c.project, c.environment, c.connector, c.version, c.trigger, c.input, c.blob, c.contentType, c.open,
		c.failed, c.key, c.fingerprint, c.ttl,
		c.run, c.runProject, c.runEnvironment, c.runConnector, c.runOf, c.runLink, c.runPosition, c.runAgent,
		c.runCode, c.runError, c.secretUntil,
	}
}

func known(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }
