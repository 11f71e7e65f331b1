// SPDX-License-Identifier: Apache-2.0

// Package replay replays connector runs: an event starts runs of the agents that are linked now, a
// delivery is sent again. The original is never changed. Test sends a test delivery.
package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// attempts is how often an event is accepted for a connector that keeps changing.
const attempts = 5

// Store is the part of a store that replays use.
type Store interface {
	store.Loads
	store.Replays
	// Route is a method of store.Routes.
	Route(ctx context.Context, connector store.Key) (store.Route, error)
	// Accept is a method of store.Ingest.
	Accept(ctx context.Context, events []store.Event) ([]store.Admission, error)
	// PutBlob, OpenBlob and DropBlob are methods of store.Blobs.
	PutBlob(ctx context.Context, key store.Key, r io.Reader) (int64, error)
	OpenBlob(ctx context.Context, key store.Key) (io.ReadCloser, error)
	DropBlob(ctx context.Context, key store.Key) error
	// DestinationsOf is a method of store.Destinations.
	DestinationsOf(ctx context.Context, projectID uuid.UUID, connectors []uuid.UUID) (map[uuid.UUID]store.Destination, error)
}

// Rules decide about what the store does not understand itself.
type Rules struct {
	// Evaluate evaluates concurrency keys.
	Evaluate store.Evaluator
	// RequiresFiles reports whether a connector with this Config requires files.
	RequiresFiles func(config json.RawMessage) (bool, error)
}

// ErrUnstorable means that the store cannot store a value, now or later.
var ErrUnstorable = errors.New("it cannot be stored")

// Reason is the machine-readable reason for a rejected replay.
type Reason string

// Reasons.
const (
	// Gone: the contents are no longer stored. InProgress: it has not ended, and does not wait for
	// an attempt.
	Gone       Reason = "gone"
	InProgress Reason = "in_progress"
	// Disabled, Retired and NoAgent: the connector accepts no events. Paused: it sends nothing at
	// the moment.
	Disabled Reason = "connector_disabled"
	Retired  Reason = "connector_retired"
	NoAgent  Reason = "no_agent"
	Paused   Reason = "connector_paused"
	// NotOutbound: the connector never sends.
	NotOutbound Reason = "not_outbound"
	// Changing: the connector keeps changing.
	Changing Reason = "conflict"
	// BacklogFull and StorageFull: the project has reached a limit.
	BacklogFull Reason = "backlog_full"
	StorageFull Reason = "project_storage_full"
)

// Refused is the reason why a connector run is not replayed.
type Refused struct {
	Reason Reason
	Detail string
}

// Error returns the detail.
func (r *Refused) Error() string { return r.Detail }

// Later reports whether a retry may succeed, because the project has reached a limit.
func (r *Refused) Later() bool {
	return r.Reason == BacklogFull || r.Reason == StorageFull
}

// One replays a connector run, at most once per request key: the verdict is Accepted, Repeated or
// KeyReused. For a delivery that waits for its next attempt, it makes that attempt due now, and the
// admission names the delivery itself. It returns a Refused if the connector run cannot be replayed.
func One(ctx context.Context, s Store, rules Rules, original store.ConnectorRun, key *store.Idempotency) (store.Admission, error) {
	connector := store.Key{ProjectID: original.ProjectID, ID: original.ConnectorID}
	if key != nil {
		earlier, err := s.KnownRequest(ctx, connector, *key)
		if err == nil || !errors.Is(err, store.ErrNotFound) {
			return earlier, err
		}
	}
	if original.EndedAt == nil {
		return makeDue(ctx, s, original, key)
	}
	load, err := s.ProjectLoad(ctx, original.ProjectID)
	if err != nil {
		return store.Admission{}, fmt.Errorf("measuring project %s: %w", original.ProjectID, err)
	}
	return replayRun(ctx, load, replayed{store: s, rules: rules, original: original, key: key})
}

// Test sends a test delivery to an outbound connector, at most once per request key: the verdict is
// Accepted, Repeated or KeyReused, and the admission names the delivery. It returns a Refused if
// the connector sends nothing, and store.ErrNotFound if it is not in effect.
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
	if err := checkSends(ctx, s, t.Connector); err != nil {
		return store.Admission{}, err
	}
	if r := overStored(load); r != nil {
		return store.Admission{}, r
	}
	return s.SendTest(ctx, t)
}

// Step replays an ended connector run as a step of a bulk replay, in a project with this load. Both
// are written, or neither. It returns a Refused if the connector run cannot be replayed, and
// store.ErrReplayMoved if another process has taken the step.
func Step(
	ctx context.Context, s Store, rules Rules, load store.ProjectLoad, original store.ConnectorRun, step store.ReplayStep,
) (store.Admission, error) {
	return replayRun(ctx, load, replayed{store: s, rules: rules, original: original, step: &step})
}

// replayRun replays an event or a delivery.
func replayRun(ctx context.Context, load store.ProjectLoad, r replayed) (store.Admission, error) {
	if r.original.Trigger == store.TriggerOutbound {
		return redeliver(ctx, load, r)
	}
	if refused := backlogRefusal(load, r.original.EnvironmentID); refused != nil {
		return store.Admission{}, refused
	}
	defer r.dropCopies(ctx)
	return r.acceptReplay(ctx)
}

// redeliver creates a delivery again.
func redeliver(ctx context.Context, load store.ProjectLoad, again replayed) (store.Admission, error) {
	s, original := again.store, again.original
	if r := overStored(load); r != nil {
		return store.Admission{}, r
	}
	if err := checkSends(ctx, s, store.Key{ProjectID: original.ProjectID, ID: original.ConnectorID}); err != nil {
		return store.Admission{}, err
	}
	a, err := s.Redeliver(ctx, store.Redelivery{Of: original.Key(), Idempotency: again.key, Step: again.step})
	if errors.Is(err, store.ErrGone) {
		return a, &Refused{Gone, "The payload is no longer stored, so it cannot be sent again."}
	}
	return a, err
}

// makeDue makes the next attempt of an open delivery due now. It stores nothing, so it needs no room.
func makeDue(ctx context.Context, s Store, original store.ConnectorRun, key *store.Idempotency) (store.Admission, error) {
	if original.Trigger != store.TriggerOutbound {
		return store.Admission{}, &Refused{InProgress, "It has not ended yet, and can be replayed once it has."}
	}
	if err := checkSends(ctx, s, store.Key{ProjectID: original.ProjectID, ID: original.ConnectorID}); err != nil {
		return store.Admission{}, err
	}
	a, err := s.RetryDeliveryNow(ctx, original.Key(), key)
	switch {
	case errors.Is(err, store.ErrConflict):
		return a, &Refused{InProgress, "An attempt of the delivery is under way: its next one can be hurried, or the delivery replayed, once that has ended."}
	case errors.Is(err, store.ErrNotFound):
		return a, &Refused{Changing, "The delivery has ended meanwhile: see what came of it, and replay it if it is to be sent once more."}
	}
	return a, err
}

// checkSends returns a Refused if an outbound connector sends nothing at the moment.
func checkSends(ctx context.Context, s Store, connector store.Key) error {
	route, err := s.Route(ctx, connector)
	if err != nil {
		return fmt.Errorf("reading connector %s: %w", connector, err)
	}
	if !route.Connector.Sends() {
		return &Refused{NotOutbound, fmt.Sprintf("The connector's mode is %s: only outbound connectors send.", route.Connector.Mode)}
	}
	if r := closedReason(route.Connector); r != nil {
		return r
	}
	states, err := s.DestinationsOf(ctx, connector.ProjectID, []uuid.UUID{connector.ID})
	if err != nil {
		return fmt.Errorf("reading the destination of connector %s: %w", connector, err)
	}
	if reason, paused := states[connector.ID].Paused(route.Connector.Ref.Generation); paused {
		return &Refused{Paused,
			"The connector is paused: " + reason + ". Set enabled to true by PATCH of the connector, or change the connector, to end the pause."}
	}
	return nil
}

// closedReason returns why a connector accepts and sends nothing; nil if it does.
func closedReason(c store.Connector) *Refused {
	switch {
	case c.Retired:
		return &Refused{Retired, "The connector was removed from the code of the project."}
	case !c.Enabled:
		return &Refused{Disabled, "The connector is disabled."}
	}
	return nil
}

// backlogRefusal returns why a project cannot have more runs in an environment; nil if it can.
func backlogRefusal(load store.ProjectLoad, environment uuid.UUID) *Refused {
	if r := overStored(load); r != nil {
		return r
	}
	limits, backlog := load.Limits, load.Backlog[environment]
	switch {
	case reached(backlog.Runs, limits.BacklogRuns):
		return &Refused{BacklogFull,
			fmt.Sprintf("The environment has %d open runs; the limit is %d. Retry when some have ended.", backlog.Runs, limits.BacklogRuns)}
	case reached(backlog.Input, limits.BacklogInput):
		return &Refused{BacklogFull, fmt.Sprintf("The open runs of the environment have %d bytes of input; the limit is %d. "+
			"Retry when some have ended.", backlog.Input, limits.BacklogInput)}
	}
	return nil
}

// overStored reports that the project's storage is full.
func overStored(load store.ProjectLoad) *Refused {
	if !reached(load.Stored, load.Limits.Storage) {
		return nil
	}
	return &Refused{StorageFull,
		fmt.Sprintf("The project has stored %d bytes of ended runs; the limit is %d.", load.Stored, load.Limits.Storage)}
}

// reached reports whether a limit is reached; 0 means no limit.
func reached(n, limit int64) bool { return limit > 0 && n >= limit }
