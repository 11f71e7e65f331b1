// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"errors"
	"fmt"

	modernc "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlcore"
)

// Accept implements store.Ingest. All events go in without savepoints; only if
// one is bad it all begins again, one savepoint an event.
func (s *Store) Accept(ctx context.Context, events []store.Event) ([]store.Admission, error) {
	out := make([]store.Admission, len(events))
	err := s.accept(ctx, events, out, acceptEvent)
	if isConstraint(err) {
		err = s.accept(ctx, events, out, acceptApart)
	}
	if err != nil {
		return nil, fmt.Errorf("accepting %d events: %w", len(events), err)
	}
	return out, nil
}

type acceptFunc func(ctx context.Context, tx *sqlcore.Tx, e store.Event) (store.Admission, error)

func (s *Store) accept(ctx context.Context, events []store.Event, out []store.Admission, one acceptFunc) error {
	return s.Write(ctx, func(ctx context.Context, tx *sqlcore.Tx) (err error) {
		for i, event := range events {
			if out[i], err = one(ctx, tx, event); err != nil {
				return err
			}
		}
		return nil
	})
}

// acceptApart accepts an event in a savepoint.
func acceptApart(ctx context.Context, tx *sqlcore.Tx, e store.Event) (store.Admission, error) {
	if _, err := tx.ExecContext(ctx, `SAVEPOINT event`); err != nil {
		return store.Admission{}, err
	}
	admission, err := acceptEvent(ctx, tx, e)
	if isConstraint(err) {
		admission = store.Admission{Err: err}
		_, err = tx.ExecContext(ctx, `ROLLBACK TO event`)
	}
	if err != nil {
		return store.Admission{}, err
	}
	_, err = tx.ExecContext(ctx, `RELEASE event`)
	return admission, err
}

func acceptEvent(ctx context.Context, tx *sqlcore.Tx, e store.Event) (store.Admission, error) {
	var current, blob bool
	err := tx.QueryRowContext(ctx, `SELECT
			EXISTS (SELECT 1 FROM connectors WHERE project_id = $1 AND id = $2 AND version = $3)
				AND ($5 IS NULL OR now_us() < $5),
			$4 IS NULL OR EXISTS (SELECT 1 FROM blobs WHERE project_id = $1 AND id = $4 AND complete)`,
		e.ProjectID, e.ConnectorID, e.ConnectorVersion, e.InputBlob, sqlcore.MaybeInstant(e.SecretNotAfter)).Scan(&current, &blob)
	switch {
	case err != nil:
		return store.Admission{}, fmt.Errorf("asserting the connector's version: %w", err)
	case !current:
		return store.Admission{Verdict: store.Outdated}, nil
	case !blob:
		return store.Admission{Err: fmt.Errorf("input blob %s: %w", e.InputBlob, store.ErrNotFound)}, nil
	}
	if e.Idempotency != nil {
		result, err := tx.ExecContext(ctx, `INSERT INTO idempotency_keys
				(project_id, connector_id, key, fingerprint, connector_run_id, expires_at)
			VALUES ($1, $2, $3, $4, $5, now_us() + $6)
			ON CONFLICT (project_id, connector_id, key) DO UPDATE SET fingerprint = excluded.fingerprint,
				connector_run_id = excluded.connector_run_id, expires_at = excluded.expires_at
			WHERE idempotency_keys.expires_at <= now_us()`,
			e.ProjectID, e.ConnectorID, sqlcore.Text(e.Idempotency.Key), e.Idempotency.Fingerprint, e.ConnectorRunID,
			e.Idempotency.TTL.Microseconds())
		if err != nil {
			return store.Admission{}, fmt.Errorf("claiming the idempotency key: %w", err)
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			earlier, err2 := sqlcore.Earlier(ctx, tx, e)
			return earlier, errors.Join(err, err2)
		}
	}
	return insertEvent(ctx, tx, e)
}

func insertEvent(ctx context.Context, tx *sqlcore.Tx, e store.Event) (store.Admission, error) {
	failed := 0
	for _, run := range e.Runs {
		if run.ErrorCode != "" {
			failed++
		}
	}
	open := len(e.Runs) - failed
	if _, err := tx.ExecContext(ctx, `INSERT INTO connector_runs (project_id, id, environment_id, connector_id, status,
			trigger_type, input, input_blob, content_type, open_runs, failed_runs, started_at, ended_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, now_us(), CASE WHEN $10 = 0 THEN now_us() END)`,
		e.ProjectID, e.ConnectorRunID, e.EnvironmentID, e.ConnectorID, string(store.ConnectorRunOutcome(open, failed)),
		string(e.Trigger), e.Input, e.InputBlob, sqlcore.Text(e.ContentType), open, failed); err != nil {
		return store.Admission{}, fmt.Errorf("recording the connector run: %w", err)
	}
	admission := store.Admission{ConnectorRunID: e.ConnectorRunID, RunIDs: make([]uuid.UUID, len(e.Runs))}
	for position, run := range e.Runs {
		status := store.RunQueued
		if run.ErrorCode != "" {
			status = store.RunFailed
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO agent_runs (project_id, id, environment_id, connector_id,
				connector_run_id, link_id, position, agent_name, status, error_code, error, queued_at, ended_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, now_us(), CASE WHEN $10 <> '' THEN now_us() END)`,
			e.ProjectID, run.ID, e.EnvironmentID, e.ConnectorID, e.ConnectorRunID, run.LinkID, position,
			sqlcore.Text(run.AgentName), string(status), string(run.ErrorCode), sqlcore.Text(run.Error)); err != nil {
			return store.Admission{}, fmt.Errorf("recording an agent run: %w", err)
		}
		admission.RunIDs[position] = run.ID
	}
	if open > 0 {
		tx.Hint(store.TopicQueued, store.Key{ProjectID: e.ProjectID, ID: e.EnvironmentID})
	} else {
		tx.Hint(store.TopicDone, store.Key{ProjectID: e.ProjectID, ID: e.ConnectorRunID})
	}
	return admission, nil
}

// isConstraint says that the data was at fault, not the database.
func isConstraint(err error) bool {
	var failure *modernc.Error
	return errors.As(err, &failure) && (failure.Code()&0xff == lib.SQLITE_CONSTRAINT || failure.Code()&0xff == lib.SQLITE_TOOBIG ||
		failure.Code()&0xff == lib.SQLITE_MISMATCH)
}
