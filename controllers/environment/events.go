// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// Reasons of the events of a pool that scales.
const (
	reasonScaledUp   = "ScaledUp"
	reasonScaledDown = "ScaledDown"
)

// announceScaled sends an event where a pool got another number of replicas.
func (r *Reconciler) announceScaled(e *v1alpha1.Environment, from int32, to scaling) {
	if from == to.replicas {
		return
	}
	reason, note := scaledEvent(from, to)
	r.Event(e, corev1.EventTypeNormal, reason, note)
}

// scaledEvent is what is told of another number of replicas.
func scaledEvent(from int32, to scaling) (reason, note string) {
	d, reason := to.demand, reasonScaledUp
	if to.replicas < from {
		reason = reasonScaledDown
	}
	note = fmt.Sprintf("scaled from %d to %d runners: ", from, to.replicas)
	switch {
	case to.replicas < from && to.bounded():
		return reason, note + "spec.runner allows no more"
	case to.replicas == 0:
		return reason, note + fmt.Sprintf("no run for %s", to.window)
	case to.replicas < from:
		return reason, note + fmt.Sprintf("no more were needed for %s", to.window)
	case d.Waiting.All == 0:
		return reason, note + "as spec.runner says"
	}
	return reason, note + fmt.Sprintf("%d or more runs wait for a free place, the first for %s; %d are under way",
		d.Waiting.All, d.Oldest.Round(time.Second), d.Running.All)
}
