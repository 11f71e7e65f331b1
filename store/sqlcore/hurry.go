// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// Hurry implements store.Replays.
func (c *Core) Hurry(ctx context.Context, delivery store.Key, key *store.Idempotency) (a store.Admission, err error) {
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		d, err := ScanDelivery(tx.QueryRowContext(ctx, `SELECT `+DeliveryColumns+` FROM deliveries WHERE project_id = $1 AND id = $2`,
			delivery.ProjectID, delivery.ID))
		if err != nil {
			return found(err)
		}
		a = store.Admission{ConnectorRunID: d.ID, RunIDs: runsOf(d)}
		first, err := c.takeKey(ctx, tx, d, key)
		if err == nil && !first {
			a, err = c.Earlier(ctx, tx, store.Event{ProjectID: d.ProjectID, ConnectorID: d.ConnectorID, Idempotency: key})
			return err
		}
		if err != nil {
			return err
		}
		return c.makeDue(ctx, tx, d)
	})
	return a, wrap(err, "hurrying delivery %s", delivery)
}

// makeDue makes a delivery due now that is not under way, before all others of its destination
// that are due: where these wait for one that succeeds, it is the one that is tried. It locks the destination first, as
// whoever claims does, and then the delivery, but for one of which somebody records at the moment
// that it was taken, who locks in the other order: it has ended.
func (c *Core) makeDue(ctx context.Context, tx *Tx, d store.Delivery) error {
	if _, err := collect(ctx, tx, scanDestination, `SELECT `+destinationColumns+` FROM destinations
		WHERE project_id = $1 AND connector_id = $2 `+c.exclusive, d.ProjectID, d.ConnectorID); err != nil {
		return err
	}
	var underWay bool
	if err := tx.QueryRowContext(ctx, `SELECT lease_until IS NOT NULL AND lease_until > now_us() FROM deliveries WHERE project_id = $1 AND id = $2 `+c.skipLocked,
		d.ProjectID, d.ID).Scan(&underWay); err != nil {
		return found(err)
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
	if _, err := tx.exec(ctx, `UPDATE deliveries SET due_at = $3 WHERE project_id = $1 AND id = $2 AND due_at > $3`,
		d.ProjectID, d.ID, due); err != nil {
		return err
	}
	if err := lookNow(ctx, tx, d.Connector()); err != nil {
		return err
	}
	tx.Hint(store.TopicDelivery, store.Key{ProjectID: d.ProjectID, ID: d.EnvironmentID})
	return nil
}

// lookNow lets claims look at a destination now, whatever it waits for. Whoever calls it has
// locked that.
func lookNow(ctx context.Context, tx *Tx, connector store.Key) error {
	_, err := tx.exec(ctx, `UPDATE destinations SET due_at = now_us() WHERE project_id = $1 AND connector_id = $2 AND (due_at IS NULL OR due_at > now_us())`,
		connector.ProjectID, connector.ID)
	return err
}

// runsOf is the run that a delivery is of; none of a test.
func runsOf(d store.Delivery) []uuid.UUID {
	if d.RunID == uuid.Nil {
		return nil
	}
	return []uuid.UUID{d.RunID}
}
