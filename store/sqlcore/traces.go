// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// PostTraces begins the statement that adds ended runs to the outbox of traces.
const PostTraces = `INSERT INTO outbox_traces (project_id, run_id, ended_at, due_at)`

// telemetryColumns are columns of projects.
const telemetryColumns = `project_id, telemetry, telemetry_sealed, telemetry_key`

// telemetryRow returns the values of the columns of a project's export.
func telemetryRow(t *store.Telemetry) (config *string, sealed []byte, key string, err error) {
	if t == nil {
		return nil, nil, "", nil
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, nil, "", err
	}
	column := Text(string(text))
	return &column, t.SealedHeaders, t.SealedKey, nil
}

func scanTelemetry(row scanner) (d store.DueTraces, err error) {
	err = row.Scan(&d.ProjectID, document{&d.Telemetry}, &d.Telemetry.SealedHeaders, &d.Telemetry.SealedKey)
	return d, err
}

// ProjectTelemetry implements store.Projector.
func (c *Core) ProjectTelemetry(ctx context.Context, project uuid.UUID) (*store.Telemetry, error) {
	found, err := scanTelemetry(c.engine.Reader().QueryRowContext(ctx, `SELECT `+telemetryColumns+` FROM projects
		WHERE project_id = $1 AND telemetry IS NOT NULL`, project))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil //nolint:nilnil // a project without export
	}
	return &found.Telemetry, wrap(err, "reading the telemetry of project %s", project)
}

// ClaimTraces implements store.Traces.
func (c *Core) ClaimTraces(ctx context.Context, claim store.TraceClaim) (due []store.DueTraces, err error) {
	projects, err := c.traceTurns.next(claim.Projects, func(after uuid.UUID, limit int) ([]uuid.UUID, error) {
		l := list{args: []any{after, limit}}
		without := ``
		if len(claim.Without) > 0 {
			without = ` AND p.project_id NOT IN ` + l.ids(claim.Without)
		}
		return collect(ctx, c.engine.Reader(), scanID, `SELECT p.project_id FROM projects p
			WHERE p.telemetry IS NOT NULL`+without+` AND EXISTS (SELECT 1 FROM outbox_traces o
				WHERE o.project_id = p.project_id AND o.due_at <= now_us())
			ORDER BY CASE WHEN p.project_id > $1 THEN 0 ELSE 1 END, p.project_id LIMIT $2`, l.args...)
	})
	if err != nil || len(projects) == 0 {
		return nil, wrap(err, "reading projects with due traces")
	}
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) (err error) {
		var l list
		if due, err = collect(ctx, tx, scanTelemetry, `SELECT `+telemetryColumns+` FROM projects
			WHERE telemetry IS NOT NULL AND project_id IN `+l.ids(projects), l.args...); err != nil {
			return err
		}
		for i := range due {
			due[i].Runs, err = collect(ctx, tx, scanID, `UPDATE outbox_traces SET due_at = now_us() + $3
				WHERE project_id = $1 AND run_id IN (SELECT o.run_id FROM outbox_traces o
					WHERE o.project_id = $1 AND o.due_at <= now_us() ORDER BY o.due_at LIMIT $2 `+c.skipLocked+`) RETURNING run_id`,
				due[i].ProjectID, claim.Runs, claim.Lease.Microseconds())
			if err != nil {
				return err
			}
		}
		return nil
	})
	return due, wrap(err, "claiming traces")
}

// DelayTraces implements store.Traces.
func (c *Core) DelayTraces(ctx context.Context, project uuid.UUID, runs []uuid.UUID, wait time.Duration) error {
	return c.changeTraces(ctx, project, runs, `UPDATE outbox_traces SET due_at = now_us() + $2
		WHERE project_id = $1 AND run_id IN `, wait.Microseconds())
}

// EndTraces implements store.Traces.
func (c *Core) EndTraces(ctx context.Context, project uuid.UUID, runs []uuid.UUID) error {
	return c.changeTraces(ctx, project, runs, `DELETE FROM outbox_traces WHERE project_id = $1 AND run_id IN `)
}

// changeTraces executes a statement whose first argument is the project and that ends before the list of runs.
func (c *Core) changeTraces(ctx context.Context, project uuid.UUID, runs []uuid.UUID, statement string, args ...any) error {
	if len(runs) == 0 {
		return nil
	}
	err := c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		l := list{args: append([]any{project}, args...)}
		_, err := tx.exec(ctx, statement+l.ids(runs), l.args...)
		return err
	})
	return wrap(err, "recording the export of traces of project %s", project)
}

// DropTraces implements store.Traces.
func (c *Core) DropTraces(ctx context.Context, age time.Duration, limit int) (n int, err error) {
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		dropped, err := tx.exec(ctx, `DELETE FROM outbox_traces WHERE (project_id, run_id) IN (SELECT o.project_id, o.run_id
			FROM outbox_traces o WHERE o.ended_at <= now_us() - $1 ORDER BY o.ended_at LIMIT $2 `+c.skipLocked+`)`, age.Microseconds(), limit)
		n = int(dropped)
		return err
	})
	return n, wrap(err, "dropping traces")
}

// RunTraceparent implements store.Traces.
func (c *Core) RunTraceparent(ctx context.Context, run store.Key) (string, error) {
	from, err := c.originOf(ctx, c.engine.Reader(), run)
	return from.traceparent, wrap(err, "reading the traceparent of run %s", run)
}
