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

// Reasons of the events of a pool that scales, and of a branch that is followed. That one cannot
// be seen has the condition's reason.
const (
	reasonScaledUp     = "ScaledUp"
	reasonScaledDown   = "ScaledDown"
	reasonCommitSeen   = "CommitSeen"
	reasonFetchedAgain = "FetchedAgain"
)

// seen is what an environment shows of the branch that it follows.
type seen struct {
	commit string
	branch metav1.Condition
}

func seenBy(e *v1alpha1.Environment) seen {
	return seen{e.Status.SeenCommit, ptr.Deref(e.Status.Condition(v1alpha1.ConditionSourceSeen), metav1.Condition{})}
}

// announceSeen sends an event where the branch was seen at another commit, cannot be seen for
// another reason, or is seen again.
func (r *Reconciler) announceSeen(e *v1alpha1.Environment, was seen) {
	is := seenBy(e)
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
