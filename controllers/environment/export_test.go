// SPDX-License-Identifier: Apache-2.0

package environment

import "sigs.k8s.io/controller-runtime/pkg/event"

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

// PoolsAtOnce and TurnTime are the bounds of turns.
const (
	PoolsAtOnce = poolsAtOnce
	TurnTime    = turnTime
)
