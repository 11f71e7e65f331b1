// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/delivery"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// TakeDue implements delivery.Engine.
func (e engine) TakeDue(ctx context.Context, q sqldb.Queryer, shares []delivery.Share, lease time.Duration) (begun []store.Delivery, err error) {
	for _, s := range shares {
		if err := eachRow(ctx, q, func(rows *sql.Rows) error {
			d, err := delivery.ScanDelivery(rows)
			begun = append(begun, d)
			return err
		}, `UPDATE deliveries AS d SET attempt = attempt + 1, lease_until = now_us() + $4, due_at = now_us() + $4
			WHERE d.project_id = $1 AND d.id IN (SELECT o.id FROM deliveries o WHERE o.project_id = $1 AND o.connector_id = $2
				AND o.due_at <= now_us() AND o.lease_until IS NULL ORDER BY o.due_at, o.id LIMIT $3) RETURNING `+delivery.DeliveryColumns,
			s.Connector.ProjectID, s.Connector.ID, s.Limit, lease.Microseconds()); err != nil {
			return nil, err
		}
	}
	return begun, nil
}

// receipts joins JSON input to deliveries whose claims are current.
const receipts = ` FROM json_each($1) g JOIN deliveries d ON d.project_id = g.value ->> 0 AND d.id = g.value ->> 1
	WHERE d.attempt = g.value ->> 2 AND d.lease_until IS NOT NULL`

// Receive implements delivery.Engine.
func (e engine) Receive(ctx context.Context, q sqldb.Queryer, of []delivery.Receipt) (received []store.Key, err error) {
	given := make([][]any, len(of))
	for i, r := range of {
		given[i] = []any{r.Delivery.ProjectID, r.Delivery.ID, r.Delivery.Attempt, r.At.UnixMicro(), r.Duration.Microseconds(), r.StatusCode, r.Response}
	}
	text, err := json.Marshal(given)
	if err != nil {
		return nil, err
	}
	for _, statement := range []string{
		`INSERT INTO delivery_attempts (project_id, delivery_id, number, at, duration_us, status_code, error_class, error, response)
			SELECT d.project_id, d.id, d.tries + 1, g.value ->> 3, g.value ->> 4, g.value ->> 5, '', '', g.value ->> 6` + receipts + ` ON CONFLICT DO NOTHING`,
		`INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type, content_type, run_ids, kind, error,
				hops, replay_of, started_at, ended_at)
			SELECT d.project_id, d.id, d.environment_id, d.connector_id, 'completed', 'outbound', '` + runrow.DeliveryType + `', id_list(d.run_id), d.kind, '',
				d.hops, d.replay_of, d.started_at, now_us()` + receipts,
		`INSERT INTO outbox_rollups (project_id, ended_id, connector_run_ids, posted_at)
			SELECT d.project_id, min(d.id), json_group_array(d.id), now_us()` + receipts + ` GROUP BY d.project_id`,
	} {
		if _, err := q.ExecContext(ctx, statement, string(text)); err != nil {
			return nil, err
		}
	}
	return received, eachRow(ctx, q, func(rows *sql.Rows) error {
		var key store.Key
		err := rows.Scan(&key.ProjectID, &key.ID)
		received = append(received, key)
		return err
	}, `DELETE FROM deliveries WHERE (project_id, id) IN (SELECT d.project_id, d.id`+receipts+`) RETURNING project_id, id`, string(text))
}
