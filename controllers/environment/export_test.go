// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/store"
)

// mostWakes is more than a spec wakes.
const mostWakes = 100

// Wakes are the environments that the reconciler wakes, which without a manager
// nobody takes up.
func (r *Reconciler) Wakes() <-chan event.GenericEvent {
	r.wakeUp = make(chan event.GenericEvent, mostWakes)
	return r.wakeUp
}

// Moved are the environments whose branch moved.
func (h *Heads) Moved() <-chan event.GenericEvent {
	return h.changed
}

// Told are the projects of which a push was told.
func (p *Pushes) Told() <-chan event.GenericEvent {
	return p.told
}

// LookAtHinted looks at all pools, as after a hint that hints were lost.
func (s *Scaler) LookAtHinted(ctx context.Context) error {
	s.Pools.hinted(store.Hint{Topic: store.TopicQueued})
	var problems []error
	for _, key := range s.Pools.take(s.Clock.Now()) {
		problems = append(problems, s.Look(ctx, key))
	}
	return errors.Join(problems...)
}

// Changed are the environments whose pools are to have other replicas.
func (p *Pools) Changed() <-chan event.GenericEvent { return p.changed }

// Scale says how many pools scale.
func (p *Pools) Scale() int { return len(p.of) }

// PollingInterval is a time of scaling.
const PollingInterval = pollingInterval

// PoolsAtOnce and TurnTime are the bounds of turns.
const (
	PoolsAtOnce = poolsAtOnce
	TurnTime    = turnTime
)
