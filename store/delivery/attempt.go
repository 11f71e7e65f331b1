// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storedbytes"
	"github.com/agentplatform/agentplatform/store/sweep"
)

// RecordAttempts implements store.Deliveries. An attempt that cannot be recorded blocks no other
// attempt.
func (s *Store) RecordAttempts(ctx context.Context, attempts []store.Attempt) error {
	deliveries := map[store.Key]store.Attempt{}
	for _, a := range attempts {
		if before, twice := deliveries[a.Delivery.Key()]; !twice || before.Delivery.Attempt < a.Delivery.Attempt {
			deliveries[a.Delivery.Key()] = a
		}
	}
	if len(deliveries) == 0 {
		return nil
	}
	s.dropExcerpts(ctx, deliveries)
	recorded := map[store.Key]bool{}
	err := sweep.Isolation[store.Key]{
		ProcessAll: func(ctx context.Context, keys []store.Key) error {
			some := make(map[store.Key]store.Attempt, len(keys))
			for _, key := range keys {
				some[key] = deliveries[key]
			}
			if err := s.recordAll(ctx, some); err != nil {
				return err
			}
			for _, key := range keys {
				recorded[key] = true
			}
			return nil
		},
		IsDataError: s.db.IsDataError, CanProceed: s.db.CanWrite,
		SetAside: func(_ context.Context, key store.Key, because error) error {
			return &store.SetAsideError{Rows: []error{sqldb.Wrap(because, "delivery %s", key)}}
		},
	}.Process(ctx, slices.SortedFunc(maps.Keys(deliveries), sqldb.CompareKeys))
	if err == nil {
		return nil
	}
	left := slices.DeleteFunc(slices.Clone(attempts), func(a store.Attempt) bool { return recorded[a.Delivery.Key()] })
	return &store.UnrecordedError{Left: left, Err: sqldb.Wrap(err, "recording %d attempts to deliver", len(attempts))}
}

// recordAll records attempts in one transaction.
func (s *Store) recordAll(ctx context.Context, deliveries map[store.Key]store.Attempt) error {
	destinations, done := map[store.Key]bool{}, true
	for _, a := range deliveries {
		destinations[a.Delivery.Connector()] = true
		done = done && a.Outcome == store.DeliveryDone
	}
	keys := slices.SortedFunc(maps.Keys(destinations), sqldb.CompareKeys)
	return s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if done {
			return s.recordDone(ctx, tx, keys, deliveries)
		}
		l := sqldb.Args{}
		to, err := sqldb.Collect(ctx, tx, scanDestination, `SELECT `+destinationColumns+` FROM destinations WHERE `+
			s.db.KeyCondition(&l, "connector_id", keys)+` ORDER BY project_id, connector_id `+s.db.Exclusive, l.Values...)
		if err != nil {
			return err
		}
		current, err := s.current(ctx, tx, deliveries)
		if err != nil {
			return err
		}
		if err := s.writeAttempts(ctx, tx, current); err != nil {
			return err
		}
		return s.updateDestinations(ctx, tx, to, current)
	})
}

// dropExcerpts drops the responses for projects whose storage is full or cannot be measured.
// Recording the attempts matters more.
func (s *Store) dropExcerpts(ctx context.Context, deliveries map[store.Key]store.Attempt) {
	projects := map[uuid.UUID]bool{}
	for key, a := range deliveries {
		if a.Response != "" {
			projects[key.ProjectID] = true
		}
	}
	for some := range slices.Chunk(slices.SortedFunc(maps.Keys(projects), sqldb.CompareIDs), sqldb.MaxIDs) {
		var l sqldb.Args
		full, err := sqldb.Collect(ctx, s.db.Reader(), sqldb.ScanUUID, `SELECT p.project_id FROM projects p
			WHERE p.project_id IN `+l.AddIDs(some)+` AND p.storage > 0 AND `+storedbytes.Counted+` >= p.storage`, l.Values...)
		if err != nil {
			full = some
		}
		for key, a := range deliveries {
			if slices.Contains(full, key.ProjectID) {
				a.Response = ""
				deliveries[key] = a
			}
		}
	}
}

// Receipt is the successful response of a destination. Response is the stored form.
type Receipt struct {
	store.Attempt
	Response string
}

// recordDone records attempts that all succeeded, as most do. It locks only destinations that
// waited for a slot, or for a success, and locks these last. So claims find the other destinations
// unlocked.
func (s *Store) recordDone(ctx context.Context, tx *sqldb.Tx, keys []store.Key, deliveries map[store.Key]store.Attempt) error {
	receipts, bytes := make([]Receipt, 0, len(deliveries)), map[store.Key]int64{}
	for _, key := range slices.SortedFunc(maps.Keys(deliveries), sqldb.CompareKeys) {
		a := deliveries[key]
		receipts = append(receipts, Receipt{a, sqldb.TruncateText(a.Response, store.MaxExcerpt)})
		bytes[key] = int64(len(receipts[len(receipts)-1].Response))
	}
	received, err := s.engine.Receive(ctx, tx, receipts)
	if err != nil {
		return err
	}
	if err := countDeliveries(ctx, tx, received, bytes); err != nil {
		return err
	}
	var l sqldb.Args
	idle, err := sqldb.Collect(ctx, tx, scanDestination, `SELECT `+destinationColumns+` FROM destinations
		WHERE (failures > 0 OR rejected > 0 OR due_at IS NULL OR due_at > now_us()) AND `+s.db.KeyCondition(&l, "connector_id", keys)+`
		ORDER BY project_id, connector_id `+s.db.Exclusive, l.Values...)
	if err != nil || len(idle) == 0 {
		return err
	}
	keys = nil
	var well []store.Key
	for _, d := range idle {
		keys = append(keys, d.Key)
		if d.failures > 0 || d.rejected > 0 {
			well = append(well, d.Key)
		}
	}
	if len(well) > 0 {
		l = sqldb.Args{}
		if _, err := tx.Exec(ctx, `UPDATE destinations SET failures = 0, rejected = 0, rejected_reason = '' WHERE `+s.db.KeyCondition(&l, "connector_id", well), l.Values...); err != nil {
			return err
		}
	}
	return s.dueAgain(ctx, tx, keys, false)
}

// current returns the attempts whose delivery was not claimed again, in a fixed order.
func (s *Store) current(ctx context.Context, tx *sqldb.Tx, attempts map[store.Key]store.Attempt) (current []store.Attempt, err error) {
	l := sqldb.Args{}
	open, err := sqldb.Collect(ctx, tx, ScanDelivery, `SELECT `+DeliveryColumns+` FROM deliveries
		WHERE lease_until IS NOT NULL AND `+s.db.KeyCondition(&l, "id", slices.Collect(maps.Keys(attempts))), l.Values...)
	for _, d := range open {
		if a := attempts[d.Key()]; a.Delivery.Attempt == d.Attempt {
			a.Delivery = d
			current = append(current, a)
		}
	}
	slices.SortFunc(current, func(a, b store.Attempt) int { return sqldb.CompareKeys(a.Delivery.Key(), b.Delivery.Key()) })
	return current, err
}

// writeAttempts writes attempts to history and applies their outcomes to the deliveries.
func (s *Store) writeAttempts(ctx context.Context, tx *sqldb.Tx, attempts []store.Attempt) error {
	type end struct {
		status store.ConnectorRunStatus
		reason string
	}
	var (
		r     sqldb.RowBatch
		keys  []store.Key
		bytes = map[store.Key]int64{}
		ended = map[end][]store.Key{}
		again = map[retry][]store.Key{}
	)
	for _, a := range attempts {
		key, response, message := a.Delivery.Key(), sqldb.TruncateText(a.Response, store.MaxExcerpt), sqldb.TruncateText(a.Error, store.MaxDeliveryError)
		counts := 0
		if !a.Free {
			r.Add(key.ProjectID, key.ID, a.Delivery.Tries+1, sqldb.Instant(a.At), a.Duration.Microseconds(), a.StatusCode, a.ErrorClass, message, response)
			keys, bytes[key], counts = append(keys, key), int64(len(response)+len(message)), 1
		}
		switch a.Outcome {
		case store.DeliveryRetry:
			r := retry{wait: a.Wait, counts: counts}
			if a.Free {
				r.waitsFor = message
			}
			again[r] = append(again[r], key)
		case store.DeliveryDone:
			ended[end{status: store.ConnectorRunCompleted}] = append(ended[end{status: store.ConnectorRunCompleted}], key)
		case store.DeliveryFailed, store.DeliveryGone:
			e := end{store.ConnectorRunFailed, sqldb.TruncateText(a.Reason, store.MaxDeliveryError)}
			ended[e] = append(ended[e], key)
		case store.DeliveryCancelled:
			e := end{store.ConnectorRunCancelled, sqldb.TruncateText(a.Reason, store.MaxDeliveryError)}
			ended[e] = append(ended[e], key)
		}
	}
	if err := r.Insert(ctx, tx, `INSERT INTO delivery_attempts (project_id, delivery_id, number, at, duration_us, status_code, error_class, error, response)
		VALUES `, `(%, %, %, %, %, %, %, %, %)`, ` ON CONFLICT DO NOTHING`); err != nil {
		return err
	}
	if err := s.retryAll(ctx, tx, again); err != nil {
		return err
	}
	for e, of := range ended {
		if err := s.endDeliveries(ctx, tx, of, e.status, e.reason); err != nil {
			return err
		}
	}
	if err := postFailures(ctx, tx, attempts); err != nil {
		return err
	}
	return countDeliveries(ctx, tx, keys, bytes)
}

// retry is the next due time of a delivery, the change of its attempt count, and why the platform
// could not make the last attempt.
type retry struct {
	wait     time.Duration
	counts   int
	waitsFor string
}

// retryAll schedules the next attempts, with one statement for each group of equal retries.
func (s *Store) retryAll(ctx context.Context, tx *sqldb.Tx, again map[retry][]store.Key) error {
	for r, keys := range again {
		for some := range slices.Chunk(keys, sqldb.MaxIDs) {
			l := sqldb.Args{Values: []any{r.wait.Microseconds(), r.counts, r.waitsFor}}
			if _, err := tx.Exec(ctx, `UPDATE deliveries SET lease_until = NULL, due_at = now_us() + $1, tries = tries + $2, waits_for = $3 WHERE `+
				s.db.KeyCondition(&l, "id", some), l.Values...); err != nil {
				return err
			}
		}
	}
	return nil
}

// updateDestinations updates destinations after attempts, and when they are due again.
func (s *Store) updateDestinations(ctx context.Context, tx *sqldb.Tx, to []destination, attempts []store.Attempt) error {
	of := map[store.Key][]store.Attempt{}
	for _, a := range attempts {
		of[a.Delivery.Connector()] = append(of[a.Delivery.Connector()], a)
	}
	keys := make([]store.Key, len(to))
	for i, d := range to {
		keys[i] = d.Key
	}
	if err := s.dueAgain(ctx, tx, keys, false); err != nil {
		return err
	}
	for _, d := range to {
		if err := updateDestination(ctx, tx, d, of[d.Key]); err != nil {
			return err
		}
	}
	return nil
}

func updateDestination(ctx context.Context, tx *sqldb.Tx, d destination, attempts []store.Attempt) error {
	failures, rejected, reason := d.failures, d.rejected, ""
	for _, a := range attempts {
		switch a.Outcome {
		case store.DeliveryDone:
			rejected, reason = 0, ""
		case store.DeliveryFailed, store.DeliveryGone:
			rejected, reason = rejected+1, sqldb.TruncateText(a.Reason, store.MaxDeliveryError)
		}
		switch {
		case a.Down:
			failures++
		case a.StatusCode > 0:
			failures = 0
		}
		if a.Outcome == store.DeliveryGone {
			if _, err := tx.Exec(ctx, `UPDATE destinations SET paused_reason = $3, paused_generation = $4 WHERE project_id = $1 AND connector_id = $2`,
				d.ProjectID, d.ID, sqldb.TruncateText(a.Reason, store.MaxDeliveryError), a.Generation); err != nil {
				return err
			}
		}
	}
	if failures != d.failures || rejected != d.rejected {
		if _, err := tx.Exec(ctx, `UPDATE destinations SET failures = $3, rejected = $4, rejected_reason = CASE WHEN CAST($5 AS text) = '' AND CAST($4 AS bigint) > 0 THEN rejected_reason ELSE CAST($5 AS text) END
			WHERE project_id = $1 AND connector_id = $2`, d.ProjectID, d.ID, failures, rejected, reason); err != nil {
			return err
		}
	}
	if failures >= store.BreakAfter {
		return delayDestination(ctx, tx, d.Key, store.BreakFor(failures))
	}
	return nil
}
