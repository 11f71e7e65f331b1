// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// storage returns the stored bytes of the project.
func (w *world) storage() int64 {
	return w.queryCount(`SELECT COALESCE(sum(bytes), 0) FROM stored_bytes WHERE project_id = $1`)
}

// countRemaining returns the number of rows of a deployment.
func (w *world) countRemaining(spec store.DeploymentSpec) (n int64) {
	for _, of := range []string{"deployments WHERE id", "deployment_agents WHERE deployment_id", "build_log WHERE deployment_id", "tokens WHERE deployment_id"} {
		n += w.queryCount(`SELECT count(*) FROM ` + of + ` = '` + spec.ID.String() + `' AND project_id = $1`)
	}
	return n
}

// removeDeployment deletes the object of a deployment.
func (w *world) removeDeployment(spec store.DeploymentSpec) {
	w.NoError(w.s.Remove(w.ctx, w.project.ID, objectRef(store.KindDeployment, spec.Ref.Name)))
}

// deployNewer makes enough deployments live that earlier ones cannot become live again.
func (w *world) deployNewer() {
	for i := range store.BundlesKept {
		w.deploy("newer"+strconv.Itoa(i), "first")
	}
}

// requireKept deletes expired rows and checks that the deployment stays. requireDeleted checks that no row
// of the deployment is left.
func (w *world) requireKept(spec store.DeploymentSpec, why string) {
	w.goneSince(9 * aDay)
	w.dropHistory(aDay)
	w.NotZero(w.countRemaining(spec), why)
	w.Equal(1, w.countRowsOf("departed"))
}

// goneSince sets the time of all deletions.
func (w *world) goneSince(age time.Duration) {
	w.execStatement(`UPDATE departed SET gone_at = $1`, time.Now().Add(-age).UnixMicro())
}

func (w *world) requireDeleted(spec store.DeploymentSpec) {
	w.goneSince(9 * aDay)
	w.dropHistory(aDay)
	w.Zero(w.countRemaining(spec))
	w.Zero(w.countRowsOf("departed"))
}

var deploymentDeparturePromises = []promise{
	{"a deleted deployment leaves nothing after its history", func(w *world) {
		w.deploy("kept", "first")
		before := w.storage()
		failed := w.startBuild(w.newDeployment("failed"))
		w.NoError(w.s.PutToken(w.ctx, store.Token{
			SHA256: []byte("of its build"), Kind: store.TokenBuild, ProjectID: w.project.ID, EnvironmentID: w.environment.ID, DeploymentID: &failed.ID,
		}))
		for number := range int64(9) { // more than one pass deletes
			w.NoError(w.s.AppendBuildLog(w.ctx, failed.Key(), number, "a line\n"))
		}
		logged := w.storage()
		w.Greater(logged, before, "its log counts")
		w.NoError(w.s.FinishBuild(w.ctx, failed.Key(), store.BuildResult{
			FailureReason: "tests_failed", TestResults: json.RawMessage(`[{"passed":false}]`),
			Agents: []store.Agent{{Name: "first", Config: json.RawMessage(`{"name":"first"}`)}},
		}))
		w.GreaterOrEqual(w.storage(), logged+int64(len(`[{"passed":false}]`)+len(`{"name":"first"}`)), "its result counts")

		w.removeDeployment(failed)
		w.dropHistory(aDay)
		w.EqualValues(12, w.countRemaining(failed), "it has history")
		w.requireDeleted(failed)
		w.Equal(before, w.storage())
	}},
	{"a deleted deployment stays while it is or can become live", func(w *world) {
		spec := w.deploy("one", "first")
		w.removeDeployment(spec)
		w.requireKept(spec, "it is live")
		for i := range store.BundlesKept - 1 {
			w.deploy("newer"+strconv.Itoa(i), "first")
		}
		w.requireKept(spec, "it is one of the last deployed")
		w.deploy("newest", "first")
		w.requireDeleted(spec)
	}},
	{"a deleted deployment stays while one of its runs is open", func(w *world) {
		spec := w.deploy("one", "first")
		run := w.oneRunning()
		w.removeDeployment(spec)
		w.deployNewer()
		w.requireKept(spec, "it has an open run")
		w.completeTogether(run)
		w.requireDeleted(spec)
	}},
	{"a deleted deployment stays while a connector of its code is in effect", func(w *world) {
		spec := w.build("one", "first")
		w.activateWith(store.Activation{Deployment: spec.Key(), Connectors: []store.Connector{w.codeConnector("of-code")}})
		w.removeDeployment(spec)
		w.execStatement(`UPDATE deployments SET status = 'failed' WHERE project_id = $1 AND id = $2`, w.project.ID.String(), spec.ID.String())
		w.execStatement(`UPDATE environments SET live_deployment_id = NULL, live_activated_at = NULL WHERE project_id = $1`, w.project.ID.String())
		w.requireKept(spec, "its connector is in effect")
		w.deploy("two", "first")
		w.requireDeleted(spec)
	}},
	{"a deleted deployment that was live stays as long as its runs", func(w *world) {
		spec := w.deploy("one", "first")
		w.removeDeployment(spec)
		w.deployNewer()
		w.NoError(errorOf(w.rollBack(spec)))
		w.goneSince(9 * aDay)
		w.deploy("newest", "first")
		w.dropHistory(aDay)
		w.NotZero(w.countRemaining(spec))
		w.requireDeleted(spec)
	}},
}
