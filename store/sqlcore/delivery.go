// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// deliveryColumns are of an open delivery.
const deliveryColumns = `id, project_id, environment_id, connector_id, link_id, run_id, attempt, started_at`

func scanDelivery(row scanner) (d store.Delivery, err error) {
	err = row.Scan(&d.ID, &d.ProjectID, &d.EnvironmentID, &d.ConnectorID, &d.LinkID, &d.RunID, &d.Attempt, at(&d.StartedAt))
	return d, err
}

// destination is a connector of which deliveries are due, while it is locked.
type destination struct {
	store.Key
	failures         int
	pausedGeneration *int64
	pausedReason     string
}

func scanDestination(row scanner) (d destination, err error) {
	err = row.Scan(&d.ProjectID, &d.ID, &d.failures, &d.pausedGeneration, &d.pausedReason)
	return d, err
}

const destinationColumns = `project_id, connector_id, failures, paused_generation, paused_reason`

// ClaimDeliveries implements store.Deliveries. Whoever claims or records locks the
// connectors first: so the number of attempts that are under way is exact.
func (c *Core) ClaimDeliveries(ctx context.Context, claim store.DeliveryClaim) (claimed []store.ClaimedDelivery, err error) {
	limit := min(claim.Limit, store.MaxDeliveryClaim)
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		claimed = nil
		l := list{}
		without := ``
		if len(claim.Without) > 0 {
			without = ` AND project_id NOT IN ` + l.ids(claim.Without)
		}
		due, err := collect(ctx, tx, scanDestination, `SELECT `+destinationColumns+` FROM destinations
			WHERE due_at <= now_us()`+without+` ORDER BY due_at LIMIT `+l.add(limit)+` `+c.skipLocked, l.args...)
		if err != nil {
			return err
		}
		for i, d := range due {
			// Each has its part of what is left, so that one with many leaves some to the others.
			share := max((limit-len(claimed))/(len(due)-i), 1)
			more, err := c.claimFrom(ctx, tx, d, claim, min(share, limit-len(claimed)))
			if err != nil {
				return err
			}
			claimed = append(claimed, more...)
		}
		return nil
	})
	if err != nil {
		return nil, wrap(err, "claiming deliveries")
	}
	return claimed, wrap(c.addRuns(ctx, claimed), "reading the results of claimed deliveries")
}

// claimFrom begins attempts of one connector.
func (c *Core) claimFrom(ctx context.Context, tx *Tx, d destination, claim store.DeliveryClaim, limit int) ([]store.ClaimedDelivery, error) {
	connector, err := scanConnector(tx.QueryRowContext(ctx, selectConnector, d.ProjectID, d.ID))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if closed := d.closed(connector, err == nil); closed != "" {
		return nil, c.endDue(ctx, tx, d, closed)
	}
	var underWay, lost int
	err = tx.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE lease_until > now_us()), count(*) FILTER (WHERE lease_until <= now_us())
		FROM deliveries WHERE project_id = $1 AND connector_id = $2 AND lease_until IS NOT NULL`, d.ProjectID, d.ID).Scan(&underWay, &lost)
	if err == nil && lost > 0 {
		_, err = tx.exec(ctx, `INSERT INTO delivery_attempts (project_id, delivery_id, number, at, duration_us, status_code, error_class, error, response)
			SELECT project_id, id, attempt, now_us(), 0, 0, '`+store.ErrorClassLost+`', 'nobody has said what came of this attempt', ''
			FROM deliveries WHERE project_id = $1 AND connector_id = $2 AND lease_until <= now_us()`, d.ProjectID, d.ID)
	}
	if err == nil && lost > 0 {
		_, err = tx.exec(ctx, `UPDATE deliveries SET lease_until = NULL WHERE project_id = $1 AND connector_id = $2 AND lease_until <= now_us()`, d.ProjectID, d.ID)
	}
	if err != nil {
		return nil, err
	}
	most := claim.PerConnector
	if d.failures >= store.BreakAfter {
		most = 1
	}
	begun, err := collect(ctx, tx, scanDelivery, `UPDATE deliveries SET attempt = attempt + 1, lease_until = now_us() + $4, due_at = now_us() + $4
		WHERE project_id = $1 AND id IN (SELECT o.id FROM deliveries o WHERE o.project_id = $1 AND o.connector_id = $2 AND o.due_at <= now_us()
			ORDER BY o.due_at, o.id LIMIT $3) RETURNING `+deliveryColumns, d.ProjectID, d.ID, max(min(most-underWay, limit), 0), claim.Lease.Microseconds())
	if err != nil {
		return nil, err
	}
	claimed := make([]store.ClaimedDelivery, len(begun))
	for i, delivery := range begun {
		claimed[i] = store.ClaimedDelivery{Delivery: delivery, Connector: connector}
	}
	full := underWay+len(begun) >= most
	return claimed, dueAgain(ctx, tx, d, full, 0)
}

// closed is why nothing is sent to a destination; "" where it is.
func (d destination) closed(connector store.Connector, known bool) string {
	switch {
	case !known:
		return closedGone
	case connector.Retired:
		return closedRetired
	case !connector.Enabled:
		return closedDisabled
	case d.pausedGeneration != nil && *d.pausedGeneration == connector.Ref.Generation:
		return closedPaused + d.pausedReason
	}
	return ""
}

// dueAgain sets when a claim may find something of a destination: its first delivery
// that is due; where as many are under way as may be, the first that was not by now; but
// not before a pause is over.
func dueAgain(ctx context.Context, tx *Tx, d destination, full bool, pause time.Duration) error {
	_, err := tx.exec(ctx, `UPDATE destinations SET due_at = (
			SELECT CASE WHEN o.due_at < now_us() + $4 THEN now_us() + $4 ELSE o.due_at END FROM deliveries o
			WHERE o.project_id = $1 AND o.connector_id = $2 AND o.due_at > CASE WHEN $3 THEN now_us() ELSE 0 END
			ORDER BY o.due_at LIMIT 1)
		WHERE project_id = $1 AND connector_id = $2`, d.ProjectID, d.ID, full, pause.Microseconds())
	return err
}

// endDue skips what is due of a destination, some at a time.
func (c *Core) endDue(ctx context.Context, tx *Tx, d destination, reason string) error {
	due, err := collect(ctx, tx, scanDelivery, `SELECT `+deliveryColumns+` FROM deliveries
		WHERE project_id = $1 AND connector_id = $2 AND due_at <= now_us() ORDER BY due_at, id LIMIT $3`, d.ProjectID, d.ID, chunk)
	if err != nil {
		return err
	}
	keys := make([]store.Key, len(due))
	for i := range due {
		keys[i] = due[i].Key()
	}
	status := store.ConnectorRunSkipped
	if reason == closedGone {
		status = store.ConnectorRunCancelled
	}
	if err := c.endDeliveries(ctx, tx, keys, status, reason); err != nil {
		return err
	}
	return dueAgain(ctx, tx, d, false, 0)
}

// endDeliveries moves deliveries to history.
func (c *Core) endDeliveries(ctx context.Context, tx *Tx, keys []store.Key, status store.ConnectorRunStatus, reason string) error {
	for part := range slices.Chunk(keys, chunk) {
		l := list{args: []any{string(status), Text(reason)}}
		if _, err := tx.exec(ctx, `INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type,
				content_type, run_ids, error, started_at, ended_at)
			SELECT project_id, id, environment_id, connector_id, $1, 'outbound', '`+deliveryType+`', id_list(run_id), $2, started_at, now_us()
			FROM deliveries WHERE `+c.keys(&l, "id", part), l.args...); err != nil {
			return err
		}
		l = list{}
		if _, err := tx.exec(ctx, `DELETE FROM deliveries WHERE `+c.keys(&l, "id", part), l.args...); err != nil {
			return err
		}
	}
	return countDeliveries(ctx, tx, keys, nil)
}

// DeliveryOverhead is how many bytes a delivery, and each of its attempts, count for beside
// its contents.
const DeliveryOverhead = 512

// countDeliveries lets bytes be counted that deliveries have stored: more, by delivery, beside
// the overhead of each.
func countDeliveries(ctx context.Context, tx *Tx, keys []store.Key, more map[store.Key]int64) error {
	bytes, of := map[uuid.UUID]int64{}, map[uuid.UUID]uuid.UUID{}
	for _, key := range keys {
		bytes[key.ProjectID] += DeliveryOverhead + more[key]
		of[key.ProjectID] = key.ID
	}
	var r rows
	for _, project := range slices.SortedFunc(maps.Keys(bytes), compareIDs) {
		r.add(project, storage, of[project], bytes[project])
	}
	return r.insert(ctx, tx, `INSERT INTO outbox AS o (project_id, consumer, ended_id, bytes, posted_at) VALUES `, `(%, %, %, %, now_us())`,
		` ON CONFLICT (project_id, consumer, ended_id) DO UPDATE SET bytes = o.bytes + excluded.bytes`)
}

// addRuns reads what claimed deliveries send, but for outputs that are in blobs.
func (c *Core) addRuns(ctx context.Context, claimed []store.ClaimedDelivery) error {
	ids, of := map[uuid.UUID][]uuid.UUID{}, map[store.Key]pastRun{}
	for _, d := range claimed {
		ids[d.Delivery.ProjectID] = append(ids[d.Delivery.ProjectID], d.RunID)
	}
	for project, runs := range ids {
		for _, same := range c.ByPart("ended_runs", runs) {
			l := list{args: []any{project}}
			past, err := pastRows(ctx, c, c.engine.Reader(), same[0], scanPastRun, `SELECT `+pastRunColumns+` FROM {ended_runs} r
				WHERE r.project_id = $1 AND r.id IN `+l.ids(same), l.args...)
			if err != nil {
				return err
			}
			for _, run := range past {
				of[run.Key()] = run
			}
		}
	}
	for i, d := range claimed {
		run := of[store.Key{ProjectID: d.Delivery.ProjectID, ID: d.RunID}]
		claimed[i].Run, claimed[i].OutputBlob = run.Run, run.blob
	}
	return nil
}

// NextDelivery implements store.Deliveries.
func (c *Core) NextDelivery(ctx context.Context) (in time.Duration, waits bool, err error) {
	var us *int64
	err = c.engine.Reader().QueryRowContext(ctx, `SELECT CASE WHEN EXISTS (SELECT 1 FROM outbox WHERE consumer = '`+outbound+`') THEN 0
		ELSE (SELECT due_at - now_us() FROM destinations WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1) END`).Scan(&us)
	if err != nil || us == nil {
		return 0, false, wrap(err, "looking when a delivery is due")
	}
	return max(time.Duration(*us)*time.Microsecond, 0), true, nil
}

// Attempts implements store.Deliveries.
func (c *Core) Attempts(ctx context.Context, delivery store.Key) ([]store.PastAttempt, error) {
	past, err := pastRows(ctx, c, c.engine.Reader(), delivery.ID, func(row scanner) (a store.PastAttempt, err error) {
		err = row.Scan(&a.Number, at(&a.At), durationOf(&a.Duration), &a.StatusCode, &a.ErrorClass, &a.Error, &a.Response)
		return a, err
	}, `SELECT number, at, duration_us, status_code, error_class, error, response FROM {delivery_attempts}
		WHERE project_id = $1 AND delivery_id = $2 ORDER BY number`, delivery.ProjectID, delivery.ID)
	return past, wrap(err, "reading the attempts of delivery %s", delivery)
}
