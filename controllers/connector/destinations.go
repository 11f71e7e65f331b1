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
	// Calm is the one that the controller asks too.
	Calm *Calm
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

// Look hands over those whose Connectors do not tell what they are to tell.
func (d *Destinations) Look(ctx context.Context) error {
	seen := map[store.Key]bool{}
	var after store.Key
	for {
		page, err := d.Store.TroubledDestinations(ctx, after, lookPage)
		if err != nil {
			return err
		}
		for _, t := range page {
			after = t.Connector
			seen[after] = true
			if err := d.tell(ctx, t.Ref, t.Destination); err != nil {
				return err
			}
		}
		if len(page) < lookPage {
			break
		}
	}
	for key, ref := range d.Calm.others(seen) {
		if err := d.tell(ctx, ref, store.Destination{Connector: key}); err != nil {
			return err
		}
	}
	return nil
}

func (d *Destinations) tell(ctx context.Context, ref store.ObjectRef, seen store.Destination) error {
	if _, changed := d.Calm.tell(ref, seen); changed {
		return d.hand(ctx, ref)
	}
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
