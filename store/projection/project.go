// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"database/sql"
	"errors"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/object"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/trace"
)

// PutProject implements store.Projector.
func (s *Store) PutProject(ctx context.Context, p store.Project) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if err := s.ClaimIDInTx(ctx, tx, p.Key(), p.Ref); err != nil {
			return err
		}
		telemetry, sealed, key, err := trace.TelemetryRow(p.Telemetry)
		if err != nil {
			return err
		}
		row := []any{
			p.ID, sqldb.Text(p.DisplayName), p.Limits.BacklogRuns, p.Limits.BacklogInput, p.Limits.Storage, p.Limits.RequestsPerMinute,
			p.Retention.Microseconds(), telemetry, sealed, key,
		}
		created, err := tx.Exec(ctx, `INSERT INTO projects
			(project_id, display_name, backlog_runs, backlog_input, storage, requests_per_minute, history_us,
				telemetry, telemetry_sealed, telemetry_key, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, now_us(), now_us()) ON CONFLICT (project_id) DO NOTHING`, row...)
		switch {
		case err != nil:
			return sqldb.Wrap(err, "projecting %s", p.Ref)
		case created == 1: // connectors of a missing project were disabled
			return bumpConnectors(ctx, tx, p.ID, `TRUE`)
		}
		_, err = tx.Exec(ctx, `UPDATE projects SET display_name = $2, backlog_runs = $3, backlog_input = $4, storage = $5, requests_per_minute = $6,
				history_us = $7, telemetry = $8, telemetry_sealed = $9, telemetry_key = $10, updated_at = now_us()
			WHERE project_id = $1 AND (display_name <> $2 OR backlog_runs <> $3 OR backlog_input <> $4 OR storage <> $5 OR requests_per_minute <> $6
				OR history_us <> $7 OR telemetry IS DISTINCT FROM $8 OR telemetry_sealed IS DISTINCT FROM $9 OR telemetry_key <> $10)`, row...)
		return sqldb.Wrap(err, "projecting %s", p.Ref)
	})
}

// RequestsPerMinute returns the request limit of a project; 0 without one.
func (s *Store) RequestsPerMinute(ctx context.Context, project uuid.UUID) (n int, err error) {
	err = s.db.Reader().QueryRowContext(ctx, `SELECT requests_per_minute FROM projects WHERE project_id = $1`, project).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return n, sqldb.Wrap(err, "reading the request limit of project %s", project)
}

// removeProject deletes a project. Its connectors are disabled until it is re-created. Accepted
// events are still processed.
func removeProject(ctx context.Context, tx *sqldb.Tx, id uuid.UUID) error {
	if _, err := tx.Exec(ctx, `DELETE FROM projects WHERE project_id = $1`, id); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM outbox_traces WHERE project_id = $1`, id); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM looks WHERE project_id = $1`, id); err != nil {
		return err
	}
	if err := object.RecordDeletion(ctx, tx, store.KindProject, store.Key{ProjectID: id, ID: id}); err != nil {
		return err
	}
	return bumpConnectors(ctx, tx, id, `TRUE`)
}
