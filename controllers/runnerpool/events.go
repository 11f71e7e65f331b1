// SPDX-License-Identifier: Apache-2.0

package runnerpool

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// Reasons of events about scaling.
const (
	reasonScaledUp   = "ScaledUp"
	reasonScaledDown = "ScaledDown"
)

// announceScaled sends an event if the number of replicas changed.
func (r *Reconciler) announceScaled(e *v1alpha1.Environment, from int32, to scaling) {
	if from == to.replicas {
		return
	}
	reason, note := scaledEvent(from, to)
	r.Event(e, corev1.EventTypeNormal, reason, note)
}

// scaledEvent returns the event for a new number of replicas.
func scaledEvent(from int32, to scaling) (reason, note string) {
	d, reason := to.demand, reasonScaledUp
	if to.replicas < from {
		reason = reasonScaledDown
	}
	note = fmt.Sprintf("scaled from %d to %d runners: ", from, to.replicas)
	switch {
	case to.replicas < from && to.isBounded():
		return reason, note + "the maximum of spec.runner is lower"
	case to.replicas == 0:
		return reason, note + fmt.Sprintf("no run for %s", to.window)
	case to.replicas < from:
		return reason, note + fmt.Sprintf("fewer were needed for %s", to.window)
	case d.Waiting.All == 0:
		return reason, note + "set by spec.runner"
	}
	return reason, note + fmt.Sprintf("%d or more runs wait for a free slot, the oldest for %s; %d are running",
		d.Waiting.All, d.Oldest.Round(time.Second), d.Running.All)
}
