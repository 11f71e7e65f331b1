// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/connectorrow"
	"github.com/agentplatform/agentplatform/store/idempotency"
	"github.com/agentplatform/agentplatform/store/replayjob"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// KnownRequest implements store.Replays.
func (s *Store) KnownRequest(ctx context.Context, connector store.Key, key store.Idempotency) (store.Admission, error) {
	e := store.Event{ProjectID: connector.ProjectID, ConnectorID: connector.ID, Idempotency: &key}
	a, err := idempotency.Earlier(ctx, s.db.Reader(), e)
	if err != nil {
		return store.Admission{}, err
	}
	return a, nil
}

// requestedDelivery is a delivery to create: a copy of another delivery, or a test delivery.
type requestedDelivery struct {
	store.Delivery
	// of is the original; the zero ID without one.
	of uuid.UUID
	// payload is the content if it is not a result, in a blob if that is set. size is the size of
	// either in bytes.
	payload []byte
	blob    *uuid.UUID
	size    int64
}

// Redeliver implements store.Replays. It reads the original first, because the original does not
// change.
func (s *Store) Redeliver(ctx context.Context, r store.Redelivery) (a store.Admission, err error) {
	of, err := runrow.ReadConnectorRun(ctx, s.db, s.db.Reader(), r.Of)
	if err == nil && (of.Trigger != store.TriggerOutbound || len(of.RunIDs) == 0 && of.Kind != store.DeliverTest) {
		err = store.ErrNotFound
	}
	if err != nil {
		return a, sqldb.Wrap(err, "reading delivery %s", r.Of)
	}
	d := requestedDelivery{of: of.ID, Delivery: store.Delivery{
		ProjectID: of.ProjectID, EnvironmentID: of.EnvironmentID, ConnectorID: of.ConnectorID, RunID: firstOf(of.RunIDs), Kind: of.Kind, Hops: 1,
	}}
	blobs, err := s.copyPayload(ctx, &d)
	if err != nil {
		s.blobs.DropUnmarked(ctx, blobs)
		return a, sqldb.Wrap(err, "reading the contents of delivery %s", r.Of)
	}
	if of.Kind != store.DeliverTest {
		from, err := runrow.OriginOf(ctx, s.db, s.db.Reader(), store.Key{ProjectID: d.ProjectID, ID: d.RunID})
		if err != nil {
			return a, sqldb.Wrap(err, "reading the connector run that started run %s", d.RunID)
		}
		d.Hops, d.Traceparent = from.Hops+1, from.Traceparent
	}
	err = s.blobs.WriteWith(ctx, blobs, func(ctx context.Context, tx *sqldb.Tx) (err error) {
		a, _, err = s.insertOnce(ctx, tx, d, blobs, r.Idempotency, r.Step)
		return err
	})
	return a, sqldb.Wrap(err, "redelivering %s", r.Of)
}

// insertOnce inserts a requested delivery with a new ID, and advances a replay step with it. If the
// key is known, it does neither, and first is false.
func (s *Store) insertOnce(
	ctx context.Context, tx *sqldb.Tx, d requestedDelivery, blobs []store.Key, key *store.Idempotency, step *store.ReplayStep,
) (a store.Admission, first bool, err error) {
	random, err := uuid.NewV7()
	if err != nil {
		return a, false, err
	}
	var now int64
	if err := tx.QueryRowContext(ctx, `SELECT now_us()`).Scan(&now); err != nil {
		return a, false, err
	}
	d.ID = store.Stamp(random, now, 0)
	if first, err = idempotency.Take(ctx, tx, d.Delivery, key); err != nil {
		return a, false, err
	}
	if !first {
		a, err = idempotency.Earlier(ctx, tx, store.Event{ProjectID: d.ProjectID, ConnectorID: d.ConnectorID, Idempotency: key})
		return a, false, err
	}
	if step != nil {
		if err := replayjob.Move(ctx, tx, *step); err != nil {
			return a, false, err
		}
	}
	return store.Admission{ConnectorRunID: d.ID, RunIDs: runsOfDelivery(d.Delivery)}, true, s.insertRequested(ctx, tx, d, blobs, now)
}

// SendTest implements store.Replays.
func (s *Store) SendTest(ctx context.Context, t store.TestDelivery) (a store.Admission, err error) {
	if err := t.Check(); err != nil {
		return a, err
	}
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) (err error) {
		connectors, err := connectorrow.ByKeys(ctx, s.db, tx, []store.Key{t.Connector})
		if err != nil {
			return err
		}
		connector, known := connectors[t.Connector]
		if !known || !connector.Sends() {
			return store.ErrNotFound
		}
		d := requestedDelivery{payload: t.Payload, size: int64(len(t.Payload)), Delivery: store.Delivery{
			ProjectID: connector.ProjectID, EnvironmentID: connector.EnvironmentID, ConnectorID: connector.ID, Kind: store.DeliverTest, Hops: 1,
		}}
		var first bool
		if a, first, err = s.insertOnce(ctx, tx, d, nil, t.Idempotency, nil); err != nil || !first {
			return err
		}
		return makeDestinationDue(ctx, tx, t.Connector)
	})
	return a, sqldb.Wrap(err, "testing connector %s", t.Connector)
}

// copyPayload prepares the contents of a delivery. A result stays with its run. Any other payload
// is under the original's ID; if it is in a blob, it is copied, and the copy returned. ErrGone if
// it is no longer stored.
func (s *Store) copyPayload(ctx context.Context, d *requestedDelivery) (blobs []store.Key, err error) {
	if d.Kind == store.DeliverResult {
		d.LinkID, err = sendingLink(ctx, s.db, d.Delivery)
		return nil, err
	}
	in, err := s.runs.EventInput(ctx, store.Key{ProjectID: d.ProjectID, ID: d.of})
	if errors.Is(err, store.ErrNotFound) {
		return nil, store.ErrGone
	}
	if err != nil {
		return nil, err
	}
	d.payload, d.size = in.Data, int64(len(in.Data))
	if in.Blob == nil {
		return nil, nil
	}
	body, err := s.blobs.OpenBlob(ctx, store.Key{ProjectID: d.ProjectID, ID: *in.Blob})
	if errors.Is(err, store.ErrNotFound) {
		return nil, store.ErrGone
	}
	if err != nil {
		return nil, err
	}
	defer body.Close()
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	d.blob, blobs = &id, []store.Key{{ProjectID: d.ProjectID, ID: id}}
	d.size, err = s.blobs.WriteBlob(ctx, blobs[0], body)
	return blobs, err
}

// sendingLink returns the link that would send the result of a delivery's run now, the zero ID if
// there is none. ErrGone if the result is not stored.
func sendingLink(ctx context.Context, db *sqldb.DB, d store.Delivery) (link uuid.UUID, err error) {
	var agent string
	err = db.ReadHistory(ctx, db.Reader(), store.Key{ProjectID: d.ProjectID, ID: d.RunID},
		`SELECT r.agent_name FROM {ended_runs} r WHERE r.project_id = $1 AND r.id = $2`+sqldb.ReadableCondition("$1"), &agent)
	if errors.Is(err, store.ErrNotFound) {
		return link, store.ErrGone
	}
	if err != nil {
		return link, err
	}
	err = sqldb.MapNoRows(db.Reader().QueryRowContext(ctx, `SELECT id FROM links WHERE project_id = $1 AND connector_id = $2 AND agent_name = $3`,
		d.ProjectID, d.ConnectorID, agent).Scan(&link))
	if errors.Is(err, store.ErrNotFound) {
		return uuid.Nil, nil
	}
	return link, err
}

// insertRequested inserts a requested delivery with its contents, due now.
func (s *Store) insertRequested(ctx context.Context, tx *sqldb.Tx, d requestedDelivery, blobs []store.Key, now int64) error {
	var of *uuid.UUID
	if d.of != uuid.Nil {
		of = &d.of
	}
	if _, err := tx.Exec(ctx, `INSERT INTO deliveries (project_id, id, environment_id, connector_id, link_id, run_id, kind, attempt, due_at, replay_of, started_at, hops, traceparent)
		VALUES ($1, $2, $3, $4, $5, $6, $9, 0, $7, $8, $7, $10, $11)`,
		d.ProjectID, d.ID, d.EnvironmentID, d.ConnectorID, d.LinkID, d.RunID, now, of, string(d.Kind), d.Hops, runrow.TraceparentColumn(d.Traceparent)); err != nil {
		return err
	}
	if d.Kind != store.DeliverResult {
		if err := s.blobs.MarkBlobs(ctx, tx, blobs); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO inputs (project_id, id, content_type, data, blob_id) VALUES ($1, $2, $3, $4, $5)`,
			d.ProjectID, d.ID, runrow.DeliveryType, d.payload, d.blob); err != nil {
			return err
		}
	}
	if err := countDeliveries(ctx, tx, []store.Key{d.Key()}, map[store.Key]int64{d.Key(): d.size}); err != nil {
		return err
	}
	tx.Hint(store.TopicDelivery, store.Key{ProjectID: d.ProjectID, ID: d.EnvironmentID})
	return wakeDestinations(ctx, tx, []store.Key{d.Connector()}, now)
}
