// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// bundlesDay makes bundles a day older, and sweeps.
func (w *world) bundlesDay() {
	w.uploadsAge(store.BundleAge.Microseconds() + 1)
	w.sweepUploads()
}

// bundled deploys as many deployments as bundles are kept.
func (w *world) bundled(name string) (specs []store.DeploymentSpec) {
	for i := range store.BundlesKept {
		specs = append(specs, w.deploy(fmt.Sprintf("%s-%d", name, i), "first"))
	}
	return specs
}

// hasBundle reports whether the bundle of a deployment is stored.
func (w *world) hasBundle(deployment uuid.UUID) bool {
	return w.queryCount(`SELECT count(*) FROM bundles WHERE project_id = $1 AND digest = (SELECT bundle_digest FROM deployments
		WHERE project_id = $1 AND id = '`+deployment.String()+`')`) > 0
}

// rollBack makes a deployment live again.
func (w *world) rollBack(deployment store.DeploymentSpec) (store.ActivationResult, error) {
	now := time.Now()
	return w.s.Activate(w.ctx, store.Activation{Deployment: deployment.Key(), RequestedAt: &now})
}

var bundlePromises = []promise{
	{"bundles of the last deployed deployments are kept", func(w *world) {
		old, kept := w.deploy("old", "first"), w.bundled("v")
		w.sweepUploads()
		w.True(w.hasBundle(old.ID), "for a day")
		stored := w.projectLoad().Stored
		for range 3 {
			w.bundlesDay()
			w.False(w.hasBundle(old.ID))
			for _, d := range kept {
				w.True(w.hasBundle(d.ID), d.Ref.Name)
			}
			w.Equal(stored-int64(len("bundle of old")), w.projectLoad().Stored)
		}
		w.EqualValues(len(kept), w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1`))
	}},
	{"a deployment without its bundle cannot become live", func(w *world) {
		old, kept := w.deploy("old", "first"), w.bundled("v")
		w.bundlesDay()
		before := w.deployment(old.ID)
		w.ErrorIs(errorOf(w.rollBack(old)), store.ErrBundleGone)
		w.Equal(before, w.deployment(old.ID), "nothing has changed")
		w.Equal(kept[len(kept)-1].ID, *w.readEnvironment(w.environment.Key()).LiveDeploymentID)

		w.putBundle("bundle of old") // by another build of the same files
		result, err := w.rollBack(old)
		w.NoError(err)
		w.True(result.Live)
		for range 2 {
			w.bundlesDay()
			w.True(w.hasBundle(old.ID), "it is live")
		}
		w.deploy("new", "first")
		w.sweepUploads()
		w.True(w.hasBundle(old.ID), "it was live within a day")
		w.bundlesDay()
		w.False(w.hasBundle(old.ID))
	}},
	{"the bundle of an open run is kept", func(w *world) {
		old := w.deploy("old", "first")
		w.singles(3)
		claims := w.claim(3, lease)
		w.Len(claims, 3)
		w.suspend(claims[1], time.Hour)
		w.NoError(w.s.Release(w.ctx, leaseOf(claims[2]), 0))
		w.bundled("v")
		for _, c := range claims {
			w.bundlesDay()
			w.True(w.hasBundle(old.ID), w.run(c.Run.ID).Status)
			if w.run(c.Run.ID).Status == store.RunRunning {
				w.NoError(w.complete(completed(c)))
			} else {
				w.NoError(w.s.Cancel(w.ctx, c.Run.Key(), runerror.Cancelled, ""))
			}
		}
		w.bundlesDay()
		w.False(w.hasBundle(old.ID))
	}},
	{"the bundle of a requeued and blocked run is kept", func(w *world) {
		old := w.deploy("old", "first")
		w.singles(1)
		run := w.claim(1, lease)[0].Run
		w.bundled("v")
		w.updateRows(`UPDATE open_runs SET status = 'queued', fresh = FALSE, lease_until = NULL, concurrency_key = 'k', blocked = TRUE`)
		w.Equal(store.RunQueued, w.run(run.ID).Status)
		w.bundlesDay()
		w.True(w.hasBundle(old.ID))
	}},
	{"the bundle of a failed build is deleted, of a built deployment kept", func(w *world) {
		failed := w.startBuild(w.newDeployment("failed"))
		result := w.buildResult("bundle of failed", "first")
		result.FailureReason = store.FailureTests
		w.NoError(w.s.FinishBuild(w.ctx, failed.Key(), result))
		waits := w.build("waits", "first")
		w.True(w.hasBundle(failed.ID))
		w.bundlesDay()
		w.False(w.hasBundle(failed.ID))
		w.True(w.hasBundle(waits.ID))
		w.True(w.activate(waits.ID).Live)

		wanted := w.putBundle("wanted")
		w.NoError(w.s.RequestPrefetch(w.ctx, w.environment.Key(), wanted))
		w.bundlesDay()
		w.EqualValues(2, w.queryCount(`SELECT count(*) FROM bundles WHERE project_id = $1`), "the live one, and the one to prefetch")
	}},
	{"bundles of a deleted environment are deleted, the live one after a day", func(w *world) {
		live := w.deploy("one", "first")
		w.uploadsAge(store.BundleAge.Microseconds() + 1)
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.environment.Ref))
		w.sweepUploads()
		w.True(w.hasBundle(live.ID), "the environment may be re-created at once")
		w.NoError(w.s.PutEnvironment(w.ctx, w.environment))
		w.True(w.activate(live.ID).Live)
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.environment.Ref))
		w.bundlesDay()
		w.False(w.hasBundle(live.ID))
		w.NoError(w.s.PutEnvironment(w.ctx, w.environment))
		w.ErrorIs(errorOf(w.s.Activate(w.ctx, store.Activation{Deployment: live.Key()})), store.ErrBundleGone)
	}},
	{"a bundle of two environments is kept while either needs it", func(w *world) {
		staging := w.newEnvironment("staging", origin)
		w.NoError(w.s.PutEnvironment(w.ctx, staging))
		old, other := w.deploy("old", "first"), w.newDeployment("other")
		other.EnvironmentID = staging.ID
		w.startBuild(other)
		w.NoError(w.s.FinishBuild(w.ctx, other.Key(), w.buildResult("bundle of old", "first")))
		w.True(w.activate(other.ID).Live)
		w.bundled("v")
		w.bundlesDay()
		w.True(w.hasBundle(old.ID))
		w.NoError(errorOf(w.rollBack(old)))
	}},
}
