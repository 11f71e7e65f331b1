// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/connectorrow"
	"github.com/agentplatform/agentplatform/store/openrun"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storedbytes"
)

// Send implements store.Sends. A payload that is too large for a row is written first, unless it is
// already clear that it will not be sent.
func (s *Store) Send(ctx context.Context, send store.Send) (sent store.Sent, err error) {
	if err := send.Check(); err != nil {
		return sent, err
	}
	refused, err := s.checkSend(ctx, send)
	if err != nil {
		return sent, sqldb.Wrap(err, "checking the payload of run %s", send.Lease.Run)
	}
	var blobs []store.Key
	if len(send.Payload) > store.MaxInlineInput && refused == nil {
		id, err := uuid.NewV7()
		if err != nil {
			return sent, sqldb.Wrap(err, "generating an ID")
		}
		blob := store.Key{ProjectID: send.Lease.Run.ProjectID, ID: id}
		blobs = append(blobs, blob)
		if _, err := s.blobs.WriteBlob(ctx, blob, bytes.NewReader(send.Payload)); err != nil {
			s.blobs.DropUnmarked(ctx, blobs)
			return sent, sqldb.Wrap(err, "storing the payload of run %s", send.Lease.Run)
		}
	}
	err = s.blobs.WriteWith(ctx, blobs, func(ctx context.Context, tx *sqldb.Tx) (err error) {
		sent, err = s.sendPayload(ctx, tx, send, blobs, refused)
		return err
	})
	return sent, sqldb.Wrap(err, "sending for run %s", send.Lease.Run)
}

// checkSend returns in advance why a payload cannot be sent. For a small payload it only checks the project's
// storage. The transaction checks again.
func (s *Store) checkSend(ctx context.Context, send store.Send) (refused, err error) {
	run := send.Lease.Run
	if refused, err = storedbytes.CheckLimit(ctx, s.db, run.ProjectID); refused != nil || err != nil || len(send.Payload) <= store.MaxInlineInput {
		return refused, err
	}
	claims, err := s.openRuns.CurrentClaims(ctx, []store.Lease{send.Lease})
	if err != nil {
		return nil, err
	}
	if held, current := claims[send.Lease]; !current || send.Position > held.Length {
		return store.ErrFenced, nil
	}
	known, err := knownSend(ctx, s.db.Reader(), send)
	if err != nil {
		return nil, err
	}
	if len(known) > 0 {
		return store.ErrConflict, nil // known already, so the caller gets the first result
	}
	if err := checkSendLimits(ctx, s.db.Reader(), run, len(send.Payload)); err != nil {
		return refusalOf(err)
	}
	_, err = s.sendTarget(ctx, s.db.Reader(), send)
	return refusalOf(err)
}

// refusalOf separates errors that the caller of Send gets from failures.
func refusalOf(err error) (refused, failed error) {
	if errors.As(err, new(*store.TooManySendsError)) || errors.As(err, new(*store.TooMuchSentError)) || errors.Is(err, store.ErrNotFound) {
		return err, nil
	}
	return nil, err
}

// sendPayload creates the delivery of a payload, which is in the first of the blobs if there is one.
// refused is why a payload that was not sent before cannot be sent.
func (s *Store) sendPayload(ctx context.Context, tx *sqldb.Tx, send store.Send, blobs []store.Key, refused error) (sent store.Sent, err error) {
	run := send.Lease.Run
	held, err := openrun.LockClaim(ctx, tx, send.Lease)
	if errors.Is(err, store.ErrNotFound) {
		return sent, s.openRuns.ClaimError(ctx, tx, send.Lease)
	}
	if err != nil {
		return sent, err
	}
	if send.Position > held.Length {
		return sent, fmt.Errorf("the journal has no entry %d: %w", send.Position, store.ErrInvalid)
	}
	known, err := knownSend(ctx, tx, send)
	if err != nil || len(known) > 0 {
		return firstOf(known), err
	}
	if refused != nil {
		return sent, refused
	}
	if err := checkSendLimits(ctx, tx, run, len(send.Payload)); err != nil {
		return sent, err
	}
	to, err := s.sendTarget(ctx, tx, send)
	if err != nil {
		return sent, err
	}
	if len(blobs) > 0 {
		to.blob = &blobs[0].ID
		if err := s.blobs.MarkBlobs(ctx, tx, blobs); err != nil {
			return sent, err
		}
	}
	targets := []target{to}
	if err := s.insertDeliveries(ctx, tx, targets); err != nil {
		return sent, err
	}
	if to.closed == "" {
		tx.Hint(store.TopicDelivery, store.Key{ProjectID: run.ProjectID, ID: to.environment})
	}
	sent = store.Sent{DeliveryID: targets[0].id, Skipped: to.closed}
	_, err = tx.Exec(ctx, `INSERT INTO sends (project_id, run_id, position, delivery_id, skipped, bytes) VALUES ($1, $2, $3, $4, $5, $6)`,
		run.ProjectID, run.ID, send.Position, sent.DeliveryID, sqldb.Text(sent.Skipped), len(send.Payload))
	return sent, err
}

// knownSend returns the result of a payload that was sent before.
func knownSend(ctx context.Context, q sqldb.Queryer, s store.Send) ([]store.Sent, error) {
	return sqldb.Collect(ctx, q, func(row sqldb.Scanner) (sent store.Sent, err error) {
		return sent, row.Scan(&sent.DeliveryID, &sent.Skipped)
	}, `SELECT delivery_id, skipped FROM sends WHERE project_id = $1 AND run_id = $2 AND position = $3`,
		s.Lease.Run.ProjectID, s.Lease.Run.ID, s.Position)
}

// checkSendLimits returns why a run cannot send a payload of so many more bytes.
func checkSendLimits(ctx context.Context, q sqldb.Queryer, run store.Key, more int) error {
	var count, bytes int
	err := q.QueryRowContext(ctx, `SELECT count(*), CAST(COALESCE(SUM(bytes), 0) AS bigint) FROM sends WHERE project_id = $1 AND run_id = $2`,
		run.ProjectID, run.ID).Scan(&count, &bytes)
	switch {
	case err != nil:
		return err
	case count >= store.MaxSends:
		return &store.TooManySendsError{}
	case bytes+more > store.MaxSent:
		return &store.TooMuchSentError{}
	}
	return nil
}

func firstOf[T any](all []T) (first T) {
	if len(all) > 0 {
		first = all[0]
	}
	return first
}

// sendTarget returns the target of a run's payload; ErrNotFound if its agent has no such link.
func (s *Store) sendTarget(ctx context.Context, q sqldb.Queryer, send store.Send) (to target, err error) {
	run := send.Lease.Run
	var agent string
	to = target{kind: store.DeliverPayload, run: run, payload: send.Payload}
	if err := q.QueryRowContext(ctx, `SELECT environment_id, agent_name FROM open_runs WHERE project_id = $1 AND id = $2`,
		run.ProjectID, run.ID).Scan(&to.environment, &agent); err != nil {
		return to, sqldb.MapNoRows(err)
	}
	links, err := connectorrow.SendingLinks(ctx, q, run.ProjectID, to.environment, agent)
	if err != nil {
		return to, err
	}
	for _, l := range links {
		if l.Policy.Mode != send.Mode || send.Mode == store.LinkAgentTool && l.Policy.ActionName != send.Name || send.Mode == store.LinkMiddleware && l.ConnectorName != send.Name {
			continue
		}
		to.link, to.connector = l.ID, l.Connector
		from, err := runrow.OriginOf(ctx, s.db, q, run)
		if err != nil {
			return to, err
		}
		to.hops, to.traceparent = from.Hops+1, from.Traceparent
		open, err := s.setClosedReasons(ctx, q, []target{to})
		if err == nil && len(open) == 0 { // not in effect
			err = store.ErrNotFound
		}
		return firstOf(open), err
	}
	return to, fmt.Errorf("the agent has no such link: %w", store.ErrNotFound)
}

// forgetSends deletes the sends of ended runs.
func (s *Store) forgetSends(ctx context.Context, tx *sqldb.Tx, runs []store.Key) error {
	if len(runs) == 0 {
		return nil
	}
	var l sqldb.Args
	_, err := tx.Exec(ctx, `DELETE FROM sends WHERE `+s.db.KeyCondition(&l, "run_id", runs), l.Values...)
	return err
}

// Actions implements store.Sends.
func (s *Store) Actions(ctx context.Context, environment store.Key, agents []string) (all []store.Action, err error) {
	if len(agents) == 0 {
		return nil, nil
	}
	texts := make([]string, len(agents))
	for i, agent := range agents {
		texts[i] = sqldb.Text(agent)
	}
	links, err := connectorrow.SendingLinks(ctx, s.db.Reader(), environment.ProjectID, environment.ID, texts...)
	if err != nil {
		return nil, sqldb.Wrap(err, "reading the outbound links of agents")
	}
	named := map[string]map[string]bool{}
	for _, l := range links {
		of, name := named[l.Agent], l.Policy.ActionName
		if of == nil {
			of = map[string]bool{}
			named[l.Agent] = of
		}
		if l.Policy.Mode == store.LinkAgentTool && l.Effective && !of[name] && len(of) < store.MaxOutboundLinks {
			of[name] = true
			all = append(all, store.Action{AgentName: l.Agent, Name: name, Connector: l.ConnectorName})
		}
	}
	return all, nil
}

// addPayloads reads the payloads of claimed deliveries that are not results, except for blobs.
func (s *Store) addPayloads(ctx context.Context, claimed []store.ClaimedDelivery) error {
	ids := map[uuid.UUID][]uuid.UUID{}
	for _, d := range claimed {
		if d.Kind != store.DeliverResult {
			ids[d.Delivery.ProjectID] = append(ids[d.Delivery.ProjectID], d.Delivery.ID)
		}
	}
	for project, of := range ids {
		inputs, err := runrow.Inputs(ctx, s.db, s.db.Reader(), project, of)
		if err != nil {
			return err
		}
		for i, d := range claimed {
			if in, known := inputs[d.Delivery.ID]; known && d.Delivery.ProjectID == project && d.Kind != store.DeliverResult {
				claimed[i].Payload, claimed[i].PayloadBlob = in.Data, in.Blob
			}
		}
	}
	return nil
}
