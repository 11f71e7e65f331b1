// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/blob"
	"github.com/agentplatform/agentplatform/store/deployment"
	"github.com/agentplatform/agentplatform/store/object"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/statistics"
	"github.com/agentplatform/agentplatform/store/sweep"
)

// deletedObjectMargin is how much longer than history the remaining rows of a deleted object are kept.
// By then the last day of its history is deleted.
const deletedObjectMargin = 2 * sqldb.Day

// Selects the first object that was deleted before $1 and has been re-created, or has expired: it
// has no open rows, no outbox rows and no history.
const (
	isBack = `EXISTS (SELECT 1 FROM object_ids k WHERE k.project_id = d.project_id AND k.id = d.id AND k.kind = d.kind)`
	isOver = `CASE d.kind WHEN '` + store.KindProject + `' THEN
			NOT EXISTS (SELECT 1 FROM object_ids k WHERE k.project_id = d.project_id)
			AND NOT EXISTS (SELECT 1 FROM open_runs r WHERE r.project_id = d.project_id)
			AND NOT EXISTS (SELECT 1 FROM open_connector_runs r WHERE r.project_id = d.project_id)
			AND NOT EXISTS (SELECT 1 FROM deliveries r WHERE r.project_id = d.project_id)
			AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.project_id = d.project_id)
			AND NOT EXISTS (SELECT 1 FROM outbox_rollups o WHERE o.project_id = d.project_id)
			AND NOT EXISTS (SELECT 1 FROM outbox_words o WHERE o.project_id = d.project_id)
			AND NOT EXISTS (SELECT 1 FROM outbox_traces o WHERE o.project_id = d.project_id)
			AND NOT EXISTS (SELECT 1 FROM stored_days s WHERE s.project_id = d.project_id)
		ELSE TRUE END`
	pickDeparted = `SELECT d.project_id, d.id, d.kind, ` + isBack + ` FROM departed d WHERE d.gone_at < $1 AND (` + isBack + ` OR ` + isOver + `)`
)

// deletedObject is a deleted object.
type deletedObject struct {
	store.Key
	kind string
	back bool
}

func scanDeletedObject(row sqldb.Scanner) (d deletedObject, err error) {
	err = row.Scan(&d.ProjectID, &d.ID, &d.kind, &d.back)
	return d, err
}

// dropDeletedObjects deletes about limit rows of objects that were deleted longer than age ago, and
// returns their number; 0 when nothing is left. An object that fails is skipped for some calls.
func (s *Store) dropDeletedObjects(ctx context.Context, age time.Duration, limit int) (n int, err error) {
	now, err := s.db.Now(ctx)
	if err != nil {
		return 0, err
	}
	s.skipped.deletedObjects.BeginCall()
	before := now.Add(-age - deletedObjectMargin).UnixMicro()
	var failed []error
	for ctx.Err() == nil {
		l := sqldb.Args{Values: []any{before}}
		others := ``
		if passed := s.skipped.deletedObjects.Keys(); len(passed) > 0 {
			others = ` AND NOT (` + s.db.KeyCondition(&l, "d.id", passed) + `)`
		}
		d, err := scanDeletedObject(s.db.Reader().QueryRowContext(ctx, pickDeparted+others+` ORDER BY d.gone_at LIMIT 1`, l.Values...))
		if err = sqldb.MapNoRows(err); errors.Is(err, store.ErrNotFound) {
			break
		}
		if err == nil {
			err = sweep.Isolation[deletedObject]{
				ProcessAll: func(ctx context.Context, of []deletedObject) (err error) {
					n, err = s.dropObject(ctx, of[0], before, limit)
					return err
				},
				IsDataError: s.db.IsDataError, CanProceed: s.db.CanWrite,
				SetAside: func(_ context.Context, d deletedObject, because error) error {
					return s.skipped.deletedObjects.Skip(d.Key, because)
				},
			}.Process(ctx, []deletedObject{d})
		}
		var aside *store.SetAsideError
		if failed = append(failed, sqldb.Wrap(err, "deleting the remaining rows of %s %s", d.kind, d.ID)); !errors.As(err, &aside) {
			break
		}
	}
	return n, sweep.JoinSetAside(failed...)
}

// dropObject deletes about limit rows of an object that was deleted before a time.
func (s *Store) dropObject(ctx context.Context, d deletedObject, before int64, limit int) (n int, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if err := s.db.Lock(ctx, tx, d.ProjectID); err != nil {
			return err
		}
		// It may have been re-created and deleted again meanwhile.
		d, err := scanDeletedObject(tx.QueryRowContext(ctx, pickDeparted+` AND d.project_id = $2 AND d.id = $3 AND d.kind = $4`,
			before, d.ProjectID, d.ID, d.kind))
		if err = sqldb.MapNoRows(err); errors.Is(err, store.ErrNotFound) {
			n = 1 // there may be another one
			return nil
		}
		if err == nil {
			n, err = s.deleteObjectRows(ctx, tx, d, min(limit, sqldb.MaxIDs))
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// isInUse selects whether a deployment $2 is live, one of the last $3 deployed ones of an existing
// environment, the source of a connector in effect, or the deployment of an open run.
const isInUse = `SELECT EXISTS (SELECT 1 FROM deployments d JOIN environments e ON e.project_id = d.project_id AND e.id = d.environment_id
		JOIN object_ids k ON k.project_id = e.project_id AND k.id = e.id AND k.kind = '` + store.KindEnvironment + `'
		WHERE d.project_id = $1 AND d.id = $2 AND (d.id = e.live_deployment_id OR ` + blob.IsOneOfTheLast + `))
	OR EXISTS (SELECT 1 FROM connectors c WHERE c.project_id = $1 AND c.deployment_id = $2 AND NOT c.retired)
	OR EXISTS (SELECT 1 FROM open_runs r WHERE r.project_id = $1 AND r.deployment_id = $2)`

// staysInUse reports whether the remaining rows of an object are in use, which only happens for a
// deployment. If so, it sets the time of deletion to now, which keeps the rows of its time as long.
func (d deletedObject) staysInUse(ctx context.Context, tx *sqldb.Tx) (used bool, err error) {
	if d.kind != store.KindDeployment {
		return false, nil
	}
	if err := tx.QueryRowContext(ctx, isInUse, d.ProjectID, d.ID, store.BundlesKept).Scan(&used); err != nil || !used {
		return false, sqldb.Wrap(err, "reading the uses of deployment %s", d.ID)
	}
	return true, object.RecordDeletion(ctx, tx, d.kind, d.Key)
}

// deleteObjectRows deletes about limit rows of an object, and its record after the last one.
func (s *Store) deleteObjectRows(ctx context.Context, tx *sqldb.Tx, d deletedObject, limit int) (n int, err error) {
	if !d.back {
		if stays, err := d.staysInUse(ctx, tx); err != nil || stays {
			return 1, err
		}
		if n, err = s.dropRemaining(ctx, tx, d, limit); err != nil || n >= limit {
			return n, err
		}
	}
	_, err = tx.Exec(ctx, `DELETE FROM departed WHERE project_id = $1 AND kind = $2 AND id = $3`, d.ProjectID, d.kind, d.ID)
	return n + 1, err
}

func (s *Store) dropRemaining(ctx context.Context, tx *sqldb.Tx, d deletedObject, limit int) (n int, err error) {
	if n, err = statistics.Drop(ctx, tx, d.kind, d.Key, limit); err != nil || n >= limit {
		return n, err
	}
	left := map[string]func() []string{
		store.KindProject: projectStatements, store.KindEnvironment: func() []string { return nil }, store.KindConnector: connectorStatements,
		store.KindDeployment: deploymentStatements,
	}
	for _, statement := range left[d.kind]() {
		args := []any{d.ProjectID, limit - n, d.ID}
		if d.kind == store.KindProject {
			args = args[:2]
		}
		went, err := tx.Exec(ctx, statement, args...)
		if n += int(went); err != nil || n >= limit {
			return n, err
		}
	}
	switch d.kind {
	case store.KindProject:
	case store.KindDeployment:
		return n, deployment.Drop(ctx, tx, d.Key)
	default:
		return n, nil
	}
	blobs, err := s.dropBlobsOf(ctx, tx, d.ProjectID, limit-n)
	return n + blobs, err
}

// dropBlobsOf deletes some blobs of a project.
func (s *Store) dropBlobsOf(ctx context.Context, tx *sqldb.Tx, project uuid.UUID, limit int) (n int, err error) {
	blobs, err := sqldb.Collect(ctx, tx, scanSized, `SELECT project_id, id, size FROM blobs WHERE project_id = $1 ORDER BY id LIMIT $2`, project, limit)
	if err != nil {
		return 0, err
	}
	some := firstBlobs(blobs)
	if err := s.blobs.DropBlobs(ctx, tx, some); err != nil || len(some) == len(blobs) {
		return len(some), err
	}
	return limit, nil // there are more
}

// projectTables are the tables with rows of a project, except history, blobs and deleted objects, with their primary keys without
// project_id. Each table follows the tables that refer to it.
var projectTables = []struct{ name, key string }{
	{"build_log", "deployment_id, number"},
	{"deployment_agents", "deployment_id, name"},
	{"deployments", "id"},
	{"run_rollups", "id"},
	{"usage_rollups", "id"},
	{"connector_rollups", "connector_id, grain, begins_at, trigger_type, status"},
	{"agent_totals", "environment_id, agent_name, test_name"},
	{"bundles", "digest"},
	{"uploads", "digest"},
	{"idempotency_keys", "connector_id, key"},
	{"links", "id"},
	{"connectors", "id"},
	{"cron_ticks", "connector_id"},
	{"destinations", "connector_id"},
	{"rejections", "connector_id"},
	{"replays", "id"},
	{"derivations", "connector_id, version"},
	{"concurrency_slots", "run_id"},
	{"sends", "run_id, position"},
	{"audit_days", "day"},
	{"tokens", "sha256"},
	{"runners", "environment_id, id"},
	{"pools", "environment_id"},
	{"environment_places", "environment_id"},
	{"environments", "id"},
}

// projectStatements returns statements that delete $2 rows of a project ($1) in every table except history and blobs.
func projectStatements() (out []string) {
	for _, t := range projectTables {
		out = append(out, `DELETE FROM `+t.name+` WHERE project_id = $1 AND (`+t.key+`) IN (SELECT `+t.key+` FROM `+t.name+` WHERE project_id = $1 LIMIT $2)`)
	}
	return append(out,
		`DELETE FROM departed WHERE project_id = $1 AND kind <> '`+store.KindProject+`' AND (kind, id) IN (SELECT kind, id FROM departed
			WHERE project_id = $1 AND kind <> '`+store.KindProject+`' LIMIT $2)`,
		`DELETE FROM looks WHERE project_id = $1 AND $2 > 0`,
		`DELETE FROM stored_bytes WHERE project_id = $1 AND $2 > 0`,
	)
}

// connectorStatements returns statements for the other rows of a connector.
func connectorStatements() []string {
	return []string{
		`DELETE FROM destinations WHERE project_id = $1 AND connector_id = $3 AND $2 > 0`,
	}
}

// deploymentStatements returns statements for the rows of a deployment ($3), except its own row.
func deploymentStatements() []string {
	return []string{
		`DELETE FROM build_log WHERE project_id = $1 AND deployment_id = $3 AND number IN
			(SELECT number FROM build_log WHERE project_id = $1 AND deployment_id = $3 LIMIT $2)`,
		`DELETE FROM deployment_agents WHERE project_id = $1 AND deployment_id = $3 AND name IN
			(SELECT name FROM deployment_agents WHERE project_id = $1 AND deployment_id = $3 LIMIT $2)`,
		`DELETE FROM tokens WHERE project_id = $1 AND sha256 IN (SELECT sha256 FROM tokens WHERE project_id = $1 AND deployment_id = $3 LIMIT $2)`,
	}
}
