// SPDX-License-Identifier: Apache-2.0

package gitfollower

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// Reasons of events about followed branches. If a branch cannot be read, the event has the reason of the
// condition.
const (
	reasonCommitSeen   = "CommitSeen"
	reasonFetchedAgain = "FetchedAgain"
)

// headState is the state of the followed branch in the status.
type headState struct {
	commit string
	branch metav1.Condition
}

func headStateOf(e *v1alpha1.Environment) headState {
	return headState{e.Status.SeenCommit, ptr.Deref(e.Status.Condition(v1alpha1.ConditionSourceSeen), metav1.Condition{})}
}

// announceHead sends an event if the branch moved, cannot be read for another reason, or can be read
// again.
func (f *Follower) announceHead(e *v1alpha1.Environment, was headState) {
	is := headStateOf(e)
	if is.commit != "" && is.commit != was.commit {
		f.Event(e, corev1.EventTypeNormal, reasonCommitSeen, is.branch.Message)
	}
	switch {
	case is.branch.Status == metav1.ConditionFalse && is.branch.Reason != was.branch.Reason:
		f.Event(e, corev1.EventTypeWarning, is.branch.Reason, is.branch.Message)
	case is.branch.Status == metav1.ConditionTrue && was.branch.Status == metav1.ConditionFalse:
		f.Event(e, corev1.EventTypeNormal, reasonFetchedAgain, is.branch.Message)
	}
}
