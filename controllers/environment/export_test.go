// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/store"
)

// mostWakes is more than the number of environments that a spec queues.
const mostWakes = 100

// Wakes returns the environments that the reconciler queues. Without a manager, no controller takes
// them.
func (r *Reconciler) Wakes() <-chan event.GenericEvent {
	r.wakeUp = make(chan event.GenericEvent, mostWakes)
	return r.wakeUp
}

// Moved returns the environments whose branch moved.
func (h *Heads) Moved() <-chan event.GenericEvent {
	return h.changed
}

// Told returns the projects with a reported push.
func (p *Pushes) Told() <-chan event.GenericEvent {
	return p.told
}

// LookAtHinted checks all pools, as after a lost notification.
func (s *Scaler) LookAtHinted(ctx context.Context) error {
	s.Pools.handleHint(store.Hint{Topic: store.TopicQueued})
	var problems []error
	for _, key := range s.Pools.takeDue(s.Clock.Now()) {
		problems = append(problems, s.Look(ctx, key))
	}
	return errors.Join(problems...)
}

// Changed returns the environments whose desired replicas changed.
func (p *Pools) Changed() <-chan event.GenericEvent { return p.changed }

// Scale returns the number of pools that scale.
func (p *Pools) Scale() int { return len(p.of) }

// PollingInterval is the interval of checks without notifications.
const PollingInterval = pollingInterval

// PoolsAtOnce and MaxRolloutTime are the limits of rollouts.
const (
	PoolsAtOnce    = poolsAtOnce
	MaxRolloutTime = maxRolloutTime
)
