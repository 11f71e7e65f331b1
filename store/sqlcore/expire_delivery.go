// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// expiring is the destination at which ExpireDeliveries looked last.
type expiring struct {
	sync.Mutex
	after store.Key
}

// maxExpiring is at how many destinations one call of ExpireDeliveries looks.
const maxExpiring = 100

// ExpireDeliveries implements store.Housekeeping. It looks at some destinations in their order,
// behind those at which it looked before; a delivery's id says when it was made.
func (c *Core) ExpireDeliveries(ctx context.Context, age time.Duration, limit int) (n int, err error) {
	type page struct {
		store.Key
		late bool
	}
	c.expiring.Lock()
	defer c.expiring.Unlock()
	looked, err := collect(ctx, c.engine.Reader(), func(row scanner) (p page, err error) {
		return p, row.Scan(&p.ProjectID, &p.ID, &p.late)
	}, `SELECT d.project_id, d.connector_id, (SELECT o.id FROM deliveries o
			WHERE o.project_id = d.project_id AND o.connector_id = d.connector_id AND o.id < id_at(now_us() - $1) LIMIT 1) IS NOT NULL
		FROM destinations d WHERE d.project_id >= $2 AND (d.project_id > $2 OR d.connector_id > $3) ORDER BY d.project_id, d.connector_id LIMIT $4`,
		age.Microseconds(), c.expiring.after.ProjectID, c.expiring.after.ID, maxExpiring)
	if err != nil {
		return 0, wrap(err, "looking for deliveries that wait for too long")
	}
	var (
		late   []store.Key
		failed []error
	)
	for _, p := range looked {
		if p.late {
			late = append(late, p.Key)
		}
	}
	defer func() {
		switch {
		case n >= limit: // there may be more of these
		case len(looked) < maxExpiring:
			c.expiring.after = store.Key{}
		default:
			c.expiring.after = looked[maxExpiring-1].Key
		}
	}()
	for _, key := range late {
		if n >= limit || ctx.Err() != nil {
			break
		}
		expired := 0
		err := c.Write(ctx, func(ctx context.Context, tx *Tx) (err error) {
			expired, err = c.expireDue(ctx, tx, key, age, min(limit-n, chunk))
			return err
		})
		if n += expired; err != nil {
			failed = append(failed, wrap(err, "ending deliveries of %s that wait for too long", key))
		}
	}
	return n, errors.Join(failed...)
}

// expireDue ends deliveries of a destination that are that old, but for those under way.
func (c *Core) expireDue(ctx context.Context, tx *Tx, of store.Key, age time.Duration, limit int) (int, error) {
	locked, err := collect(ctx, tx, scanDestination, `SELECT `+destinationColumns+` FROM destinations
		WHERE project_id = $1 AND connector_id = $2 `+c.exclusive, of.ProjectID, of.ID)
	if err != nil || len(locked) == 0 {
		return 0, err
	}
	old, err := collect(ctx, tx, ScanDelivery, `SELECT `+DeliveryColumns+` FROM deliveries
		WHERE project_id = $1 AND connector_id = $2 AND id < id_at(now_us() - $3) AND (lease_until IS NULL OR lease_until <= now_us())
		ORDER BY id LIMIT $4`, of.ProjectID, of.ID, age.Microseconds(), limit)
	if err != nil || len(old) == 0 {
		return 0, err
	}
	reason := fmt.Sprintf("%s: it was not taken within %d days", store.DeliveryExpired, int(age.Hours()/24))
	keys, attempts := make([]store.Key, len(old)), make([]store.Attempt, len(old))
	for i, d := range old {
		keys[i], attempts[i] = d.Key(), store.Attempt{Delivery: d, Outcome: store.DeliveryFailed}
	}
	if err := c.endDeliveries(ctx, tx, keys, store.ConnectorRunFailed, reason); err != nil {
		return 0, err
	}
	if err := tellOf(ctx, tx, attempts); err != nil {
		return 0, err
	}
	if _, err := tx.exec(ctx, `UPDATE destinations SET rejected = rejected + $3, rejected_reason = $4 WHERE project_id = $1 AND connector_id = $2`,
		of.ProjectID, of.ID, len(old), reason); err != nil {
		return 0, err
	}
	return len(old), c.dueAgain(ctx, tx, []store.Key{of}, false)
}
