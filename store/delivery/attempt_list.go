// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"slices"
	"time"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Attempts implements store.Deliveries.
func (s *Store) Attempts(ctx context.Context, delivery store.Key) (past []store.PastAttempt, next *time.Time, err error) {
	waits, err := sqldb.Collect(ctx, s.db.Reader(), func(row sqldb.Scanner) (due time.Time, err error) {
		return due, row.Scan(sqldb.ScanTime(&due))
	}, `SELECT due_at FROM deliveries WHERE project_id = $1 AND id = $2 AND lease_until IS NULL`, delivery.ProjectID, delivery.ID)
	if err == nil {
		past, err = sqldb.PastRows(ctx, s.db, s.db.Reader(), delivery.ID, func(row sqldb.Scanner) (a store.PastAttempt, err error) {
			err = row.Scan(&a.Number, sqldb.ScanTime(&a.At), sqldb.ScanDuration(&a.Duration), &a.StatusCode, &a.ErrorClass, &a.Error, &a.Response)
			return a, err
		}, `SELECT number, at, duration_us, status_code, error_class, error, response FROM {delivery_attempts}
			WHERE project_id = $1 AND delivery_id = $2`+sqldb.SinceCondition("delivery_id", "$1")+` ORDER BY number`, delivery.ProjectID, delivery.ID)
	}
	if len(waits) > 0 {
		next = &waits[0]
	}
	return past, next, sqldb.Wrap(err, "reading the attempts of delivery %s", delivery)
}

// AttemptsOf implements store.Deliveries, with a statement per partition of history, and one for
// open deliveries.
func (s *Store) AttemptsOf(ctx context.Context, deliveries []store.Key) (map[store.Key]store.DeliveryAttempts, error) {
	of := map[store.Key]store.DeliveryAttempts{}
	for some := range slices.Chunk(deliveries, sqldb.MaxKeys) {
		var l sqldb.Args
		if err := sqldb.EachRow(ctx, s.db.Reader(), func(row sqldb.Scanner) (err error) {
			var (
				key store.Key
				due time.Time
			)
			err = row.Scan(&key.ProjectID, &key.ID, sqldb.ScanTime(&due))
			of[key] = store.DeliveryAttempts{Next: &due}
			return err
		}, `SELECT project_id, id, due_at FROM deliveries WHERE `+s.db.KeyCondition(&l, "id", some)+` AND lease_until IS NULL`, l.Values...); err != nil {
			return nil, sqldb.Wrap(err, "reading the due times of deliveries")
		}
	}
	for _, part := range s.db.KeysByPart("delivery_attempts", deliveries) {
		for some := range slices.Chunk(part, sqldb.MaxKeys) {
			var l sqldb.Args
			if _, err := sqldb.PastRows(ctx, s.db, s.db.Reader(), some[0].ID, func(row sqldb.Scanner) (none struct{}, err error) {
				var (
					key store.Key
					a   store.PastAttempt
				)
				err = row.Scan(&key.ProjectID, &key.ID, &a.Number, sqldb.ScanTime(&a.At), sqldb.ScanDuration(&a.Duration), &a.StatusCode, &a.ErrorClass, &a.Error)
				with := of[key]
				with.Past = append(with.Past, a)
				of[key] = with
				return none, err
			}, `SELECT a.project_id, a.delivery_id, a.number, a.at, a.duration_us, a.status_code, a.error_class, a.error
				FROM {delivery_attempts} a WHERE `+s.db.KeyCondition(&l, "a.delivery_id", some)+sqldb.SinceCondition("a.delivery_id", "a.project_id")+`
				ORDER BY a.delivery_id, a.number`, l.Values...); err != nil {
				return nil, sqldb.Wrap(err, "reading the attempts of deliveries")
			}
		}
	}
	return of, nil
}
