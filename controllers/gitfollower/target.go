// SPDX-License-Identifier: Apache-2.0

package gitfollower

import (
	"cmp"
	"slices"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/store"
)

// target is the version that an environment should have: a commit and a folder. The URL of the
// repository does not matter, because the hash of a commit depends only on its content.
type target struct{ commit, path string }

// matches reports whether a deployment is a deployment of the target. A deployment that is not built yet
// uses the current folder. A deployment that ended without a known folder does not match.
func (t target) matches(d *v1alpha1.Deployment) bool {
	switch built := d.Status.Path; {
	case built != nil && *built != t.path, built == nil && d.Status.Phase.Terminal():
		return false
	}
	git := d.Spec.Source.Git
	return d.Status.Commit == t.commit || d.Status.Commit == "" && git != nil && string(git.Commit) == t.commit
}

// matchesLive reports whether the live deployment of the store is a deployment of the target. nil means that
// nothing is live. The object of the live deployment may be missing.
func (t target) matchesLive(live *store.Deployment) bool {
	return live != nil && live.ResolvedCommit == t.commit && live.Path != nil && *live.Path == t.path
}

// copyStored copies the store's state into a deployment's status, which may be stale or lost: phase,
// commit and folder. A cancelled deployment may begin again for another object, and the store has no
// state for another source.
func copyStored(d *v1alpha1.Deployment, row store.Deployment) {
	fingerprint, err := d.Spec.Fingerprint()
	if err != nil || fingerprint != row.Fingerprint || row.Status == store.DeploymentCancelled && row.Ref.ObjectUID != string(d.UID) {
		return
	}
	d.Status.Phase = v1alpha1.DeploymentPhaseOf(string(row.Status))
	d.Status.Commit = cmp.Or(row.ResolvedCommit, row.Commit)
	if row.Path != nil {
		d.Status.Path = row.Path
	}
}

// deploymentOf returns the Deployment that brings an environment to a commit without another build, or nil.
// The Deployment is in progress or live. With activate, it was live before and can be activated again. Of
// several Deployments in progress, only the newest counts, because it goes live last. It also wins over a live
// Deployment, but not over an activation. live is the live deployment of the store, or "", because statuses are
// stale.
func deploymentOf(to target, live string, all []v1alpha1.Deployment) (there *v1alpha1.Deployment, activate bool) {
	next, stay := newestOpen(to, all), staysLive(to, all)
	if next != nil && to.matches(next) {
		return next, false
	}
	for i := range all {
		d := &all[i]
		if d.Status.Phase != v1alpha1.DeploymentDeployed || d.DeletionTimestamp != nil || !to.matches(d) || isBundleGone(d) {
			continue
		}
		if d.Status.Live && (live == "" || live == d.Name) && stay {
			return d, false
		}
		// Users activate their own deployments.
		if d.Labels[base.LabelManagedBy] == base.ManagedBy && (there == nil || oldestFirst(there, d) < 0) {
			there, activate = d, true
		}
	}
	return there, activate
}

// isBundleGone reports whether a deployment cannot be activated, because the response to its last activation
// request says that its bundle was deleted.
func isBundleGone(d *v1alpha1.Deployment) bool {
	a := d.Status.Activation
	return a != nil && a.Result == v1alpha1.ActivationBundleGone && !d.Status.Live && !d.ActivationPending()
}

// staysLive reports whether the live deployment of a commit stays live: no deployment is in progress,
// and no deployment of another commit has an activation request.
func staysLive(to target, all []v1alpha1.Deployment) bool {
	return newestOpen(to, all) == nil && !slices.ContainsFunc(all, func(d v1alpha1.Deployment) bool {
		return d.Status.Phase == v1alpha1.DeploymentDeployed && d.DeletionTimestamp == nil && d.ActivationPending() && !to.matches(&d)
	})
}

// newestOpen returns the deployment in progress that goes live last, or nil. If two were created in the
// same second, their order is unknown, and the one of another commit counts.
func newestOpen(to target, all []v1alpha1.Deployment) (newest *v1alpha1.Deployment) {
	for i := range all {
		d := &all[i]
		if !isOpen(d) {
			continue
		}
		if newest == nil || oldestFirst(newest, d) < 0 || oldestFirst(newest, d) == 0 && to.matches(newest) {
			newest = d
		}
	}
	return newest
}

// isOpen reports whether a deployment is in progress.
func isOpen(d *v1alpha1.Deployment) bool {
	return !d.Status.Phase.Terminal() && d.DeletionTimestamp == nil && !d.Spec.Cancel && !v1alpha1.IsStalled(d)
}

// oldestFirst orders deployments by creation time.
func oldestFirst(a, b *v1alpha1.Deployment) int {
	return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
}
