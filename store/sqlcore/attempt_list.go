// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"slices"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// Attempts implements store.Deliveries.
func (c *Core) Attempts(ctx context.Context, delivery store.Key) (past []store.PastAttempt, next *time.Time, err error) {
	waits, err := collect(ctx, c.engine.Reader(), func(row scanner) (due time.Time, err error) {
		return due, row.Scan(scanTime(&due))
	}, `SELECT due_at FROM deliveries WHERE project_id = $1 AND id = $2 AND lease_until IS NULL`, delivery.ProjectID, delivery.ID)
	if err == nil {
		past, err = pastRows(ctx, c, c.engine.Reader(), delivery.ID, func(row scanner) (a store.PastAttempt, err error) {
			err = row.Scan(&a.Number, scanTime(&a.At), durationOf(&a.Duration), &a.StatusCode, &a.ErrorClass, &a.Error, &a.Response)
			return a, err
		}, `SELECT number, at, duration_us, status_code, error_class, error, response FROM {delivery_attempts}
			WHERE project_id = $1 AND delivery_id = $2`+sinceCondition("delivery_id", "$1")+` ORDER BY number`, delivery.ProjectID, delivery.ID)
	}
	if len(waits) > 0 {
		next = &waits[0]
	}
	return past, next, wrap(err, "reading the attempts of delivery %s", delivery)
}

// AttemptsOf implements store.Deliveries, with a statement per partition of history, and one for
// open deliveries.
func (c *Core) AttemptsOf(ctx context.Context, deliveries []store.Key) (map[store.Key]store.DeliveryAttempts, error) {
	of := map[store.Key]store.DeliveryAttempts{}
	for some := range slices.Chunk(deliveries, maxKeys) {
		var l argList
		if _, err := collect(ctx, c.engine.Reader(), func(row scanner) (none struct{}, err error) {
			var (
				key store.Key
				due time.Time
			)
			err = row.Scan(&key.ProjectID, &key.ID, scanTime(&due))
			of[key] = store.DeliveryAttempts{Next: &due}
			return none, err
		}, `SELECT project_id, id, due_at FROM deliveries WHERE `+c.keyCondition(&l, "id", some)+` AND lease_until IS NULL`, l.args...); err != nil {
			return nil, wrap(err, "reading the due times of deliveries")
		}
	}
	for _, part := range c.keysByPart("delivery_attempts", deliveries) {
		for some := range slices.Chunk(part, maxKeys) {
			var l argList
			if _, err := pastRows(ctx, c, c.engine.Reader(), some[0].ID, func(row scanner) (none struct{}, err error) {
				var (
					key store.Key
					a   store.PastAttempt
				)
				err = row.Scan(&key.ProjectID, &key.ID, &a.Number, scanTime(&a.At), durationOf(&a.Duration), &a.StatusCode, &a.ErrorClass, &a.Error)
				with := of[key]
				with.Past = append(with.Past, a)
				of[key] = with
				return none, err
			}, `SELECT a.project_id, a.delivery_id, a.number, a.at, a.duration_us, a.status_code, a.error_class, a.error
				FROM {delivery_attempts} a WHERE `+c.keyCondition(&l, "a.delivery_id", some)+sinceCondition("a.delivery_id", "a.project_id")+`
				ORDER BY a.delivery_id, a.number`, l.args...); err != nil {
				return nil, wrap(err, "reading the attempts of deliveries")
			}
		}
	}
	return of, nil
}
