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
	return w.ones(`SELECT COALESCE(sum(bytes), 0) FROM stored_bytes WHERE project_id = $1`)
}

// leftOf returns the number of rows of a deployment.
func (w *world) leftOf(spec store.DeploymentSpec) (n int64) {
	for _, of := range []string{"deployments WHERE id", "deployment_agents WHERE deployment_id", "build_log WHERE deployment_id", "tokens WHERE deployment_id"} {
		n += w.ones(`SELECT count(*) FROM ` + of + ` = '` + spec.ID.String() + `' AND project_id = $1`)
	}
	return n
}

// goes deletes the object of a deployment.
func (w *world) goes(spec store.DeploymentSpec) {
	w.NoError(w.s.Remove(w.ctx, w.project.ID, ref(store.KindDeployment, spec.Ref.Name)))
}

// deployNewer makes enough deployments live that earlier ones cannot become live again.
func (w *world) deployNewer() {
	for i := range store.BundlesKept {
		w.deploy("newer"+strconv.Itoa(i), "first")
	}
}

// isKept deletes what can be deleted and checks that the deployment stays. went checks that nothing
// of it is left.
func (w *world) isKept(spec store.DeploymentSpec, why string) {
	w.goneSince(9 * aDay)
	w.forget(aDay)
	w.NotZero(w.leftOf(spec), why)
	w.Equal(1, w.rowsOf("departed"))
}

// goneSince sets the time of all deletions.
func (w *world) goneSince(age time.Duration) {
	_, err := w.db.ExecContext(w.ctx, `UPDATE departed SET gone_at = $1`, time.Now().Add(-age).UnixMicro())
	w.NoError(err)
}

func (w *world) went(spec store.DeploymentSpec) {
	w.goneSince(9 * aDay)
	w.forget(aDay)
	w.Zero(w.leftOf(spec))
	w.Zero(w.rowsOf("departed"))
}

var deploymentDeparturePromises = []promise{
	{"a deleted deployment leaves nothing after its history", func(w *world) {
		w.deploy("kept", "first")
		before := w.storage()
		failed := w.newDeployment("failed")
		_, err := w.s.BeginDeployment(w.ctx, failed)
		w.NoError(err)
		w.NoError(w.s.StartBuild(w.ctx, failed.Key(), ""))
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

		w.goes(failed)
		w.forget(aDay)
		w.EqualValues(12, w.leftOf(failed), "it has history")
		w.went(failed)
		w.Equal(before, w.storage())
	}},
	{"a deleted deployment stays while it is or can become live", func(w *world) {
		spec := w.deploy("one", "first")
		w.goes(spec)
		w.isKept(spec, "it is live")
		for i := range store.BundlesKept - 1 {
			w.deploy("newer"+strconv.Itoa(i), "first")
		}
		w.isKept(spec, "it is one of the last deployed")
		w.deploy("newest", "first")
		w.went(spec)
	}},
	{"a deleted deployment stays while one of its runs is open", func(w *world) {
		spec := w.deploy("one", "first")
		run := w.oneRunning()
		w.goes(spec)
		w.deployNewer()
		w.isKept(spec, "it has an open run")
		w.finish(run)
		w.went(spec)
	}},
	{"a deleted deployment stays while a connector of its code is in effect", func(w *world) {
		spec := w.build("one", "first")
		_, err := w.s.Activate(w.ctx, store.Activation{Deployment: spec.Key(), Connectors: []store.Connector{w.codeConnector("of-code")}})
		w.NoError(err)
		w.goes(spec)
		_, err = w.db.ExecContext(w.ctx, `UPDATE deployments SET status = 'failed' WHERE project_id = $1 AND id = $2`, w.project.ID.String(), spec.ID.String())
		w.NoError(err)
		_, err = w.db.ExecContext(w.ctx, `UPDATE environments SET live_deployment_id = NULL, live_activated_at = NULL WHERE project_id = $1`, w.project.ID.String())
		w.NoError(err)
		w.isKept(spec, "its connector is in effect")
		w.deploy("two", "first")
		w.went(spec)
	}},
	{"a deleted deployment that was live stays as long as its runs", func(w *world) {
		spec := w.deploy("one", "first")
		w.goes(spec)
		w.deployNewer()
		_, err := w.rollBack(spec)
		w.NoError(err)
		w.goneSince(9 * aDay)
		w.deploy("newest", "first")
		w.forget(aDay)
		w.NotZero(w.leftOf(spec))
		w.went(spec)
	}},
}
