// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/sweep"
)

// expiryCursor is the last destination that ExpireDeliveries has checked.
type expiryCursor struct {
	sync.Mutex
	after store.Key
}

// maxExpiring is the number of destinations per statement of ExpireDeliveries, maxPages the number
// of statements per call.
const (
	maxExpiring = 100
	maxPages    = 32
)

// ExpireDeliveries implements store.Housekeeping. It checks destinations in order, after the last
// one of the previous call, until it has ended the maximum number of deliveries. The ID of a
// delivery has its creation time.
func (s *Store) ExpireDeliveries(ctx context.Context, age time.Duration, limit int) (n int, err error) {
	s.expiring.Lock()
	defer s.expiring.Unlock()
	s.expired.BeginCall()
	var failed []error
	for range maxPages {
		late, last, err := s.expiredDestinations(ctx, age)
		if err != nil {
			return n, sweep.JoinSetAside(append(failed, sqldb.Wrap(err, "reading expired deliveries"))...)
		}
		for _, key := range late {
			expired, err := s.expireDue(ctx, key, age, min(limit-n, sqldb.MaxIDs))
			failed = append(failed, sqldb.Wrap(err, "ending expired deliveries of %s", key))
			if n += expired; n >= limit { // there may be more for this destination
				return n, sweep.JoinSetAside(failed...)
			}
			if s.expiring.after = key; ctx.Err() != nil { // the next call continues behind it, however long it takes
				return n, sweep.JoinSetAside(failed...)
			}
		}
		if s.expiring.after = last; last == (store.Key{}) {
			break
		}
	}
	return n, sweep.JoinSetAside(failed...)
}

// expiredDestinations returns the next destinations with expired deliveries, and the last one checked; the zero
// key at the end.
func (s *Store) expiredDestinations(ctx context.Context, age time.Duration) (late []store.Key, last store.Key, err error) {
	n := 0
	err = sqldb.EachRow(ctx, s.db.Reader(), func(row sqldb.Scanner) (err error) {
		var isLate bool
		err = row.Scan(&last.ProjectID, &last.ID, &isLate)
		if n++; isLate {
			late = append(late, last)
		}
		return err
	}, `SELECT d.project_id, d.connector_id, (SELECT o.id FROM deliveries o
			WHERE o.project_id = d.project_id AND o.connector_id = d.connector_id AND o.id < id_at(now_us() - `+sqldb.OpenForOf("d.project_id", "CAST($1 AS bigint)")+`) LIMIT 1) IS NOT NULL
		FROM destinations d WHERE d.project_id >= $2 AND (d.project_id > $2 OR d.connector_id > $3) ORDER BY d.project_id, d.connector_id LIMIT $4`,
		age.Microseconds(), s.expiring.after.ProjectID, s.expiring.after.ID, maxExpiring)
	if n < maxExpiring {
		last = store.Key{}
	}
	return late, last, err
}

// expireDue ends expired deliveries of a destination. It skips deliveries in progress, and
// deliveries whose result is being recorded, because that transaction may wait for the destination,
// which is locked here.
func (s *Store) expireDue(ctx context.Context, of store.Key, age time.Duration, limit int) (int, error) {
	age, err := s.db.OpenFor(ctx, s.db.Reader(), of.ProjectID, age)
	if err != nil {
		return 0, err
	}
	swept, err := sweep.OpenRows[store.Delivery]{
		DB: s.db, Skipped: &s.expired, Columns: DeliveryColumns, Table: `deliveries`,
		Where: `r.project_id = $2 AND r.connector_id = $3 AND r.id < id_at(now_us() - $4) AND (r.lease_until IS NULL OR r.lease_until <= now_us())`,
		Order: `r.id`, Args: []any{of.ProjectID, of.ID, age.Microseconds()}, Scan: ScanDelivery, Key: store.Delivery.Key,
		Lock: func(ctx context.Context, tx *sqldb.Tx) (bool, error) {
			locked, err := sqldb.Collect(ctx, tx, scanDestination, `SELECT `+destinationColumns+` FROM destinations
				WHERE project_id = $1 AND connector_id = $2 `+s.db.Exclusive, of.ProjectID, of.ID)
			return len(locked) > 0, err
		},
		Move: func(ctx context.Context, tx *sqldb.Tx, old []store.Delivery) (store.Swept, error) {
			return store.Swept{Failed: len(old)}, s.endExpired(ctx, tx, of, age, old)
		},
	}.Sweep(ctx, limit)
	return swept.Failed, err
}

// endExpired ends deliveries of a locked destination.
func (s *Store) endExpired(ctx context.Context, tx *sqldb.Tx, of store.Key, age time.Duration, old []store.Delivery) error {
	reason := fmt.Sprintf("%s: it was not taken within %d days", store.DeliveryExpired, int(age.Hours()/24))
	keys, attempts := make([]store.Key, len(old)), make([]store.Attempt, len(old))
	for i, d := range old {
		keys[i], attempts[i] = d.Key(), store.Attempt{Delivery: d, Outcome: store.DeliveryFailed}
	}
	if err := s.endDeliveries(ctx, tx, keys, store.ConnectorRunFailed, reason); err != nil {
		return err
	}
	if err := postFailures(ctx, tx, attempts); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE destinations SET rejected = rejected + $3, rejected_reason = $4 WHERE project_id = $1 AND connector_id = $2`,
		of.ProjectID, of.ID, len(old), reason); err != nil {
		return err
	}
	return s.dueAgain(ctx, tx, []store.Key{of}, false)
}
