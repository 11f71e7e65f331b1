// SPDX-License-Identifier: Apache-2.0

package commitstatus

import (
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
)

// wantedState returns the state of a deployment's commit for the provider and since when it holds. It
// returns "" if there is no state to report yet.
func wantedState(d *v1alpha1.Deployment) (state State, since time.Time) {
	at := d.Status.EndedAt
	switch d.Status.Phase {
	case v1alpha1.DeploymentBuilding:
		state, at = Pending, d.Status.StartedAt
	case v1alpha1.DeploymentDeployed:
		state = Success
	case v1alpha1.DeploymentFailed:
		state = Failure
	case v1alpha1.DeploymentCancelled:
		state = Error
	}
	if d.Status.FailureReason == v1alpha1.FailureStoreRestored { // the failure says nothing about the commit
		if state = ""; reportedState(d) == Pending { // no other controller ends that state
			state = Error
		}
	}
	if at == nil || !isCommit(d.Status.Commit) || d.DeletionTimestamp != nil {
		return "", time.Time{}
	}
	return state, at.Time
}

// reportedState returns the last state that the provider accepted for a deployment, or "".
func reportedState(d *v1alpha1.Deployment) State {
	if last := d.Status.CommitStatus; last != nil && last.Reason == v1alpha1.CommitStatusReported {
		return State(last.State)
	}
	return ""
}

// isPending reports whether the last state that the provider accepted is pending.
func isPending(d *v1alpha1.Deployment) bool {
	last := d.Status.CommitStatus
	return last != nil && last.State == string(Pending)
}

// isSettled reports whether the provider already has the final state of a deployment, whatever other
// deployments of the commit exist: its own state, or the state of another deployment that it reported
// when it was cancelled.
func isSettled(d *v1alpha1.Deployment, state State) bool {
	last := reportedState(d)
	return last == state || state == Error && (last == Success || last == Failure)
}

// isCommit reports whether a text is a complete commit hash, which is safe in a URL.
func isCommit(text string) bool {
	return (len(text) == 40 || len(text) == 64) && strings.Trim(text, "0123456789abcdef") == ""
}

// decidingDeployment returns the deployment that determines the state of d's commit, or nil if a newer deployment of
// the commit exists. Usually this is d. If d was cancelled, it is the newest deployment of the commit with a
// result, because that result stays valid. Without a result, it is d if any of the deployments was built.
// Otherwise it is nil, because the provider has no state to correct.
func decidingDeployment(d *v1alpha1.Deployment, all []v1alpha1.Deployment) *v1alpha1.Deployment {
	var known *v1alpha1.Deployment
	built := d.Status.StartedAt != nil // the deployment may be deleted
	for i := range all {
		other := &all[i]
		if other.Status.Commit != d.Status.Commit {
			continue
		}
		if base.OldestFirst(d, other) < 0 {
			return nil
		}
		built = built || other.Status.StartedAt != nil
		state, _ := wantedState(other)
		if state != "" && state != Error && (known == nil || base.OldestFirst(known, other) < 0) {
			known = other
		}
	}
	switch {
	case d.Status.Phase != v1alpha1.DeploymentCancelled:
		return d
	case known == nil && built:
		return d
	}
	return known
}
