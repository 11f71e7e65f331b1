// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// Reasons of events about scaling and followed branches. If a branch cannot be read, the event has the
// reason of the condition.
const (
	reasonScaledUp     = "ScaledUp"
	reasonScaledDown   = "ScaledDown"
	reasonCommitSeen   = "CommitSeen"
	reasonFetchedAgain = "FetchedAgain"
)

// seen is the state of the followed branch in the status.
type seen struct {
	commit string
	branch metav1.Condition
}

func seenState(e *v1alpha1.Environment) seen {
	return seen{e.Status.SeenCommit, ptr.Deref(e.Status.Condition(v1alpha1.ConditionSourceSeen), metav1.Condition{})}
}

// announceSeen sends an event if the branch moved, cannot be read for another reason, or can be read
// again.
func (r *Reconciler) announceSeen(e *v1alpha1.Environment, was seen) {
	is := seenState(e)
	if is.commit != "" && is.commit != was.commit {
		r.Event(e, corev1.EventTypeNormal, reasonCommitSeen, is.branch.Message)
	}
	switch {
	case is.branch.Status == metav1.ConditionFalse && is.branch.Reason != was.branch.Reason:
		r.Event(e, corev1.EventTypeWarning, is.branch.Reason, is.branch.Message)
	case is.branch.Status == metav1.ConditionTrue && was.branch.Status == metav1.ConditionFalse:
		r.Event(e, corev1.EventTypeNormal, reasonFetchedAgain, is.branch.Message)
	}
}

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
	case to.replicas < from && to.bounded():
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
