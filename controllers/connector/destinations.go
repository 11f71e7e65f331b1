// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// lookEvery is how often it is looked for destinations that fail or are paused: so
	// late a Connector may tell it.
	lookEvery = 30 * time.Second
	// lookPage is how many of them one statement reads.
	lookPage = 500
)

// Destinations hands connectors to their controller whose deliveries have begun to fail, are
// paused, or go out again.
type Destinations struct {
	Store interface {
		TroubledDestinations(ctx context.Context, after store.Key, limit int) ([]store.TroubledDestination, error)
	}
	// Changed takes the connectors.
	Changed    chan<- event.GenericEvent
	Namespaces namespaces.Set
	Logger     *slog.Logger

	known map[store.Key]trouble
}

// trouble is what a Connector tells of its destination.
type trouble struct {
	ref              store.ObjectRef
	failing          bool
	rejected         string
	pausedGeneration int64
}

// NeedLeaderElection says that only the leader looks.
func (d *Destinations) NeedLeaderElection() bool { return true }

// Start looks until ctx ends.
func (d *Destinations) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := d.Look(ctx); err != nil && ctx.Err() == nil {
			d.Logger.ErrorContext(ctx, "looking for destinations that fail; Connectors tell it later", "error", err)
		}
	}, lookEvery)
	return nil
}

// Look hands over what has changed since it was looked before.
func (d *Destinations) Look(ctx context.Context) error {
	now := map[store.Key]trouble{}
	var after store.Key
	for {
		page, err := d.Store.TroubledDestinations(ctx, after, lookPage)
		if err != nil {
			return err
		}
		for _, t := range page {
			after = t.Connector
			now[after] = trouble{t.Ref, t.Failures >= store.BreakAfter, t.RejectedReason, t.PausedGeneration}
		}
		if len(page) < lookPage {
			break
		}
	}
	for key, was := range d.known {
		if _, still := now[key]; !still {
			if err := d.hand(ctx, was.ref); err != nil {
				return err
			}
		}
	}
	for key, is := range now {
		if d.known[key] != is {
			if err := d.hand(ctx, is.ref); err != nil {
				return err
			}
		}
	}
	d.known = now
	return nil
}

func (d *Destinations) hand(ctx context.Context, ref store.ObjectRef) error {
	if !d.Namespaces.Has(ref.Namespace) {
		return nil // another manager's
	}
	c := &v1alpha1.Connector{}
	c.Namespace, c.Name = ref.Namespace, ref.Name
	select {
	case d.Changed <- event.GenericEvent{Object: c}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
