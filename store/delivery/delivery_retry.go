// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/idempotency"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// RetryDeliveryNow implements store.Replays.
func (s *Store) RetryDeliveryNow(ctx context.Context, delivery store.Key, key *store.Idempotency) (a store.Admission, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		d, err := ScanDelivery(tx.QueryRowContext(ctx, `SELECT `+DeliveryColumns+` FROM deliveries WHERE project_id = $1 AND id = $2`,
			delivery.ProjectID, delivery.ID))
		if err != nil {
			return sqldb.MapNoRows(err)
		}
		a = store.Admission{ConnectorRunID: d.ID, RunIDs: runsOfDelivery(d)}
		first, err := idempotency.Take(ctx, tx, d, key)
		if err == nil && !first {
			a, err = idempotency.Earlier(ctx, tx, store.Event{ProjectID: d.ProjectID, ConnectorID: d.ConnectorID, Idempotency: key})
			return err
		}
		if err != nil {
			return err
		}
		return s.makeDue(ctx, tx, d)
	})
	return a, sqldb.Wrap(err, "making delivery %s due", delivery)
}

// makeDue makes a delivery due now that has no attempt in progress, ahead of all other due
// deliveries of its destination. If these wait for a success, it is the one that is tried. It locks
// the destination first, as claims do, and then the delivery. It skips a delivery whose success is
// being recorded, because that transaction locks in the other order: the delivery has ended.
func (s *Store) makeDue(ctx context.Context, tx *sqldb.Tx, d store.Delivery) error {
	if _, err := sqldb.Collect(ctx, tx, scanDestination, `SELECT `+destinationColumns+` FROM destinations
		WHERE project_id = $1 AND connector_id = $2 `+s.db.Exclusive, d.ProjectID, d.ConnectorID); err != nil {
		return err
	}
	var underWay bool
	if err := tx.QueryRowContext(ctx, `SELECT lease_until IS NOT NULL AND lease_until > now_us() FROM deliveries WHERE project_id = $1 AND id = $2 `+s.db.SkipLocked,
		d.ProjectID, d.ID).Scan(&underWay); err != nil {
		return sqldb.MapNoRows(err)
	}
	if underWay {
		return store.ErrConflict
	}
	var due int64
	if err := tx.QueryRowContext(ctx, `SELECT COALESCE((SELECT CASE WHEN o.due_at <= now_us() THEN o.due_at - 1 END FROM deliveries o
			WHERE o.project_id = $1 AND o.connector_id = $3 AND o.id <> $2 ORDER BY o.due_at LIMIT 1), now_us())`,
		d.ProjectID, d.ID, d.ConnectorID).Scan(&due); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE deliveries SET due_at = $3 WHERE project_id = $1 AND id = $2 AND due_at > $3`,
		d.ProjectID, d.ID, due); err != nil {
		return err
	}
	if err := makeDestinationDue(ctx, tx, d.Connector()); err != nil {
		return err
	}
	tx.Hint(store.TopicDelivery, store.Key{ProjectID: d.ProjectID, ID: d.EnvironmentID})
	return nil
}

// makeDestinationDue lets claims read a destination now, whatever it waits for. The caller has locked it.
func makeDestinationDue(ctx context.Context, tx *sqldb.Tx, connector store.Key) error {
	_, err := tx.Exec(ctx, `UPDATE destinations SET due_at = now_us() WHERE project_id = $1 AND connector_id = $2 AND (due_at IS NULL OR due_at > now_us())`,
		connector.ProjectID, connector.ID)
	return err
}

// runsOfDelivery returns the run of a delivery; none for a test.
func runsOfDelivery(d store.Delivery) []uuid.UUID {
	if d.RunID == uuid.Nil {
		return nil
	}
	return []uuid.UUID{d.RunID}
}
