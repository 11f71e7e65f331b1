// SPDX-License-Identifier: Apache-2.0

// Package trace stores which ended runs wait for the export of their traces.
package trace

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/outbox"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Store has the ended runs whose traces are to be exported.
type Store struct {
	db    *sqldb.DB
	turns *outbox.Cursor
}

// New returns a Store.
func New(db *sqldb.DB) *Store { return &Store{db: db, turns: outbox.NewCursor()} }

// PostStatement begins the statement that adds ended runs to the outbox of traces.
const PostStatement = `INSERT INTO outbox_traces (project_id, run_id, ended_at, due_at)`

// telemetryColumns are columns of projects.
const telemetryColumns = `project_id, telemetry, telemetry_sealed, telemetry_key`

// TelemetryRow returns the values of the columns of a project's export. PostgreSQL reads the column as jsonb when runs end, so it
// has no U+0000, which jsonb rejects: one project would keep the runs of all others from ending.
func TelemetryRow(t *store.Telemetry) (config *string, sealed []byte, key string, err error) {
	if t == nil {
		return nil, nil, "", nil
	}
	row := *t
	row.Endpoint = sqldb.Text(row.Endpoint)
	text, err := json.Marshal(row)
	if err != nil {
		return nil, nil, "", err
	}
	column := string(text)
	return &column, t.SealedHeaders, t.SealedKey, nil
}

func scanTelemetry(row sqldb.Scanner) (d store.DueTraces, err error) {
	err = row.Scan(&d.ProjectID, sqldb.ScanJSON(&d.Telemetry), &d.Telemetry.SealedHeaders, &d.Telemetry.SealedKey)
	return d, err
}

// ProjectTelemetry implements store.Projector.
func (s *Store) ProjectTelemetry(ctx context.Context, project uuid.UUID) (*store.Telemetry, error) {
	found, err := scanTelemetry(s.db.Reader().QueryRowContext(ctx, `SELECT `+telemetryColumns+` FROM projects
		WHERE project_id = $1 AND telemetry IS NOT NULL`, project))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil //nolint:nilnil // a project without export
	}
	return &found.Telemetry, sqldb.Wrap(err, "reading the telemetry of project %s", project)
}

// ClaimTraces implements store.Traces.
func (s *Store) ClaimTraces(ctx context.Context, claim store.TraceClaim) (due []store.DueTraces, err error) {
	projects, err := claim.Only, error(nil)
	if len(projects) == 0 {
		projects, err = s.tracingProjects(ctx, claim)
	}
	if err != nil || len(projects) == 0 {
		return nil, sqldb.Wrap(err, "reading projects with due traces")
	}
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		due, err = s.claimTraces(ctx, tx, claim, projects)
		return err
	})
	return due, sqldb.Wrap(err, "claiming traces")
}

// tracingProjects returns the projects with due traces whose turn it is.
func (s *Store) tracingProjects(ctx context.Context, claim store.TraceClaim) ([]uuid.UUID, error) {
	return s.turns.Next(claim.Projects, func(after uuid.UUID, limit int) ([]uuid.UUID, error) {
		l := sqldb.Args{Values: []any{after, limit}}
		without := ``
		if len(claim.Without) > 0 {
			without = ` AND p.project_id NOT IN ` + l.AddIDs(claim.Without)
		}
		return sqldb.Collect(ctx, s.db.Reader(), sqldb.ScanUUID, `SELECT p.project_id FROM projects p
			WHERE p.telemetry IS NOT NULL`+without+` AND EXISTS (SELECT 1 FROM outbox_traces o
				WHERE o.project_id = p.project_id AND o.due_at <= now_us())
			ORDER BY CASE WHEN p.project_id > $1 THEN 0 ELSE 1 END, p.project_id LIMIT $2`, l.Values...)
	})
}

// claimTraces claims due runs of projects that export traces.
func (s *Store) claimTraces(ctx context.Context, tx *sqldb.Tx, claim store.TraceClaim, projects []uuid.UUID) ([]store.DueTraces, error) {
	var l sqldb.Args
	due, err := sqldb.Collect(ctx, tx, scanTelemetry, `SELECT `+telemetryColumns+` FROM projects
		WHERE telemetry IS NOT NULL AND project_id IN `+l.AddIDs(projects), l.Values...)
	if err != nil {
		return nil, err
	}
	for i := range due {
		due[i].Runs, err = sqldb.Collect(ctx, tx, sqldb.ScanUUID, `UPDATE outbox_traces SET due_at = now_us() + $3
			WHERE project_id = $1 AND run_id IN (SELECT o.run_id FROM outbox_traces o
				WHERE o.project_id = $1 AND o.due_at <= now_us() ORDER BY o.due_at LIMIT $2 `+s.db.SkipLocked+`) RETURNING run_id`,
			due[i].ProjectID, claim.Runs, claim.Lease.Microseconds())
		if err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(due, func(d store.DueTraces) bool { return len(d.Runs) == 0 }), nil
}

// DelayTraces implements store.Traces.
func (s *Store) DelayTraces(ctx context.Context, project uuid.UUID, runs []uuid.UUID, wait time.Duration) error {
	return s.changeTraces(ctx, project, runs, `UPDATE outbox_traces SET due_at = now_us() + $2
		WHERE project_id = $1 AND run_id IN `, wait.Microseconds())
}

// EndTraces implements store.Traces.
func (s *Store) EndTraces(ctx context.Context, project uuid.UUID, runs []uuid.UUID) error {
	return s.changeTraces(ctx, project, runs, `DELETE FROM outbox_traces WHERE project_id = $1 AND run_id IN `)
}

// changeTraces executes a statement whose first argument is the project and that ends before the list of runs.
func (s *Store) changeTraces(ctx context.Context, project uuid.UUID, runs []uuid.UUID, statement string, args ...any) error {
	if len(runs) == 0 {
		return nil
	}
	l := sqldb.Args{Values: append([]any{project}, args...)}
	_, err := s.db.Exec(ctx, statement+l.AddIDs(runs), l.Values...)
	return sqldb.Wrap(err, "recording the export of traces of project %s", project)
}

// DropTraces implements store.Traces.
func (s *Store) DropTraces(ctx context.Context, age time.Duration, limit int) (int, error) {
	dropped, err := s.db.Exec(ctx, `DELETE FROM outbox_traces WHERE (project_id, run_id) IN (SELECT o.project_id, o.run_id
		FROM outbox_traces o WHERE o.ended_at <= now_us() - $1 ORDER BY o.ended_at LIMIT $2 `+s.db.SkipLocked+`)`, age.Microseconds(), limit)
	return int(dropped), sqldb.Wrap(err, "dropping traces")
}

// TracedRuns implements store.Traces.
func (s *Store) TracedRuns(ctx context.Context, project uuid.UUID, runs []uuid.UUID) (found []store.TracedRun, err error) {
	var starts []runrow.Start
	for _, same := range s.db.IDsByPart("ended_runs", runs) {
		l := sqldb.Args{Values: []any{project}}
		some, err := sqldb.PastRows(ctx, s.db, s.db.Reader(), same[0], func(row sqldb.Scanner) (store.TracedRun, error) {
			t := store.TracedRun{Run: store.Run{ProjectID: project}}
			from := runrow.Start{Input: store.Key{ProjectID: project}}
			err := row.Scan(&t.Run.ID, &t.Run.EnvironmentID, &t.Run.AgentName, &t.Run.Status, &t.Run.ErrorCode, &t.Run.Error,
				&t.Run.Attempt, sqldb.ScanTime(&t.Run.QueuedAt), sqldb.ScanNullTime(&t.Run.StartedAt), sqldb.ScanNullTime(&t.Run.EndedAt), &from.Input.ID, &t.BundleDigest)
			from.Run = t.Run.Key()
			starts = append(starts, from)
			return t, err
		}, `SELECT r.id, r.environment_id, r.agent_name, r.status, r.error_code, r.error, r.attempt, r.queued_at, r.started_at,
				r.ended_at, r.input_id, COALESCE((SELECT d.bundle_digest FROM deployments d
					WHERE d.project_id = r.project_id AND d.id = r.deployment_id), '') FROM {ended_runs} r
			WHERE `+s.db.KeyCondition(&l, "r.id", sqldb.KeysFromIDs(project, same))+sqldb.ReadableCondition("$1"), l.Values...)
		if err != nil {
			return nil, sqldb.Wrap(err, "reading ended runs of project %s", project)
		}
		found = append(found, some...)
	}
	origins, err := runrow.OriginsByRun(ctx, s.db, s.db.Reader(), starts)
	if err != nil {
		return nil, sqldb.Wrap(err, "reading the traceparents of runs of project %s", project)
	}
	for i := range found {
		found[i].Traceparent = origins[found[i].Run.Key()].Traceparent
	}
	slices.SortFunc(found, func(a, b store.TracedRun) int { return sqldb.CompareIDs(a.Run.ID, b.Run.ID) })
	return found, nil
}

// runEntry is a journal entry of a run.
type runEntry struct {
	run uuid.UUID
	runrow.PastEntry
}

// RunJournals implements store.Traces.
func (s *Store) RunJournals(
	ctx context.Context, project uuid.UUID, runs []uuid.UUID, visit func(run uuid.UUID, e store.JournalEntry) error,
) error {
	for _, same := range s.db.IDsByPart("journal", slices.SortedFunc(slices.Values(runs), sqldb.CompareIDs)) {
		for after := (runEntry{}); len(same) > 0; {
			rows, entries, err := s.runEntries(ctx, project, same, after)
			if err != nil {
				return sqldb.Wrap(err, "reading journals of runs of project %s", project)
			}
			for i, e := range entries {
				if err := visit(rows[i].run, e); err != nil {
					return err
				}
			}
			if len(rows) == 0 || store.LastJournalPage(entries, store.MaxEntries) {
				break
			}
			after = rows[len(rows)-1]
			same = slices.DeleteFunc(same, func(id uuid.UUID) bool { return sqldb.CompareIDs(id, after.run) < 0 })
		}
	}
	return nil
}

// runEntries reads a page of the journals of runs of one day, as JournalAfter.
func (s *Store) runEntries(
	ctx context.Context, project uuid.UUID, runs []uuid.UUID, after runEntry,
) (rows []runEntry, entries []store.JournalEntry, err error) {
	l := sqldb.Args{Values: []any{project, after.run, after.Sequence, store.MaxEntries}}
	rows, err = sqldb.PastRows(ctx, s.db, s.db.Reader(), runs[0], func(row sqldb.Scanner) (e runEntry, err error) {
		err = row.Scan(&e.run, &e.Sequence, &e.Kind, sqldb.ScanJSON(&e.Data), &e.Unsafe, &e.Blob, sqldb.ScanTime(&e.At))
		return e, err
	}, `SELECT j.run_id, `+runrow.EntryAliases+` FROM (SELECT n.*, SUM(COALESCE(CASE WHEN n.blob_id IS NULL THEN octet_length(n.data)
			ELSE (SELECT b.size FROM blobs b WHERE b.project_id = $1 AND b.id = n.blob_id) END, 0))
			OVER (ORDER BY n.run_id, n.sequence ROWS UNBOUNDED PRECEDING) AS bytes
		FROM (SELECT j.run_id, `+runrow.EntryColumns+` FROM {journal} j WHERE `+s.db.KeyCondition(&l, "j.run_id", sqldb.KeysFromIDs(project, runs))+`
			AND (j.run_id, j.sequence) > ($2, $3)`+sqldb.SinceCondition("j.run_id", "$1")+`
			ORDER BY j.run_id, j.sequence LIMIT $4) AS n) AS j
		WHERE j.bytes <= `+strconv.Itoa(store.MaxJournalPage)+` ORDER BY j.run_id, j.sequence`, l.Values...)
	if err != nil {
		return nil, nil, err
	}
	past := make([]runrow.PastEntry, len(rows))
	for i, row := range rows {
		past[i] = row.PastEntry
	}
	entries, err = runrow.WholeEntries(ctx, s.db, s.db.Reader(), project, past)
	return rows, entries, err
}
