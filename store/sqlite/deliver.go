// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlcore"
)

// TakeDue implements sqlcore.Engine.
func (e engine) TakeDue(ctx context.Context, q sqlcore.Queryer, shares []sqlcore.Share, lease time.Duration) (begun []store.Delivery, err error) {
	for _, s := range shares {
		if err := each(ctx, q, func(rows *sql.Rows) error {
			d, err := sqlcore.ScanDelivery(rows)
			begun = append(begun, d)
			return err
		}, `UPDATE deliveries AS d SET attempt = attempt + 1, lease_until = now_us() + $4, due_at = now_us() + $4
			WHERE d.project_id = $1 AND d.id IN (SELECT o.id FROM deliveries o WHERE o.project_id = $1 AND o.connector_id = $2 AND o.due_at <= now_us()
				ORDER BY o.due_at, o.id LIMIT $3) RETURNING `+sqlcore.DeliveryColumns,
			s.Connector.ProjectID, s.Connector.ID, s.Limit, lease.Microseconds()); err != nil {
			return nil, err
		}
	}
	return begun, nil
}
