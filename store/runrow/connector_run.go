// SPDX-License-Identifier: Apache-2.0

package runrow

import (
	"context"
	"database/sql"
	"errors"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Columns of an open or ended connector run c.
const (
	OpenConnectorRunColumns = `c.id, c.project_id, c.environment_id, c.connector_id, c.status, c.trigger_type, '' AS kind, '' AS error, 0 AS hops,
	c.content_type, c.run_ids, c.replay_of, c.started_at, CAST(NULL AS bigint) AS ended_at`
	OpenDeliveryColumns = `c.id, c.project_id, c.environment_id, c.connector_id, c.status, c.trigger_type, c.kind, c.error, c.hops,
	c.content_type, c.run_ids, c.replay_of, c.started_at, CAST(NULL AS bigint) AS ended_at`
	EndedConnectorRunColumns = `c.id, c.project_id, c.environment_id, c.connector_id, c.status, c.trigger_type, c.kind, c.error, c.hops,
	c.content_type, c.run_ids, c.replay_of, c.started_at, c.ended_at`
)

// OpenDeliveries are deliveries as open connector runs. The error of a waiting one is why the
// platform could not make the last attempt.
const OpenDeliveries = `(SELECT id, project_id, environment_id, connector_id, CASE WHEN lease_until IS NULL THEN 'pending' ELSE 'running' END AS status,
	'outbound' AS trigger_type, kind, hops, CASE WHEN lease_until IS NULL THEN waits_for ELSE '' END AS error, '` + DeliveryType + `' AS content_type, id_list(run_id) AS run_ids, run_id, replay_of, started_at, lease_until FROM deliveries)`

// ScanConnectorRun reads a connector run.
func ScanConnectorRun(row sqldb.Scanner) (r store.ConnectorRun, err error) {
	err = row.Scan(&r.ID, &r.ProjectID, &r.EnvironmentID, &r.ConnectorID, &r.Status, &r.Trigger, &r.Kind, &r.Error,
		&r.Hops, &r.ContentType, sqldb.ScanIDs(&r.RunIDs), &r.ReplayOf, sqldb.ScanTime(&r.StartedAt), sqldb.ScanNullTime(&r.EndedAt))
	return r, err
}

// DeliveryType is the content type of deliveries.
const DeliveryType = "application/json"

// ReadConnectorRun reads an open or ended connector run.
func ReadConnectorRun(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, key store.Key) (store.ConnectorRun, error) {
	run, err := ScanConnectorRun(q.QueryRowContext(ctx, `SELECT `+OpenConnectorRunColumns+` FROM open_connector_runs c
		WHERE c.project_id = $1 AND c.id = $2`, key.ProjectID, key.ID))
	if errors.Is(err, sql.ErrNoRows) {
		run, err = ScanConnectorRun(q.QueryRowContext(ctx, `SELECT `+OpenDeliveryColumns+` FROM `+OpenDeliveries+` c
			WHERE c.project_id = $1 AND c.id = $2`, key.ProjectID, key.ID))
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return run, err
	}
	past, err := sqldb.PastRows(ctx, db, q, key.ID, ScanConnectorRun, `SELECT `+EndedConnectorRunColumns+` FROM {ended_connector_runs} c
		WHERE c.project_id = $1 AND c.id = $2`+sqldb.SinceCondition("c.id", "$1"), key.ProjectID, key.ID)
	if err == nil && len(past) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.ConnectorRun{}, err
	}
	return past[0], nil
}
