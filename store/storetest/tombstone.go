// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"slices"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// numbered creates history that is rolled up and indexed.
func (w *world) numbered() {
	w.history()
	w.endCostlyRuns(1)
	w.consumed()
}

// consumed rolls up and indexes all ended runs.
func (w *world) consumed() {
	for w.rollUpRows(100)+w.indexRuns(100) > 0 {
	}
}

// elsewhere returns another environment of the project, with a connector, a live deployment and
// rolled up runs.
func (w *world) elsewhere() *world {
	o := *w
	o.environment = w.newEnvironment("elsewhere", origin.Add(time.Hour))
	o.NoError(o.s.PutEnvironment(o.ctx, o.environment))
	o.connector = o.newConnector("others")
	o.NoError(o.s.PutConnector(o.ctx, o.connector))
	o.links = []store.Link{o.newLink("others-first", o.connector.ID, "first", origin)}
	o.NoError(o.s.PutLink(o.ctx, o.links[0]))
	o.deploy("elsewhere", "first")
	o.endEvents(3)
	o.endCostlyRuns(1)
	o.consumed()
	return &o
}

// departed deletes an environment, a connector and the project, and re-creates the project.
func (w *world) departed() {
	environment, connector := w.newEnvironment("brief", origin), w.newConnector("brief")
	w.NoError(w.s.PutEnvironment(w.ctx, environment))
	w.NoError(w.s.PutConnector(w.ctx, connector))
	for _, ref := range []store.ObjectRef{environment.Ref, connector.Ref, w.project.Ref} {
		w.NoError(w.s.Remove(w.ctx, w.project.ID, ref))
	}
	w.NoError(w.s.PutProject(w.ctx, w.project))
}

// removeAll deletes every object of the project.
func (w *world) removeAll() {
	objects := w.listProjected()
	for _, o := range objects {
		if o.Key.ProjectID == w.project.ID {
			w.NoError(w.s.Remove(w.ctx, w.project.ID, o.Ref))
		}
	}
	w.Zero(w.countRowsOf("object_ids"))
}

// lasting returns the rows of the project that no retention deletes.
func (w *world) lasting() map[string][]string {
	rows := w.allRows(w.project.ID)
	for _, table := range append(slices.Clone(historyOf), "blobs", "blob_chunks", "stored_days", "audit_days", "stored_bytes") {
		delete(rows, table)
	}
	return rows
}

var departurePromises = []promise{
	{"a deleted project leaves nothing after its history", func(w *world) {
		w.numbered()
		neighbour := w.twinProject()
		neighbour.numbered()
		others := neighbour.lasting()
		w.NotEmpty(others["run_rollups"])
		w.NotEmpty(others["usage_rollups"])
		w.NotEmpty(others["connector_rollups"])
		w.NotEmpty(others["agent_totals"])
		w.NotEmpty(others["deployments"])
		w.NotEmpty(others["bundles"])

		w.removeAll()
		left := w.lasting()
		w.NotEmpty(left["run_rollups"])
		w.NotEmpty(left["usage_rollups"])
		w.NotEmpty(left["deployments"])
		w.Len(left["departed"], 4, "project, environment, deployment and connector")
		w.dropHistory(aDay)
		w.Equal(left, w.lasting(), "it is not old enough")

		w.dropHistory(-4 * aDay) // as seen in four days
		for table, rows := range w.allRows(w.project.ID) {
			w.Empty(rows, table)
		}
		w.Equal(others, neighbour.lasting())
	}},
	{"a re-created project has its earlier rows", func(w *world) {
		w.numbered()
		before := w.lasting()
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.project.Ref))
		w.NoError(w.s.PutProject(w.ctx, w.project))
		w.Equal(1, w.countRowsOf("departed"))
		w.dropHistory(-4 * aDay)
		after := w.lasting()
		w.Empty(after["departed"])
		for _, table := range []string{"run_rollups", "usage_rollups", "connector_rollups", "agent_totals", "deployments", "deployment_agents", "bundles", "environments", "connectors"} {
			w.NotEmpty(after[table], table)
			w.Len(after[table], len(before[table]), table)
		}
	}},
	{"a deleted project keeps its rows while it has objects", func(w *world) {
		w.numbered()
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.project.Ref))
		before := w.lasting()
		w.dropHistory(-4 * aDay)
		w.Equal(before["run_rollups"], w.lasting()["run_rollups"])
		w.Equal(before["environments"], w.lasting()["environments"])
	}},
	{"a deleted environment and connector leave no rollups after their history", func(w *world) {
		w.numbered()
		before := w.lasting()
		o := w.elsewhere()
		w.Greater(len(w.lasting()["run_rollups"]), len(before["run_rollups"]))
		w.NoError(w.s.Remove(w.ctx, w.project.ID, o.environment.Ref))
		w.NoError(w.s.Remove(w.ctx, w.project.ID, o.connector.Ref))
		w.NoError(w.s.Remove(w.ctx, w.project.ID, objectRef(store.KindDeployment, "elsewhere")))
		w.dropHistory(-4 * aDay)
		after := w.lasting()
		for _, table := range []string{"run_rollups", "usage_rollups", "connector_rollups", "agent_totals", "deployments", "deployment_agents", "build_log"} {
			w.Equal(before[table], after[table], table)
		}
		w.Empty(after["departed"])
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.environment.Ref))
		w.dropHistory(-4 * aDay)
		after = w.lasting()
		w.Empty(after["run_rollups"])
		w.Empty(after["usage_rollups"])
		w.Empty(after["agent_totals"])
		w.Len(after["deployments"], 1, "its object exists")
	}},
}
