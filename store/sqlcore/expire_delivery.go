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

// maxExpiring is at how many destinations one statement of ExpireDeliveries looks, maxPages how
// many such statements one call makes.
const (
	maxExpiring = 100
	maxPages    = 32
)

// ExpireDeliveries implements store.Housekeeping. It looks at destinations in their order,
// behind those at which it looked before, until it has ended as many deliveries as it may; a
// delivery's id says when it was made.
func (c *Core) ExpireDeliveries(ctx context.Context, age time.Duration, limit int) (n int, err error) {
	c.expiring.Lock()
	defer c.expiring.Unlock()
	var failed []error
	for range maxPages {
		late, last, err := c.latest(ctx, age)
		if err != nil {
			return n, errors.Join(append(failed, wrap(err, "looking for deliveries that wait for too long"))...)
		}
		for _, key := range late {
			expired := 0
			err := c.Write(ctx, func(ctx context.Context, tx *Tx) (err error) {
				expired, err = c.expireDue(ctx, tx, key, age, min(limit-n, chunk))
				return err
			})
			if err != nil {
				expired = 0
				failed = append(failed, wrap(err, "ending deliveries of %s that wait for too long", key))
			}
			if n += expired; n >= limit { // there may be more of this one
				return n, errors.Join(failed...)
			}
			if c.expiring.after = key; ctx.Err() != nil { // the next call goes on behind it, however long it takes
				return n, errors.Join(failed...)
			}
		}
		if c.expiring.after = last; last == (store.Key{}) {
			break
		}
	}
	return n, errors.Join(failed...)
}

// latest are those of the next destinations that have deliveries which are that old, and the last
// at which it looked, the zero key where there are no more behind.
func (c *Core) latest(ctx context.Context, age time.Duration) (late []store.Key, last store.Key, err error) {
	n := 0
	_, err = collect(ctx, c.engine.Reader(), func(row scanner) (none struct{}, err error) {
		var isLate bool
		err = row.Scan(&last.ProjectID, &last.ID, &isLate)
		if n++; isLate {
			late = append(late, last)
		}
		return none, err
	}, `SELECT d.project_id, d.connector_id, (SELECT o.id FROM deliveries o
			WHERE o.project_id = d.project_id AND o.connector_id = d.connector_id AND o.id < id_at(now_us() - `+openForOf("d.project_id", "CAST($1 AS bigint)")+`) LIMIT 1) IS NOT NULL
		FROM destinations d WHERE d.project_id >= $2 AND (d.project_id > $2 OR d.connector_id > $3) ORDER BY d.project_id, d.connector_id LIMIT $4`,
		age.Microseconds(), c.expiring.after.ProjectID, c.expiring.after.ID, maxExpiring)
	if n < maxExpiring {
		last = store.Key{}
	}
	return late, last, err
}

// expireDue ends deliveries of a destination that are that old, but for those under way, and
// those of which somebody says at this moment what came of them: that one may wait for the
// destination, which is locked here.
func (c *Core) expireDue(ctx context.Context, tx *Tx, of store.Key, age time.Duration, limit int) (int, error) {
	locked, err := collect(ctx, tx, scanDestination, `SELECT `+destinationColumns+` FROM destinations
		WHERE project_id = $1 AND connector_id = $2 `+c.exclusive, of.ProjectID, of.ID)
	if err != nil || len(locked) == 0 {
		return 0, err
	}
	age, err = c.openFor(ctx, tx, of.ProjectID, age)
	if err != nil {
		return 0, err
	}
	old, err := collect(ctx, tx, ScanDelivery, `SELECT `+DeliveryColumns+` FROM deliveries
		WHERE project_id = $1 AND connector_id = $2 AND id < id_at(now_us() - $3) AND (lease_until IS NULL OR lease_until <= now_us())
		ORDER BY id LIMIT $4 `+c.skipLocked, of.ProjectID, of.ID, age.Microseconds(), limit)
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
