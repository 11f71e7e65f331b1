// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/connectorrow"
	"github.com/agentplatform/agentplatform/store/outbox"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// postFailures adds outbox rows for connectors whose deliveries end as failed, if a link of the project
// requests failure notices. A failed notice causes no notice, because that could repeat forever. A
// failed test causes none, because a user is watching it.
func postFailures(ctx context.Context, tx *sqldb.Tx, attempts []store.Attempt) error {
	failed := slices.DeleteFunc(slices.Clone(attempts), func(a store.Attempt) bool {
		return a.Outcome != store.DeliveryFailed && a.Outcome != store.DeliveryGone || a.Delivery.Kind == store.DeliverFailure || a.Delivery.Kind == store.DeliverTest
	})
	if len(failed) == 0 {
		return nil
	}
	telling, err := noticeProjects(ctx, tx, failed)
	if err != nil {
		return err
	}
	type untold struct {
		count int64
		last  uuid.UUID
	}
	of := map[store.Key]untold{}
	for _, a := range failed {
		if slices.Contains(telling, a.Delivery.ProjectID) {
			of[a.Delivery.Connector()] = untold{of[a.Delivery.Connector()].count + 1, a.Delivery.ID}
			tx.Hint(store.TopicDelivery, store.Key{ProjectID: a.Delivery.ProjectID, ID: a.Delivery.EnvironmentID})
		}
	}
	var r sqldb.RowBatch
	for _, connector := range slices.SortedFunc(maps.Keys(of), sqldb.CompareKeys) {
		r.Add(connector.ProjectID, connector.ID, of[connector].count, of[connector].last)
	}
	return r.Insert(ctx, tx, `INSERT INTO outbox AS o (project_id, consumer, ended_id, bytes, posted_at, failed, last_failed) VALUES `,
		`(%, '`+outbox.FailureNotices+`', %, 0, now_us(), %, %)`,
		` ON CONFLICT (project_id, consumer, ended_id) DO UPDATE SET failed = o.failed + excluded.failed, last_failed = excluded.last_failed`)
}

// noticeProjects returns the projects of attempts that have links for failure notices.
func noticeProjects(ctx context.Context, tx *sqldb.Tx, attempts []store.Attempt) ([]uuid.UUID, error) {
	var projects []uuid.UUID
	for _, a := range attempts {
		if !slices.Contains(projects, a.Delivery.ProjectID) {
			projects = append(projects, a.Delivery.ProjectID)
		}
	}
	var l sqldb.Args
	return sqldb.Collect(ctx, tx, sqldb.ScanUUID, `SELECT DISTINCT l.project_id FROM links l WHERE l.tells_failures AND l.project_id IN `+l.AddIDs(projects), l.Values...)
}

// takeFailing takes the outbox rows of failing connectors, if no other process has since they were
// read. own is the number of failed deliveries at that time. The next notice follows after
// TellEvery at the earliest. A row without further failures is then deleted. The destinations of
// the notices are locked before.
func (s *Store) takeFailing(ctx context.Context, tx *sqldb.Tx, failing []deliveryOutboxRow, targets []target, own map[store.Key]int64) error {
	if len(failing) == 0 {
		return nil
	}
	if len(targets) > 0 {
		var l sqldb.Args
		to := make([]store.Key, len(targets))
		for i, t := range targets {
			to[i] = t.destination()
		}
		if _, err := sqldb.Collect(ctx, tx, scanDestination, `SELECT `+destinationColumns+` FROM destinations WHERE `+
			s.db.KeyCondition(&l, "connector_id", slices.Compact(to))+` ORDER BY project_id, connector_id `+s.db.Exclusive, l.Values...); err != nil {
			return err
		}
	}
	last, keys := map[store.Key]uuid.UUID{}, make([]store.Key, len(failing))
	for i, p := range failing {
		keys[i], last[p.Key] = p.Key, *p.last
	}
	var l sqldb.Args
	rows, err := sqldb.Collect(ctx, tx, scanDeliveryOutboxRow, `SELECT `+deliveryOutboxColumns+` FROM outbox WHERE consumer = '`+outbox.FailureNotices+`' AND posted_at <= now_us() AND `+
		s.db.KeyCondition(&l, "ended_id", keys)+` ORDER BY project_id, ended_id `+s.db.Exclusive, l.Values...)
	if err != nil {
		return err
	}
	var told, over []store.Key
	for _, p := range rows {
		switch {
		case p.failed == 0:
			over = append(over, p.Key)
		case p.last != nil && *p.last == last[p.Key]:
			told, own[p.Key] = append(told, p.Key), p.failed
		}
	}
	if len(over) > 0 {
		l = sqldb.Args{}
		if _, err := tx.Exec(ctx, `DELETE FROM outbox WHERE consumer = '`+outbox.FailureNotices+`' AND `+s.db.KeyCondition(&l, "ended_id", over), l.Values...); err != nil {
			return err
		}
	}
	if len(told) == 0 {
		return nil
	}
	l = sqldb.Args{Values: []any{store.TellEvery.Microseconds()}}
	_, err = tx.Exec(ctx, `UPDATE outbox SET failed = 0, failures = 0, posted_at = now_us() + $1 WHERE consumer = '`+outbox.FailureNotices+`' AND `+
		s.db.KeyCondition(&l, "ended_id", told), l.Values...)
	return err
}

// failedDelivery is a failed delivery in a notice.
type failedDelivery struct {
	store.Key
	environment uuid.UUID
	word        store.FailedDelivery
}

// noticeLinks returns the links that send failure notices about these connectors.
func (s *Store) noticeLinks(ctx context.Context, failing []deliveryOutboxRow) (all []target, err error) {
	var last []store.Key
	for _, p := range failing {
		if p.failed > 0 {
			last = append(last, store.Key{ProjectID: p.ProjectID, ID: *p.last})
		}
	}
	failures, err := s.failedDeliveries(ctx, last)
	if err != nil {
		return nil, err
	}
	links := map[store.Key][]target{}
	for _, f := range failures {
		of := store.Key{ProjectID: f.ProjectID, ID: f.environment}
		if _, known := links[of]; !known {
			if links[of], err = s.noticeLinksOf(ctx, of); err != nil {
				return nil, err
			}
		}
		others := slices.DeleteFunc(slices.Clone(links[of]), func(to target) bool { return to.connector == f.word.ConnectorID })
		for _, to := range others[:min(len(others), store.MaxTold)] {
			to.of = store.Key{ProjectID: f.ProjectID, ID: f.word.ConnectorID}
			to.run.ID, to.word = f.word.RunID, &f.word
			all = append(all, to)
		}
	}
	return all, nil
}

// failedDeliveries reads failed deliveries with the last attempt of each.
func (s *Store) failedDeliveries(ctx context.Context, keys []store.Key) (all []failedDelivery, err error) {
	for _, same := range s.db.KeysByPart("ended_connector_runs", keys) {
		var l sqldb.Args
		past, err := sqldb.PastRows(ctx, s.db, s.db.Reader(), same[0].ID, func(row sqldb.Scanner) (f failedDelivery, err error) {
			var (
				runs  []uuid.UUID
				ended time.Time
			)
			err = row.Scan(&f.ProjectID, &f.ID, &f.environment, &f.word.ConnectorID, sqldb.ScanIDs(&runs), &f.word.Error, sqldb.ScanTime(&ended))
			f.word.Type, f.word.DeliveryID, f.word.FailedAt, f.word.RunID = store.StatusDeliveryFailed, f.ID, ended, firstOf(runs)
			return f, err
		}, `SELECT project_id, id, environment_id, connector_id, run_ids, error, ended_at FROM {ended_connector_runs}
			WHERE status = 'failed' AND trigger_type = 'outbound' AND `+s.db.KeyCondition(&l, "id", same), l.Values...)
		if err != nil {
			return nil, err
		}
		all = append(all, past...)
	}
	for i := range all {
		f := &all[i]
		last, err := sqldb.PastRows(ctx, s.db, s.db.Reader(), f.ID, func(row sqldb.Scanner) (a store.PastAttempt, err error) {
			return a, row.Scan(&a.Number, &a.StatusCode, &a.ErrorClass)
		}, `SELECT number, status_code, error_class FROM {delivery_attempts} WHERE project_id = $1 AND delivery_id = $2 ORDER BY number DESC LIMIT 1`,
			f.ProjectID, f.ID)
		if err != nil {
			return nil, err
		}
		f.word.Attempts, f.word.StatusCode, f.word.ErrorClass = firstOf(last).Number, firstOf(last).StatusCode, firstOf(last).ErrorClass
	}
	return all, nil
}

// noticeLinksOf returns the links of an environment that send failure notices, one per connector.
func (s *Store) noticeLinksOf(ctx context.Context, environment store.Key) (all []target, err error) {
	links, err := sqldb.Collect(ctx, s.db.Reader(), func(row sqldb.Scanner) (to target, err error) {
		return to, row.Scan(&to.link, &to.connector)
	}, `SELECT l.id, l.connector_id FROM links l JOIN connectors c ON c.project_id = l.project_id AND c.id = l.connector_id
		WHERE l.project_id = $1 AND l.tells_failures AND c.environment_id = $2 AND `+connectorrow.Sends+` AND NOT c.shadowed ORDER BY `+connectorrow.LinkOrder, environment.ProjectID, environment.ID)
	if err != nil {
		return nil, err
	}
	for _, to := range links {
		if len(all) == store.MaxTold+1 { // one may be the failing connector itself
			break
		}
		if slices.ContainsFunc(all, func(other target) bool { return other.connector == to.connector }) {
			continue
		}
		to.kind, to.environment, to.run.ProjectID = store.DeliverFailure, environment.ID, environment.ProjectID
		all = append(all, to)
	}
	return all, nil
}
