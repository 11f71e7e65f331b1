// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// replayed is an event that is being replayed.
type replayed struct {
	store    Store
	rules    Rules
	original store.ConnectorRun
	key      *store.Idempotency
	// step is the step of the bulk replay; nil without one.
	step *store.ReplayStep
	// blobs are copies of the original's blobs, which are unmarked until the event is accepted.
	blobs []store.Key
}

// acceptReplay accepts the event with the connector's current state.
func (r *replayed) acceptReplay(ctx context.Context) (store.Admission, error) {
	var in *store.EventInput
	for range attempts {
		route, err := r.store.Route(ctx, store.Key{ProjectID: r.original.ProjectID, ID: r.original.ConnectorID})
		if err != nil {
			return store.Admission{}, fmt.Errorf("reading connector %s: %w", r.original.ConnectorID, err)
		}
		if refused := closedReason(route.Connector); refused != nil {
			return store.Admission{}, refused
		}
		if len(route.Links) == 0 {
			return store.Admission{}, &Refused{NoAgent, "No agent is linked to the connector."}
		}
		if in == nil {
			copied, err := r.copyInput(ctx)
			if err != nil {
				return store.Admission{}, err
			}
			in = &copied
		}
		event, err := r.newEvent(route, *in)
		if err != nil {
			return store.Admission{}, err
		}
		admissions, err := r.store.Accept(ctx, []store.Event{event})
		switch {
		case err == nil && admissions[0].Err != nil:
			return store.Admission{}, fmt.Errorf("replaying connector run %s: %w: %w", r.original.ID, ErrUnstorable, admissions[0].Err)
		case err != nil:
			return store.Admission{}, fmt.Errorf("replaying connector run %s: %w", r.original.ID, err)
		case admissions[0].Verdict == store.Accepted:
			r.blobs = nil
			return admissions[0], nil
		case admissions[0].Verdict != store.Outdated:
			return admissions[0], nil
		}
	}
	return store.Admission{}, &Refused{Changing, "The connector or its links change at the moment; try again."}
}

// copyInput returns the original's input, with copies of its blobs.
func (r *replayed) copyInput(ctx context.Context) (store.EventInput, error) {
	in, err := r.store.EventInput(ctx, r.original.Key())
	if err == nil && in.Data == nil && in.Blob == nil {
		return in, &Refused{Gone, "The event has no input: it was skipped before one was made."}
	}
	if err == nil && in.Blob != nil {
		in.Blob, err = r.copyBlob(ctx, *in.Blob)
	}
	in.Files = slices.Clone(in.Files)
	for i := range in.Files {
		if err == nil && in.Files[i].Blob != nil {
			in.Files[i].Blob, err = r.copyBlob(ctx, *in.Files[i].Blob)
		}
	}
	if errors.Is(err, store.ErrNotFound) {
		err = &Refused{Gone, "The input of the event is no longer stored, so the event cannot be replayed."}
	}
	return in, err
}

// copyBlob copies a blob, because each belongs to one event.
func (r *replayed) copyBlob(ctx context.Context, of uuid.UUID) (*uuid.UUID, error) {
	body, err := r.store.OpenBlob(ctx, store.Key{ProjectID: r.original.ProjectID, ID: of})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("generating an ID: %w", err)
	}
	key := store.Key{ProjectID: r.original.ProjectID, ID: id}
	r.blobs = append(r.blobs, key)
	_, err = r.store.PutBlob(ctx, key, body)
	return &id, err
}

// dropTimeout limits deleting the copies for an event that was not accepted.
const dropTimeout = 5 * time.Second

// dropCopies deletes unneeded copies, even if the caller has gone. The sweep deletes the rest.
func (r *replayed) dropCopies(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	for _, key := range r.blobs {
		_ = r.store.DropBlob(ctx, key)
	}
}

// newEvent returns an event with a run for each agent that is linked now.
func (r *replayed) newEvent(route store.Route, in store.EventInput) (store.Event, error) {
	c, original := route.Connector, r.original.ID
	event := store.Event{
		ProjectID: c.ProjectID, EnvironmentID: c.EnvironmentID, ConnectorID: c.ID, ConnectorVersion: c.Version,
		Trigger: r.original.Trigger, Class: store.ClassDeferred, ContentType: in.ContentType, Input: in.Data, InputBlob: in.Blob,
		Files: in.Files, Headers: in.Headers, Hops: in.Hops, ReplayOf: &original, Idempotency: r.key, Step: r.step,
	}
	var err error
	if event.ConnectorRunID, err = uuid.NewV7(); err != nil {
		return event, fmt.Errorf("generating an ID: %w", err)
	}
	filesRequired, err := r.rules.RequiresFiles(c.Config)
	if err != nil {
		return event, fmt.Errorf("reading connector %s: %w", c.ID, err)
	}
	err = route.AddRuns(&event, filesRequired, r.rules.Evaluate(in.Data))
	return event, err
}
