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
	// calm is for how long no delivery of a destination must have been refused until it is
	// said that they go out again: one that takes some and refuses others would else have its
	// Connector written each time that is looked.
	calm = 10 * time.Minute
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
	// Now is the clock of what is calm; nil means time.Now.
	Now func() time.Time

	known map[store.Key]trouble
	// refused is when deliveries of those that are known were last seen to be.
	refused map[store.Key]time.Time
}

// trouble is what a Connector tells of its destination.
type trouble struct {
	ref              store.ObjectRef
	failing, rejected bool
	pausedGeneration  int64
}

// only says that it is the refused deliveries alone.
func (t trouble) only() bool { return t.rejected && !t.failing && t.pausedGeneration == 0 }

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
	if d.Now == nil {
		d.Now = time.Now
	}
	now, refused := map[store.Key]trouble{}, map[store.Key]time.Time{}
	var after store.Key
	for {
		page, err := d.Store.TroubledDestinations(ctx, after, lookPage)
		if err != nil {
			return err
		}
		for _, t := range page {
			after = t.Connector
			now[after] = trouble{t.Ref, t.Failures >= store.BreakAfter, t.Rejected > 0, t.PausedGeneration}
			if now[after].rejected {
				refused[after] = d.Now()
			}
		}
		if len(page) < lookPage {
			break
		}
	}
	for key, was := range d.known {
		if _, still := now[key]; !still {
			if last := d.refused[key]; was.only() && d.Now().Sub(last) < calm {
				now[key], refused[key] = was, last
				continue
			}
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
	d.known, d.refused = now, refused
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
