// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlcore"
)

var takeDueStatement = `UPDATE deliveries d SET attempt = d.attempt + 1, lease_until = now_us() + $4::bigint, due_at = now_us() + $4::bigint
	FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS s (project_id, connector_id, most)
	CROSS JOIN LATERAL (SELECT o.id FROM deliveries o WHERE o.project_id = s.project_id AND o.connector_id = s.connector_id
		AND o.due_at <= now_us() ORDER BY o.due_at, o.id LIMIT s.most) n
	WHERE d.project_id = s.project_id AND d.id = n.id RETURNING d.` + strings.ReplaceAll(sqlcore.DeliveryColumns, ", ", ", d.")

// TakeDue implements sqlcore.Engine.
func (e engine) TakeDue(ctx context.Context, q sqlcore.Queryer, shares []sqlcore.Share, lease time.Duration) (begun []store.Delivery, err error) {
	var (
		project, connector []pgtype.UUID
		most               []int64
	)
	for _, s := range shares {
		project, connector = append(project, known(s.Connector.ProjectID)), append(connector, known(s.Connector.ID))
		most = append(most, int64(s.Limit))
	}
	rows, err := q.QueryContext(ctx, takeDueStatement, project, connector, most, lease.Microseconds())
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // its error is that of Err
	for rows.Next() {
		d, err := sqlcore.ScanDelivery(rows)
		if err != nil {
			return nil, err
		}
		begun = append(begun, d)
	}
	return begun, rows.Err()
}
