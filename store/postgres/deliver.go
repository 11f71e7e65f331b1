// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/delivery"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// shareRows are the columns of shares.
var shareRows = rowset[delivery.Share]{
	uuidColumn("project_id", func(s *delivery.Share) uuid.UUID { return s.Connector.ProjectID }),
	uuidColumn("connector_id", func(s *delivery.Share) uuid.UUID { return s.Connector.ID }),
	columnOf("most", func(s *delivery.Share) int64 { return int64(s.Limit) }),
}

// takeDueStatement addresses the rows that it has found by their physical location, so no planner
// can read all rows of a project for each. A row that changes meanwhile is left to the next claim.
var takeDueStatement = `UPDATE deliveries d SET attempt = d.attempt + 1, lease_until = now_us() + $1::bigint, due_at = now_us() + $1::bigint
	FROM ` + shareRows.fromClause(2, "s") + `
	CROSS JOIN LATERAL (SELECT o.ctid FROM deliveries o WHERE o.project_id = s.project_id AND o.connector_id = s.connector_id
		AND o.due_at <= now_us() AND o.lease_until IS NULL ORDER BY o.due_at, o.id LIMIT s.most) n
	WHERE d.project_id = s.project_id AND d.ctid = n.ctid RETURNING d.` + strings.ReplaceAll(delivery.DeliveryColumns, ", ", ", d.")

// TakeDue implements delivery.Engine.
func (e engine) TakeDue(ctx context.Context, q sqldb.Queryer, shares []delivery.Share, lease time.Duration) (begun []store.Delivery, err error) {
	rows, err := q.QueryContext(ctx, takeDueStatement, append([]any{lease.Microseconds()}, shareRows.arguments(shares)...)...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err returns its error
	for rows.Next() {
		d, err := delivery.ScanDelivery(rows)
		if err != nil {
			return nil, err
		}
		begun = append(begun, d)
	}
	return begun, rows.Err()
}

// receiptRows are the columns of receipts.
var receiptRows = rowset[delivery.Receipt]{
	uuidColumn("project_id", func(r *delivery.Receipt) uuid.UUID { return r.Delivery.ProjectID }),
	uuidColumn("id", func(r *delivery.Receipt) uuid.UUID { return r.Delivery.ID }),
	columnOf("attempt", func(r *delivery.Receipt) int64 { return int64(r.Delivery.Attempt) }),
	columnOf("at", func(r *delivery.Receipt) int64 { return r.At.UnixMicro() }),
	columnOf("duration_us", func(r *delivery.Receipt) int64 { return r.Duration.Microseconds() }),
	columnOf("status_code", func(r *delivery.Receipt) int64 { return int64(r.StatusCode) }),
	columnOf("response", func(r *delivery.Receipt) string { return r.Response }),
}

// receiveStatement deletes deliveries and inserts two history rows for each. It names no partition,
// because it only inserts into history.
var receiveStatement = `WITH given AS MATERIALIZED (
	SELECT * FROM ` + receiptRows.fromClause(1, "g") + `
), gone AS (
	DELETE FROM deliveries d USING given g
	WHERE d.project_id = g.project_id AND d.id = g.id AND d.attempt = g.attempt AND d.lease_until IS NOT NULL
	RETURNING d.project_id, d.id, d.environment_id, d.connector_id, d.run_id, d.kind, d.tries + 1 AS number, d.hops, d.replay_of, d.started_at,
		g.at, g.duration_us, g.status_code, g.response
), attempts AS (
	INSERT INTO delivery_attempts (project_id, delivery_id, number, at, duration_us, status_code, error_class, error, response)
	SELECT project_id, id, number, at, duration_us, status_code, '', '', response FROM gone ON CONFLICT DO NOTHING
), ended AS (
	INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type, content_type, run_ids, kind, error,
		hops, replay_of, started_at, ended_at)
	SELECT project_id, id, environment_id, connector_id, 'completed', 'outbound', '` + runrow.DeliveryType + `', id_list(run_id), kind, '',
		hops, replay_of, started_at, now_us() FROM gone
), rolled_up AS (
	INSERT INTO outbox_rollups (project_id, ended_id, connector_run_ids, posted_at)
	SELECT project_id, (array_agg(id))[1], array_agg(id), now_us() FROM gone GROUP BY project_id
) SELECT project_id, id FROM gone`

// Receive implements delivery.Engine.
func (e engine) Receive(ctx context.Context, q sqldb.Queryer, receipts []delivery.Receipt) (received []store.Key, err error) {
	return readKeys(q.QueryContext(ctx, receiveStatement, receiptRows.arguments(receipts)...))
}
