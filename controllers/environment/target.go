// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"cmp"
	"slices"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/store"
)

// target is where an environment is to be: a commit, of which one folder is built. The URL is no
// part of it, for a commit's name is made of what is in it.
type target struct{ commit, path string }

// is says whether a deployment is one of the target. What is not built yet will be of the folder
// of now; one that has ended and of which it is not known what was built is none.
func (t target) is(d *v1alpha1.Deployment) bool {
	switch built := d.Status.Path; {
	case built != nil && *built != t.path, built == nil && d.Status.Phase.Terminal():
		return false
	}
	git := d.Spec.Source.Git
	return d.Status.Commit == t.commit || d.Status.Commit == "" && git != nil && string(git.Commit) == t.commit
}

// isOf says whether what the store has live is of the target; nil is nothing. Its object may be
// missing.
func (t target) isOf(live *store.Deployment) bool {
	return live != nil && live.ResolvedCommit == t.commit && live.Path != nil && *live.Path == t.path
}

// showStored shows in a deployment's status, which may be behind or lost, what the store knows of
// it: where it is, and of which commit and folder. What was cancelled may begin anew for another
// object, and of another source the store knows nothing.
func showStored(d *v1alpha1.Deployment, row store.Deployment) {
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

// deploymentOf is the Deployment that brings an environment to a commit without another
// build, nil where there is none: one that is on its way there, is live, or, with
// activate, was live before and can be so again. Of those on their way the newest goes
// live last, so no other counts; it would go live after one that only is live, and not
// after one that is activated. live is what the store knows to be live, "" where it knows
// of none; the statuses are behind it.
func deploymentOf(to target, live string, all []v1alpha1.Deployment) (there *v1alpha1.Deployment, activate bool) {
	next, stay := newestOpen(to, all), stayLive(to, all)
	if next != nil && to.is(next) {
		return next, false
	}
	for i := range all {
		d := &all[i]
		if d.Status.Phase != v1alpha1.DeploymentDeployed || d.DeletionTimestamp != nil || !to.is(d) || isGone(d) {
			continue
		}
		if d.Status.Live && (live == "" || live == d.Name) && stay {
			return d, false
		}
		// What a user made is the user's to activate.
		if d.Labels[object.LabelManagedBy] == object.ManagedBy && (there == nil || oldestFirst(there, d) < 0) {
			there, activate = d, true
		}
	}
	return there, activate
}

// isGone says that a deployment cannot be live again: its bundle is not stored any more, as the answer
// says to who asked for it last.
func isGone(d *v1alpha1.Deployment) bool {
	a := d.Status.Activation
	return a != nil && a.Result == v1alpha1.ActivationBundleGone && !d.Status.Live && !d.ActivationPending()
}

// stayLive says whether what is live of a commit stays so: nothing is on its way, and no deployment
// of another commit is asked to be live again.
func stayLive(to target, all []v1alpha1.Deployment) bool {
	return newestOpen(to, all) == nil && !slices.ContainsFunc(all, func(d v1alpha1.Deployment) bool {
		return d.Status.Phase == v1alpha1.DeploymentDeployed && d.DeletionTimestamp == nil && d.ActivationPending() && !to.is(&d)
	})
}

// newestOpen is what goes live last of the deployments that are on their way, nil where
// none is. Of two made in the same second it is not known; one of another commit counts.
func newestOpen(to target, all []v1alpha1.Deployment) (newest *v1alpha1.Deployment) {
	for i := range all {
		d := &all[i]
		if !isOpen(d) {
			continue
		}
		if newest == nil || oldestFirst(newest, d) < 0 || oldestFirst(newest, d) == 0 && to.is(newest) {
			newest = d
		}
	}
	return newest
}

// isOpen says whether a deployment is on its way.
func isOpen(d *v1alpha1.Deployment) bool {
	return !d.Status.Phase.Terminal() && d.DeletionTimestamp == nil && !d.Spec.Cancel && !v1alpha1.IsStalled(d)
}

// oldestFirst orders deployments by their creation.
func oldestFirst(a, b *v1alpha1.Deployment) int {
	return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
}
