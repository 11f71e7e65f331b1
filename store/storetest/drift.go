// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// driftReport reports drift of the server "crm" of the agent "first".
func driftReport(deployment uuid.UUID, tools ...string) store.DriftReport {
	return store.DriftReport{DeploymentID: deployment, Agent: "first", Server: "crm", Tools: tools}
}

// recordDrift records reports of a runner in the environment.
func (w *world) recordDrift(reports ...store.DriftReport) {
	w.NoError(w.s.RecordDrift(w.ctx, w.environment.Key(), reports))
}

func (w *world) readDrift(deployment uuid.UUID) []store.MCPDrift {
	drift, err := w.s.Drift(w.ctx, w.key(deployment))
	w.NoError(err)
	return drift
}

// listDrifted returns the environments of the project with drift.
func (w *world) listDrifted() (found []store.DriftedEnvironment) {
	after := store.Key{}
	for {
		page, err := w.s.DriftedEnvironments(w.ctx, after, 1)
		w.NoError(err)
		if len(page) == 0 {
			return found
		}
		after = page[0].Environment
		if after.ProjectID == w.project.ID {
			found = append(found, page[0])
		}
	}
}

// ageDrift makes the last reports of a deployment older.
func (w *world) ageDrift(deployment uuid.UUID, by time.Duration) {
	drift := w.readDrift(deployment)
	for i := range drift {
		for j := range drift[i].Tools {
			tool := &drift[i].Tools[j]
			tool.Since, tool.ReportedAt = tool.Since.Add(-by), tool.ReportedAt.Add(-by)
		}
	}
	raw, err := json.Marshal(drift)
	w.NoError(err)
	w.updateRows(`UPDATE deployments SET drift = $2`, string(raw))
}

var driftPromises = []promise{
	{"drift belongs to the deployment that pins the tools", func(w *world) {
		first := w.deploy("one", "first").ID
		w.Empty(w.readDrift(first))
		w.Empty(w.listDrifted())
		now := w.readClock()
		w.recordDrift(driftReport(first, "get"), driftReport(uuid.New(), "get"))
		drift := w.readDrift(first)
		w.Len(drift, 1)
		w.Equal([]string{"first", "crm", "get"}, []string{drift[0].Agent, drift[0].Server, drift[0].Tools[0].Name})
		w.WithinRange(drift[0].Since(), now, now.Add(time.Hour))
		found := w.listDrifted()
		w.Len(found, 1)
		w.Equal(w.environment.Key(), found[0].Environment)
		w.True(w.environment.Ref.SameObject(found[0].Ref))
		second := w.deploy("two", "first").ID
		w.Empty(w.listDrifted(), "the live deployment pins the tools again")
		w.Empty(w.readDrift(second))
		w.ErrorIs(errorOf(w.s.Drift(w.ctx, w.key(uuid.New()))), store.ErrNotFound)
	}},
	{"a server whose list alternates changes the record once", func(w *world) {
		live := w.deploy("one", "first").ID
		w.recordDrift(driftReport(live, "get"))
		before, changed := w.readDrift(live), w.listDrifted()[0].ChangedAt
		for range 3 {
			w.recordDrift(driftReport(live))
			w.recordDrift(driftReport(live, "get"))
		}
		w.Equal(before, w.readDrift(live))
		w.Equal(changed, w.listDrifted()[0].ChangedAt)
		w.recordDrift(driftReport(live, "set"))
		w.Equal([]string{"get", "set"}, w.readDrift(live)[0].Names())
		w.True(w.listDrifted()[0].ChangedAt.After(changed))
	}},
	{"a report deletes the tools of its server that no report has named for an hour", func(w *world) {
		live := w.deploy("one", "first").ID
		w.recordDrift(driftReport(live, "get", "set"))
		w.ageDrift(live, store.DriftKept-time.Minute)
		w.recordDrift(driftReport(live))
		w.Equal([]string{"get", "set"}, w.readDrift(live)[0].Names(), "reports named them less than an hour ago")
		w.recordDrift(driftReport(live, "set"))
		w.ageDrift(live, time.Minute)
		changed := w.listDrifted()[0].ChangedAt
		w.Equal([]string{"get", "set"}, w.readDrift(live)[0].Names(), "no runner has compared again")
		w.recordDrift(driftReport(live, "set", "list"))
		w.Equal([]string{"set", "list"}, w.readDrift(live)[0].Names(), "a report has named only the others")
		w.True(w.listDrifted()[0].ChangedAt.After(changed))
		w.ageDrift(live, store.DriftKept)
		w.recordDrift(driftReport(live))
		w.Empty(w.readDrift(live))
		w.Empty(w.listDrifted())
	}},
	{"an invalid report does not prevent the record of the others", func(w *world) {
		live := w.deploy("one", "first").ID
		invalid := driftReport(live, "get")
		invalid.Agent = "First"
		err := w.s.RecordDrift(w.ctx, w.environment.Key(), []store.DriftReport{invalid, driftReport(live, "get")})
		w.ErrorIs(err, store.ErrInvalid)
		w.Len(w.readDrift(live), 1)
	}},
	{"an activation deletes the drift of the deployment that was live", func(w *world) {
		first := w.deploy("one", "first").ID
		w.recordDrift(driftReport(first, "get"))
		w.deploy("two", "first")
		w.Empty(w.readDrift(first))
		w.recordDrift(driftReport(first, "get"))
		w.Empty(w.readDrift(first), "runs of an earlier deployment still report")
	}},
	{"recorded drift is bounded and printable", func(w *world) {
		live := w.deploy("one", "first").ID
		var names []string
		for i := range 2 * store.MaxDriftTools {
			names = append(names, fmt.Sprintf("%02d\x1b[2J\u202e\x00\xff%s", i, strings.Repeat("ä", store.MaxDriftTool)))
		}
		for i := range 2 * store.MaxDrift {
			report := driftReport(live, names...)
			report.Server = fmt.Sprint("server-", i)
			w.recordDrift(report)
		}
		drift := w.readDrift(live)
		w.Len(drift, store.MaxDrift)
		w.Len(drift[0].Tools, store.MaxDriftTools)
		w.LessOrEqual(len(drift[0].Tools[0].Name), store.MaxDriftTool)
		w.True(strings.HasPrefix(drift[0].Tools[0].Name, "00_[2J___ä"), drift[0].Tools[0].Name)
		w.ErrorIs(w.s.RecordDrift(w.ctx, w.environment.Key(), make([]store.DriftReport, store.MaxDriftReports+1)), store.ErrTooLarge)
		for _, wrong := range []store.DriftReport{{Agent: "First", Server: "crm"}, {Agent: "first", Server: "c r m"}, {Agent: strings.Repeat("a", 64), Server: "crm"}} {
			w.ErrorIs(w.s.RecordDrift(w.ctx, w.environment.Key(), []store.DriftReport{wrong}), store.ErrInvalid)
		}
	}},
	{"a runner cannot report for another environment", func(w *world) {
		live := w.deploy("one", "first").ID
		other := w.environment.Key()
		other.ID = uuid.New()
		w.NoError(w.s.RecordDrift(w.ctx, other, []store.DriftReport{driftReport(live, "get")}))
		w.Empty(w.readDrift(live))
	}},
}
