// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"slices"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/connectorrow"
	"github.com/agentplatform/agentplatform/store/outbox"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/sweep"
)

// ClaimDeliveries implements store.Deliveries. Claims and records lock the connectors first, so the
// number of attempts in progress is exact.
func (s *Store) ClaimDeliveries(ctx context.Context, claim store.DeliveryClaim) ([]store.ClaimedDelivery, error) {
	for _, skipped := range []*sweep.Skipped{&s.claims, &s.lost, &s.closed} {
		skipped.BeginCall()
	}
	limit := min(claim.Limit, store.MaxDeliveryClaim)
	got, failed := s.claimApart(ctx, claim, limit)
	for _, of := range got.lost { // first: lost deliveries of a closed connector are then due, and end
		failed = sweep.JoinSetAside(failed, s.loseAttempts(ctx, of))
	}
	for _, of := range got.closed {
		failed = sweep.JoinSetAside(failed, s.skipDueDeliveries(ctx, of))
	}
	if len(got.lost) > 0 && len(got.claimed) < limit { // they are due now
		again, err := s.claimApart(ctx, claim.After(got.claimed), limit-len(got.claimed))
		got.claimed, failed = append(got.claimed, again.claimed...), sweep.JoinSetAside(failed, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqldb.ReadTimeout)
	defer cancel()
	err := s.addRuns(ctx, got.claimed)
	if err == nil {
		err = s.addPayloads(ctx, got.claimed)
	}
	return got.claimed, sweep.JoinSetAside(sqldb.Wrap(failed, "claiming deliveries"), sqldb.Wrap(err, "reading the contents of claimed deliveries"))
}

// deliveryClaim is the result of a claim.
type deliveryClaim struct {
	// due are the destinations that were read.
	due     []destination
	claimed []store.ClaimedDelivery
	// lost are destinations with expired claims. closed are destinations that send nothing.
	lost, closed []store.Key
}

// claimApart begins attempts. A failing destination is skipped for some calls.
func (s *Store) claimApart(ctx context.Context, claim store.DeliveryClaim, limit int) (got deliveryClaim, err error) {
	all, err := s.claimSome(ctx, claim, limit, nil)
	if err == nil {
		return all, nil
	}
	if len(all.due) == 0 {
		return got, err
	}
	err = sweep.Isolation[destination]{
		ProcessAll: func(ctx context.Context, due []destination) error {
			left := limit - len(got.claimed)
			if left <= 0 {
				return nil
			}
			keys := make([]store.Key, len(due))
			for i, d := range due {
				keys[i] = d.Key
			}
			some, err := s.claimSome(ctx, claim.After(got.claimed), left, keys)
			if err == nil {
				got.claimed, got.lost = append(got.claimed, some.claimed...), append(got.lost, some.lost...)
				got.closed = append(got.closed, some.closed...)
			}
			return err
		},
		IsDataError: s.db.IsDataError, CanProceed: s.db.CanWrite,
		SetAside: func(ctx context.Context, d destination, because error) error {
			// If this fails too, only this process skips the destination.
			_ = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
				return delayDestination(ctx, tx, d.Key, outbox.AsideFor)
			})
			return s.claims.Skip(d.Key, because)
		},
	}.IsolateAfter(ctx, all.due, err)
	return got, err
}

// claimSome begins attempts in one transaction, for these destinations or, if there are none, for
// any. With an error none have begun, but due is valid.
func (s *Store) claimSome(ctx context.Context, claim store.DeliveryClaim, limit int, only []store.Key) (got deliveryClaim, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) (err error) {
		got = deliveryClaim{}
		var l sqldb.Args
		narrow := s.otherDestinations(&l, claim)
		if len(only) > 0 {
			narrow += ` AND ` + s.db.KeyCondition(&l, "connector_id", only)
		}
		got.due, err = sqldb.Collect(ctx, tx, scanDestination, `SELECT `+destinationColumns+` FROM destinations
			WHERE due_at <= now_us()`+narrow+` ORDER BY due_at LIMIT `+l.Add(min(destinationsPerAttempt*limit, store.MaxDeliveryClaim))+` `+s.db.SkipLocked, l.Values...)
		if err != nil || len(got.due) == 0 {
			return err
		}
		return s.claimFrom(ctx, tx, &got, claim, limit)
	})
	if err != nil {
		return deliveryClaim{due: got.due}, err
	}
	return got, nil
}

// otherDestinations excludes the destinations that the claim leaves out.
func (s *Store) otherDestinations(l *sqldb.Args, claim store.DeliveryClaim) (where string) {
	if full := claim.Without(); len(full) > 0 {
		where = ` AND project_id NOT IN ` + l.AddIDs(full)
	}
	if full := slices.Concat(claim.Full(), s.claims.Keys()); len(full) > 0 {
		where += ` AND NOT (` + s.db.KeyCondition(l, "connector_id", full) + `)`
	}
	return where
}

// maxClosed is the number of closed connectors whose deliveries one claim ends.
const maxClosed = 4

// claimFrom begins attempts of the due destinations.
func (s *Store) claimFrom(ctx context.Context, tx *sqldb.Tx, got *deliveryClaim, claim store.DeliveryClaim, limit int) error {
	keys := make([]store.Key, len(got.due))
	for i, d := range got.due {
		keys[i] = d.Key
	}
	connectors, err := connectorrow.ByKeys(ctx, s.db, tx, keys)
	if err != nil {
		return err
	}
	var underWay map[store.Key]int
	if underWay, got.lost, err = s.underWay(ctx, tx, keys); err != nil {
		return err
	}
	var open []destination
	for _, d := range got.due {
		if connector, known := connectors[d.Key]; d.closedReason(connector, known) == "" {
			open = append(open, d)
		} else {
			got.closed = append(got.closed, d.Key)
		}
	}
	if err := s.dueAgain(ctx, tx, got.closed, true); err != nil { // and behind the others
		return err
	}
	got.closed = got.closed[:min(len(got.closed), maxClosed)]
	shares, left := shareOut(open, underWay, claim, limit)
	begun, err := s.engine.TakeDue(ctx, tx, shares, claim.Lease)
	if err != nil {
		return err
	}
	got.claimed = make([]store.ClaimedDelivery, len(begun))
	for i, delivery := range begun {
		got.claimed[i] = store.ClaimedDelivery{Delivery: delivery, Connector: connectors[delivery.Connector()]}
		left[delivery.Connector()]--
	}
	var full, free []store.Key
	for key, n := range left {
		if n <= 0 {
			full = append(full, key)
		} else {
			free = append(free, key)
		}
	}
	if err := s.dueAgain(ctx, tx, full, true); err != nil {
		return err
	}
	return s.dueAgain(ctx, tx, free, false)
}

// underWay returns the number of attempts in progress per connector, and the connectors with
// expired claims, whose attempts have no result.
func (s *Store) underWay(ctx context.Context, tx *sqldb.Tx, keys []store.Key) (of map[store.Key]int, lost []store.Key, err error) {
	var l sqldb.Args
	of = map[store.Key]int{}
	err = sqldb.EachRow(ctx, tx, func(row sqldb.Scanner) (err error) {
		var (
			key      store.Key
			held, no int
		)
		err = row.Scan(&key.ProjectID, &key.ID, &held, &no)
		if of[key] = held; no > 0 {
			lost = append(lost, key)
		}
		return err
	}, `SELECT project_id, connector_id, count(*) FILTER (WHERE lease_until > now_us()), count(*) FILTER (WHERE lease_until <= now_us() AND due_at <= now_us())
		FROM deliveries WHERE lease_until IS NOT NULL AND `+s.db.KeyCondition(&l, "connector_id", keys)+` GROUP BY project_id, connector_id`, l.Values...)
	return of, lost, err
}

// lostError is the error of a lost attempt.
const lostError = `the result of this attempt was not recorded`

// loseAttempts records the attempts of a connector whose claims have expired as lost. It skips
// attempts whose result is being recorded now.
func (s *Store) loseAttempts(ctx context.Context, connector store.Key) error {
	_, err := s.deliverySweep(&s.lost, connector, `r.lease_until <= now_us() AND r.due_at <= now_us()`, nil, s.recordLost).Sweep(ctx, store.MaxDeliveryClaim)
	return sqldb.Wrap(err, "recording lost attempts of %s", connector)
}

// deliverySweep is a sweep of the deliveries of a connector. A row that is set aside is not
// due for a while.
func (s *Store) deliverySweep(skipped *sweep.Skipped, connector store.Key, where string, lock func(ctx context.Context, tx *sqldb.Tx) (bool, error),
	move func(ctx context.Context, tx *sqldb.Tx, keys []store.Key) error,
) sweep.OpenRows[store.Key] {
	of := sweep.RunsByKey(s.db, skipped, `r.project_id = $2 AND r.connector_id = $3 AND `+where, `r.due_at, r.id`,
		func(ctx context.Context, tx *sqldb.Tx, keys []store.Key) (store.Swept, error) {
			return store.Swept{}, move(ctx, tx, keys)
		},
		connector.ProjectID, connector.ID)
	of.Table, of.Lock = `deliveries`, lock
	of.Aside = func(ctx context.Context, row store.Key) {
		// If this fails too, it stays due, and only this process skips it.
		_, _ = s.db.Exec(ctx, `UPDATE deliveries SET due_at = now_us() + $3 WHERE project_id = $1 AND id = $2 AND (lease_until IS NULL OR lease_until <= now_us())`,
			row.ProjectID, row.ID, (outbox.AsideFor * sweep.MaxSkippedCalls).Microseconds())
	}
	return of
}

// recordLost records lost attempts.
func (s *Store) recordLost(ctx context.Context, tx *sqldb.Tx, keys []store.Key) error {
	var l sqldb.Args
	lost, err := sqldb.Collect(ctx, tx, sqldb.ScanKey, `INSERT INTO delivery_attempts (project_id, delivery_id, number, at, duration_us, status_code, error_class, error, response)
		SELECT project_id, id, tries + 1, now_us(), 0, 0, '`+store.ErrorClassLost+`', '`+lostError+`', ''
		FROM deliveries WHERE `+s.db.KeyCondition(&l, "id", keys)+` ON CONFLICT DO NOTHING RETURNING project_id, delivery_id`, l.Values...)
	if err != nil {
		return err
	}
	bytes := map[store.Key]int64{}
	for _, key := range lost {
		bytes[key] = int64(len(lostError))
	}
	if err := countDeliveries(ctx, tx, lost, bytes); err != nil {
		return err
	}
	l = sqldb.Args{}
	_, err = tx.Exec(ctx, `UPDATE deliveries SET lease_until = NULL, tries = tries + 1, waits_for = '' WHERE `+s.db.KeyCondition(&l, "id", keys), l.Values...)
	return err
}

// skipDueDeliveries skips due deliveries of a closed destination, a few at a time.
func (s *Store) skipDueDeliveries(ctx context.Context, of store.Key) error {
	reason := ""
	_, err := s.deliverySweep(&s.closed, of, `r.due_at <= now_us() AND r.lease_until IS NULL`,
		func(ctx context.Context, tx *sqldb.Tx) (bool, error) {
			locked, err := sqldb.Collect(ctx, tx, scanDestination, `SELECT `+destinationColumns+` FROM destinations
				WHERE project_id = $1 AND connector_id = $2 `+s.db.Exclusive, of.ProjectID, of.ID)
			if err != nil || len(locked) == 0 {
				return false, err
			}
			connectors, err := connectorrow.ByKeys(ctx, s.db, tx, []store.Key{of})
			connector, known := connectors[of]
			reason = locked[0].closedReason(connector, known)
			return reason != "", err
		},
		func(ctx context.Context, tx *sqldb.Tx, keys []store.Key) error {
			status := store.ConnectorRunSkipped
			if reason == closedGone {
				status = store.ConnectorRunCancelled
			}
			if err := s.endDeliveries(ctx, tx, keys, status, reason); err != nil {
				return err
			}
			return s.dueAgain(ctx, tx, []store.Key{of}, false)
		}).Sweep(ctx, sqldb.MaxIDs)
	return sqldb.Wrap(err, "ending deliveries of %s", of)
}
