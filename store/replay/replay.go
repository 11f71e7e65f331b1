// SPDX-License-Identifier: Apache-2.0

// Package replay lets what a connector received or sent happen again: an event starts runs
// of the agents that are linked now, a delivery is sent once more. The original is read,
// and never changed. Test sends what was never there.
package replay

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// attempts are how often an event is made for a connector that changes meanwhile.
const attempts = 5

// Store is what replaying needs of a store.
type Store interface {
	store.Loads
	store.Replays
	// Route is store.Routes'.
	Route(ctx context.Context, connector store.Key) (store.Route, error)
	// Accept is store.Ingest's.
	Accept(ctx context.Context, events []store.Event) ([]store.Admission, error)
	// PutBlob, OpenBlob and DropBlob are store.Blobs'.
	PutBlob(ctx context.Context, key store.Key, r io.Reader) (int64, error)
	OpenBlob(ctx context.Context, key store.Key) (io.ReadCloser, error)
	DropBlob(ctx context.Context, key store.Key) error
	// DestinationsOf is store.Deliveries'.
	DestinationsOf(ctx context.Context, projectID uuid.UUID, connectors []uuid.UUID) (map[uuid.UUID]store.Destination, error)
}

// ErrUnstorable says that the store does not take something as it is, today or ever.
var ErrUnstorable = errors.New("it cannot be stored")

// Reason is a word for why something is not replayed.
type Reason string

// Reasons.
const (
	// Gone: what it takes is not stored any more. InProgress: it has not ended, and does not
	// wait for an attempt.
	Gone       Reason = "gone"
	InProgress Reason = "in_progress"
	// Disabled, Retired and NoAgent: the connector takes no events; Paused: it sends nothing
	// for the time being.
	Disabled Reason = "connector_disabled"
	Retired  Reason = "connector_retired"
	NoAgent  Reason = "no_agent"
	Paused   Reason = "connector_paused"
	// NotOutbound: the connector sends nothing at any time.
	NotOutbound Reason = "not_outbound"
	// Changing: the connector changes again and again.
	Changing Reason = "conflict"
	// BacklogFull and StorageFull: the project has as much as it may.
	BacklogFull Reason = "backlog_full"
	StorageFull Reason = "project_storage_full"
)

// Refused says why something is not replayed.
type Refused struct {
	Reason Reason
	Detail string
}

// Error is the detail.
func (r *Refused) Error() string { return r.Detail }

// Later says that the same may be taken in a while: the project has as much as it may have.
func (r *Refused) Later() bool {
	return r.Reason == BacklogFull || r.Reason == StorageFull
}

// One replays a connector run, as the key of a request says at most once: the verdict is
// Accepted, Repeated or KeyReused. Of a delivery that waits for its next attempt it makes that
// one due now, and the admission names the delivery itself. evaluate tells concurrency keys. It
// answers a Refused where it cannot be.
func One(ctx context.Context, s Store, evaluate store.Evaluator, original store.ConnectorRun, key *store.Idempotency) (store.Admission, error) {
	connector := store.Key{ProjectID: original.ProjectID, ID: original.ConnectorID}
	if key != nil {
		earlier, err := s.KnownRequest(ctx, connector, *key)
		if err == nil || !errors.Is(err, store.ErrNotFound) {
			return earlier, err
		}
	}
	if original.EndedAt == nil {
		return hurry(ctx, s, original, key)
	}
	load, err := s.ProjectLoad(ctx, original.ProjectID)
	if err != nil {
		return store.Admission{}, fmt.Errorf("measuring project %s: %w", original.ProjectID, err)
	}
	return again(ctx, load, replayed{store: s, evaluate: evaluate, original: original, key: key})
}

// Test sends an example to where an outbound connector sends, as the key of the request says at
// most once: the verdict is Accepted, Repeated or KeyReused, and the admission names the delivery.
// It answers a Refused where the connector sends nothing, and store.ErrNotFound of one that is not
// in effect.
func Test(ctx context.Context, s Store, t store.TestDelivery) (store.Admission, error) {
	if t.Idempotency != nil {
		earlier, err := s.KnownRequest(ctx, t.Connector, *t.Idempotency)
		if err == nil || !errors.Is(err, store.ErrNotFound) {
			return earlier, err
		}
	}
	load, err := s.ProjectLoad(ctx, t.Connector.ProjectID)
	if err != nil {
		return store.Admission{}, fmt.Errorf("measuring project %s: %w", t.Connector.ProjectID, err)
	}
	if err := sends(ctx, s, t.Connector); err != nil {
		return store.Admission{}, err
	}
	if r := overStored(load); r != nil {
		return store.Admission{}, r
	}
	return s.SendTest(ctx, t)
}

// Step replays a connector run that has ended as a step of a replay of many, in a project
// with that load: both are written, or nothing is. It answers a Refused where it cannot be, and
// store.ErrReplayMoved where somebody else has taken the step.
func Step(
	ctx context.Context, s Store, evaluate store.Evaluator, load store.ProjectLoad, original store.ConnectorRun, step store.ReplayStep,
) (store.Admission, error) {
	return again(ctx, load, replayed{store: s, evaluate: evaluate, original: original, step: &step})
}

// again makes an event or a delivery happen again.
func again(ctx context.Context, load store.ProjectLoad, r replayed) (store.Admission, error) {
	if r.original.Trigger == store.TriggerOutbound {
		return redeliver(ctx, load, r)
	}
	if refused := full(load, r.original.EnvironmentID); refused != nil {
		return store.Admission{}, refused
	}
	defer r.dropCopies(ctx)
	return r.accept(ctx)
}

// redeliver makes a delivery once more.
func redeliver(ctx context.Context, load store.ProjectLoad, again replayed) (store.Admission, error) {
	s, original := again.store, again.original
	if r := overStored(load); r != nil {
		return store.Admission{}, r
	}
	if err := sends(ctx, s, store.Key{ProjectID: original.ProjectID, ID: original.ConnectorID}); err != nil {
		return store.Admission{}, err
	}
	a, err := s.Redeliver(ctx, store.Redelivery{Of: original.Key(), Idempotency: again.key, Step: again.step})
	if errors.Is(err, store.ErrGone) {
		return a, &Refused{Gone, "What was sent is not stored any more, and so cannot be sent again."}
	}
	return a, err
}

// hurry makes the attempt due now for which a delivery waits that has not ended. It stores
// nothing, and so asks for no room.
func hurry(ctx context.Context, s Store, original store.ConnectorRun, key *store.Idempotency) (store.Admission, error) {
	if original.Trigger != store.TriggerOutbound {
		return store.Admission{}, &Refused{InProgress, "It has not ended yet, and can be replayed once it has."}
	}
	if err := sends(ctx, s, store.Key{ProjectID: original.ProjectID, ID: original.ConnectorID}); err != nil {
		return store.Admission{}, err
	}
	a, err := s.Hurry(ctx, original.Key(), key)
	switch {
	case errors.Is(err, store.ErrConflict):
		return a, &Refused{InProgress, "An attempt of the delivery is under way: its next one can be hurried, or the delivery replayed, once that has ended."}
	case errors.Is(err, store.ErrNotFound):
		return a, &Refused{Changing, "The delivery has ended meanwhile: see what came of it, and replay it if it is to be sent once more."}
	}
	return a, err
}

// sends answers a Refused where an outbound connector sends nothing at the moment.
func sends(ctx context.Context, s Store, connector store.Key) error {
	route, err := s.Route(ctx, connector)
	if err != nil {
		return fmt.Errorf("reading connector %s: %w", connector, err)
	}
	if mode := route.Connector.Mode; mode != "outbound" {
		return &Refused{NotOutbound, fmt.Sprintf("The connector's mode is %s: only outbound connectors send.", mode)}
	}
	if r := closed(route.Connector); r != nil {
		return r
	}
	states, err := s.DestinationsOf(ctx, connector.ProjectID, []uuid.UUID{connector.ID})
	if err != nil {
		return fmt.Errorf("reading how deliveries of connector %s go: %w", connector, err)
	}
	if reason, paused := states[connector.ID].Paused(route.Connector.Ref.Generation); paused {
		return &Refused{Paused,
			"The connector is paused: " + reason + ". Set enabled to true by PATCH of the connector, or change the connector, to end the pause."}
	}
	return nil
}

// closed says why a connector takes and sends nothing; nil where it does.
func closed(c store.Connector) *Refused {
	switch {
	case c.Retired:
		return &Refused{Retired, "The connector was removed from the code of the project."}
	case !c.Enabled:
		return &Refused{Disabled, "The connector is disabled."}
	}
	return nil
}

// full says why a project cannot have more runs in an environment; nil where it can.
func full(load store.ProjectLoad, environment uuid.UUID) *Refused {
	if r := overStored(load); r != nil {
		return r
	}
	limits, backlog := load.Limits, load.Backlog[environment]
	switch {
	case reached(backlog.Runs, limits.BacklogRuns):
		return &Refused{BacklogFull,
			fmt.Sprintf("The environment has %d open runs and may have %d. Try again when some have ended.", backlog.Runs, limits.BacklogRuns)}
	case reached(backlog.Input, limits.BacklogInput):
		return &Refused{BacklogFull, fmt.Sprintf("The open runs of the environment have %d bytes of input and may have %d. "+
			"Try again when some have ended.", backlog.Input, limits.BacklogInput)}
	}
	return nil
}

// overStored says that a project has stored as much as it may.
func overStored(load store.ProjectLoad) *Refused {
	if !reached(load.Stored, load.Limits.Storage) {
		return nil
	}
	return &Refused{StorageFull,
		fmt.Sprintf("The project has stored %d bytes of ended runs and may have %d.", load.Stored, load.Limits.Storage)}
}

// reached says whether there is as much as may be; 0 is any number.
func reached(n, limit int64) bool { return limit > 0 && n >= limit }
