// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	modernc "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/concurrency"
	"github.com/agentplatform/agentplatform/store/idempotency"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqlcore"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Accept implements store.Ingest. It stores all events without savepoints. If one fails, it starts
// again with a savepoint per event.
func (s *Store) Accept(ctx context.Context, events []store.Event) ([]store.Admission, error) {
	out := make([]store.Admission, len(events))
	err := s.acceptBatch(ctx, events, out, s.acceptEvent)
	if isAtFault(err) {
		err = s.acceptBatch(ctx, events, out, s.acceptApart)
	}
	if err != nil {
		err = fmt.Errorf("accepting %d events: %w", len(events), err)
		for i := range out {
			out[i] = store.Admission{Err: err}
		}
	}
	return out, err
}

type acceptFunc func(ctx context.Context, tx *sqldb.Tx, e store.Event) (store.Admission, error)

func (s *Store) acceptBatch(ctx context.Context, events []store.Event, out []store.Admission, one acceptFunc) error {
	return s.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) (err error) {
		for i, event := range events {
			if out[i], err = one(ctx, tx, event); err != nil {
				return err
			}
		}
		return nil
	})
}

// acceptApart accepts an event in a savepoint.
func (s *Store) acceptApart(ctx context.Context, tx *sqldb.Tx, e store.Event) (store.Admission, error) {
	if _, err := tx.ExecContext(ctx, `SAVEPOINT event`); err != nil {
		return store.Admission{}, err
	}
	admission, err := s.acceptEvent(ctx, tx, e)
	if isAtFault(err) {
		admission = store.Admission{Err: err}
		_, err = tx.ExecContext(ctx, `ROLLBACK TO event`)
	}
	if err != nil {
		return store.Admission{}, err
	}
	_, err = tx.ExecContext(ctx, `RELEASE event`)
	return admission, err
}

func (s *Store) acceptEvent(ctx context.Context, tx *sqldb.Tx, e store.Event) (store.Admission, error) {
	if e.Repeat && e.Idempotency == nil {
		return store.Admission{Err: fmt.Errorf("a duplicate request without its key: %w", store.ErrInvalid)}, nil
	}
	var (
		current, blob bool
		at            int64 // one time for the event's IDs and rows
	)
	err := tx.QueryRowContext(ctx, `SELECT now_us(),
			EXISTS (SELECT 1 FROM connectors WHERE project_id = $1 AND id = $2 AND version = $3)
				AND ($5 IS NULL OR now_us() < $5),
			$4 IS NULL OR EXISTS (SELECT 1 FROM blobs WHERE project_id = $1 AND id = $4 AND complete)`,
		e.ProjectID, e.ConnectorID, e.ConnectorVersion, e.InputBlob, sqldb.MaybeInstant(e.SecretNotAfter)).Scan(&at, &current, &blob)
	switch {
	case err != nil:
		return store.Admission{}, fmt.Errorf("asserting the connector's version: %w", err)
	case !current:
		return store.Admission{Verdict: store.Outdated}, nil
	case !blob:
		return store.Admission{Err: fmt.Errorf("input blob %s: %w", e.InputBlob, store.ErrNotFound)}, nil
	}
	a := sqlcore.Admitted(e, at, 0, 0)
	if e.Idempotency != nil {
		earlier, first, err := s.takeKey(ctx, tx, e, a)
		if err != nil || !first {
			return earlier, err
		}
	}
	return s.insertEvent(ctx, tx, e, a, at)
}

// takeKey claims an event's idempotency key. If another event has it, first is false and its
// admission is returned.
func (s *Store) takeKey(ctx context.Context, tx *sqldb.Tx, e store.Event, a store.Admission) (earlier store.Admission, first bool, err error) {
	if !e.Repeat {
		result, err := tx.ExecContext(ctx, `INSERT INTO idempotency_keys
				(project_id, connector_id, key, fingerprint, connector_run_id, run_ids, expires_at)
			VALUES ($1, $2, $3, $4, $5, $7, now_us() + $6)
			ON CONFLICT (project_id, connector_id, key) DO UPDATE SET fingerprint = excluded.fingerprint,
				connector_run_id = excluded.connector_run_id, run_ids = excluded.run_ids, expires_at = excluded.expires_at
			WHERE idempotency_keys.expires_at <= now_us()`,
			e.ProjectID, e.ConnectorID, sqldb.Text(e.Idempotency.Key), e.Idempotency.Fingerprint, a.ConnectorRunID,
			e.Idempotency.TTL.Microseconds(), idsText(a.RunIDs))
		if err != nil {
			return earlier, false, fmt.Errorf("claiming the idempotency key: %w", err)
		}
		if n, err := result.RowsAffected(); err != nil || n == 1 {
			return earlier, true, err
		}
	}
	earlier, err = idempotency.Earlier(ctx, tx, e)
	if errors.Is(err, store.ErrNotFound) {
		return store.Admission{Verdict: store.Expired}, false, nil
	}
	return earlier, false, err
}

func (s *Store) insertEvent(ctx context.Context, tx *sqldb.Tx, e store.Event, a store.Admission, at int64) (store.Admission, error) {
	files, filesSize := runrow.FilesColumn(e.Files)
	if _, err := tx.ExecContext(ctx, `INSERT INTO inputs (project_id, id, content_type, data, blob_id, files, headers, hops, traceparent)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		e.ProjectID, a.ConnectorRunID, sqldb.Text(e.ContentType), e.Input, e.InputBlob, files, runrow.HeadersColumn(e.Headers), e.Hops, runrow.TraceparentColumn(e.Traceparent)); err != nil {
		return a, fmt.Errorf("recording the input: %w", err)
	}
	size := int64(len(e.Input))
	if e.InputBlob != nil {
		if err := tx.QueryRowContext(ctx, `UPDATE blobs SET mark = 'history' WHERE project_id = $1 AND id = $2 RETURNING size`,
			e.ProjectID, *e.InputBlob).Scan(&size); err != nil {
			return a, fmt.Errorf("keeping the input: %w", err)
		}
	}
	if err := s.KeepFiles(ctx, tx, []store.Event{e}); err != nil {
		return a, err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO open_connector_runs (project_id, id, environment_id, connector_id, status,
			trigger_type, content_type, input_size, run_ids, runs_left, runs_failed, runs_completed, replay_of, started_at)
		VALUES ($1, $2, $3, $4, 'running', $5, $6, $7, $8, $9, 0, 0, $11, $10)`,
		e.ProjectID, a.ConnectorRunID, e.EnvironmentID, e.ConnectorID, string(e.Trigger), sqldb.Text(e.ContentType),
		size+filesSize+idempotency.KeySize(e), idsText(a.RunIDs), len(e.Runs), at, e.ReplayOf); err != nil {
		return a, fmt.Errorf("recording the connector run: %w", err)
	}
	if begun, err := s.startHandoff(ctx, tx, e, a, at); err != nil || begun != nil {
		a.Begun = begun
		return a, err
	}
	for i, run := range e.Runs {
		key, blocked := concurrency.KeyColumns(run)
		if _, err := tx.ExecContext(ctx, `INSERT INTO open_runs (project_id, id, environment_id, connector_id, connector_run_id,
				link_id, agent_name, input_id, status, class, concurrency_key, blocked, queued_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $5, 'queued', $8, $10, $11, $9)`,
			e.ProjectID, a.RunIDs[i], e.EnvironmentID, e.ConnectorID, a.ConnectorRunID, run.LinkID,
			sqldb.Text(run.AgentName), int64(e.Class), at, key, blocked); err != nil {
			return a, fmt.Errorf("recording an agent run: %w", err)
		}
	}
	if !sqlcore.EndsAtOnce(e) {
		tx.Hint(store.TopicQueued, store.Key{ProjectID: e.ProjectID, ID: e.EnvironmentID})
	}
	return a, s.Settle(ctx, tx, []store.Event{e}, []store.Admission{a})
}

// idsText returns a list of IDs in its stored form.
func idsText(ids []uuid.UUID) string {
	text, _ := json.Marshal(ids) // always marshals
	return string(text)
}

// startHandoff starts the run of an event on the runner that it names; nil if it has to be queued.
func (s *Store) startHandoff(ctx context.Context, tx *sqldb.Tx, e store.Event, a store.Admission, at int64) (*store.Claimed, error) {
	b := sqlcore.BeginningOf(e)
	if b == nil {
		return nil, nil
	}
	var live *string
	if err := tx.QueryRowContext(ctx, `SELECT `+sqlcore.LiveAgent+` FROM (SELECT $1 AS project_id, $2 AS environment_id, $3 AS agent) e`,
		e.ProjectID, e.EnvironmentID, b.Agent).Scan(&live); err != nil {
		return nil, fmt.Errorf("reading the agent of a run: %w", err)
	}
	if live == nil {
		return nil, nil
	}
	begun := sqlcore.Begun(e, a, *b, *live, at)
	if _, err := tx.ExecContext(ctx, `INSERT INTO open_runs (project_id, id, environment_id, connector_id, connector_run_id, link_id,
			agent_name, input_id, status, class, queued_at, started_at, deployment_id, token, attempt, runner_id, lease_until)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $5, 'running', 0, $8, $8, $9, $10, 1, $11, $12)`,
		e.ProjectID, begun.Run.ID, e.EnvironmentID, e.ConnectorID, a.ConnectorRunID, b.Link, b.Agent, at, *begun.Run.DeploymentID,
		b.Token, b.Runner, sqldb.Instant(begun.LeaseUntil)); err != nil {
		return nil, fmt.Errorf("recording an agent run: %w", err)
	}
	return begun, nil
}

// isAtFault reports whether the event's data, or a row that it names, caused the error.
func isAtFault(err error) bool { return isConstraint(err) || errors.Is(err, store.ErrNotFound) }

// isConstraint reports whether the data caused the error, not the database.
func isConstraint(err error) bool {
	var failure *modernc.Error
	return errors.As(err, &failure) && (failure.Code()&0xff == lib.SQLITE_CONSTRAINT || failure.Code()&0xff == lib.SQLITE_TOOBIG ||
		failure.Code()&0xff == lib.SQLITE_MISMATCH)
}
