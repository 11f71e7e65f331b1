// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

var tenantPromises = []promise{
	{"no method reads or changes rows of another project", func(w *world) {
		methods := maps.Clone(ofThePlatform)
		for method := range strangers {
			methods[method] = "asked"
		}
		w.ElementsMatch(methodsOf(reflect.TypeFor[store.Store]()), slices.Collect(maps.Keys(methods)), "add a new method here")

		v := w.newVictim()
		before := w.allRows(w.project.ID)
		for _, method := range slices.Sorted(maps.Keys(strangers)) {
			strangers[method](&stranger{victim: v, project: uuid.New()})
			w.Equal(before, w.allRows(w.project.ID), method)
		}
	}},
	{"every table has rows of the project", func(w *world) {
		w.departed()
		w.newVictim()
		for table, rows := range w.allRows(w.project.ID) {
			w.NotEmpty(rows, table)
		}
	}},
	{"two projects with the same IDs are independent", withAgents(func(w *world) {
		twin := w.twinProject()
		twin.deploy("one", "first", "second")
		e := w.keyedEvent("key:1", "body")
		theirs := e
		theirs.ProjectID, theirs.ConnectorVersion = twin.project.ID, twin.version()
		w.accept(&e, &theirs)
		twin.renameRuns(theirs, e)
		mine, other := w.claim(10, lease), twin.claim(10, lease)
		w.Len(mine, 2)
		w.Len(other, 2)
		for i := range mine {
			w.Equal(mine[i].Run.ID, other[i].Run.ID)
			w.NotEqual(mine[i].Run.ProjectID, other[i].Run.ProjectID)
			w.Equal(e.Input, other[i].Input)
		}
		for _, of := range []struct {
			world       *world
			own, others store.Lease
		}{{w, leaseOf(mine[0]), leaseOf(other[0])}, {twin, leaseOf(other[0]), leaseOf(mine[0])}} {
			w.Equal([]store.Lease{of.others}, w.renewLeases(of.world.environment.Key(), heldClaims(of.own, of.others), expired))
		}
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(mine[0]), []store.JournalEntry{newEntry(1, store.JournalToolStarted, true)}))
		w.Equal(2, w.sweep(10))
		w.Equal(store.RunFailed, w.run(e.Runs[0].ID).Status)
		w.Equal(store.RunQueued, twin.run(e.Runs[0].ID).Status)
		w.NoError(w.complete(completed(mine[1])))
		w.True(w.outcome(e.ConnectorRunID).Terminal())
		w.False(twin.outcome(e.ConnectorRunID).Terminal())
		again := twin.claim(1, lease)
		w.Len(again, 1)
		w.Empty(w.journalOf(again[0]), "not the other project's")
		before := w.allRows(twin.project.ID)
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.environment.Ref))
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.connector.Ref))
		w.Equal(before, w.allRows(twin.project.ID))
	})},
}

// twinProject returns another project with the same IDs and names.
func (w *world) twinProject() *world {
	t := *w
	t.project.ID = uuid.New()
	t.environment.ProjectID, t.connector.ProjectID = t.project.ID, t.project.ID
	t.links = slices.Clone(w.links)
	t.NoError(t.s.PutProject(t.ctx, t.project))
	t.NoError(t.s.PutEnvironment(t.ctx, t.environment))
	t.NoError(t.s.PutConnector(t.ctx, t.connector))
	for i := range t.links {
		t.links[i].ProjectID = t.project.ID
		t.NoError(t.s.PutLink(t.ctx, t.links[i]))
	}
	return &t
}

// projectTables returns the tables with rows of projects.
func (w *world) projectTables() (out []string) {
	catalog := `SELECT c.relname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'project_id'
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition`
	rows, err := w.db.QueryContext(w.ctx, catalog)
	if err != nil { // SQLite
		rows, err = w.db.QueryContext(w.ctx, `SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c
			WHERE m.type = 'table' AND c.name = 'project_id'`)
	}
	w.NoError(err)
	defer rows.Close()
	for rows.Next() {
		var table string
		w.NoError(rows.Scan(&table))
		out = append(out, table)
	}
	w.NoError(rows.Err())
	w.GreaterOrEqual(len(out), 17)
	return out
}

// allRows returns all rows of a project as text, by table.
func (w *world) allRows(project uuid.UUID) map[string][]string {
	out := map[string][]string{}
	for _, table := range w.projectTables() {
		rows, err := w.db.QueryContext(w.ctx, `SELECT * FROM `+table+` WHERE project_id = $1`, project) //nolint:gosec // a name of the catalog
		w.NoError(err)
		columns, err := rows.Columns()
		w.NoError(err)
		for rows.Next() {
			values, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			w.NoError(rows.Scan(into...))
			out[table] = append(out[table], fmt.Sprint(values...))
		}
		w.NoError(rows.Err())
		w.NoError(rows.Close())
		slices.Sort(out[table])
		out[table] = append([]string(nil), out[table]...)
	}
	return out
}

func methodsOf(t reflect.Type) (names []string) {
	for i := range t.NumMethod() {
		names = append(names, t.Method(i).Name)
	}
	return names
}

// victim is a project with rows in every table.
type victim struct {
	*world
	building store.DeploymentSpec
	uploaded string
	event    store.Event
	running  store.Claimed
	spent    uuid.UUID // an ended run with costs
	digest   string
	blob     uuid.UUID
	token    store.Token
	act      uuid.UUID
	runner   string
	delivery store.ClaimedDelivery
	cron     store.Connector
	replay   store.Replay
}

func (w *world) newVictim() *victim {
	v := &victim{world: w, blob: uuid.New(), digest: w.putBundle("a bundle of theirs")}
	w.exporting()
	w.setUpKeys()
	v.cron = w.putCron("nightly", "first")
	w.derivationKey(w.connector.ID, 1)
	w.takeRate(w.project.ID, perHour)
	w.refused(w.connector.Key(), "invalid_secret", 1)
	w.NoError(w.s.RequestPolls(w.ctx, []uuid.UUID{w.project.ID}))
	v.deploy("one", "first", "second")
	v.delivery = w.underWayTo(w.outboundTo("results", automatic))
	v.uploaded = w.storeUpload("an upload of theirs")
	v.building = v.newUploaded("two", v.uploaded)
	w.beginDeployment(v.building)
	w.NoError(w.s.StartBuild(w.ctx, v.building.Key(), ""))
	w.NoError(w.s.AppendBuildLog(w.ctx, v.building.Key(), 0, "theirs"))
	v.token = store.Token{SHA256: []byte("theirs"), Kind: store.TokenRunner, ProjectID: w.project.ID, EnvironmentID: w.environment.ID}
	w.NoError(w.s.PutToken(w.ctx, v.token))
	w.NoError(errorOf(w.s.PutBlob(w.ctx, w.key(v.blob), strings.NewReader("theirs"))))
	v.event = w.keyedEvent("key:1", "body")
	v.event.InputBlob, v.event.Input = &v.blob, nil
	v.event.Files = []store.File{v.storedFile("a", "theirs")}
	w.accept(&v.event)
	v.runner = uuid.NewString()
	v.running = w.claimAs(v.runner, 1, lease)[0]
	w.NoError(w.s.AppendJournal(w.ctx, leaseOf(v.running), []store.JournalEntry{newEntry(1, store.JournalModelAnswer, false)}))
	spending := leaseOf(w.claim(1, lease)[0])
	v.spent = spending.Run.ID
	w.NoError(w.complete(store.Completion{Lease: spending, Status: store.RunCompleted, Journal: []store.JournalEntry{{
		Sequence: 1, Kind: store.JournalModelAnswer, Usage: &store.ModelUsage{Model: "m", TokenUsage: store.TokenUsage{TotalTokens: 1}, Cost: store.Cost{Currency: store.USD, Nanos: 1}},
	}}}))
	w.NoError(errorOf(w.s.CountStored(w.ctx, 10)))
	w.NoError(errorOf(w.s.RollUp(w.ctx, 10)))
	w.indexRuns(1)
	none := w.event()
	none.Runs = nil
	w.accept(&none)
	for range 2 { // one stays open, one waits in the outbox
		w.acceptEvent(w.contender("theirs"))
	}
	w.NoError(w.complete(completed(w.claim(1, lease)[0])))
	w.outboundFrom(v.running.Run.AgentName, "told", toolPolicy("tell"))
	w.sendPayload(payloadOf(v.running, "tell", 1, `"theirs"`))
	v.replay = w.startReplay(w.newReplay(w.connector, store.ConnectorRunCompleted))
	act, err := w.s.RecordAudit(w.ctx, store.AuditEntry{
		ProjectID: w.project.ID, Operation: "createConnector", Actor: store.AuditActor{Kind: store.AuditAPIKey, Name: "ci"},
		Outcome: &store.AuditOutcome{Status: 201},
	})
	w.NoError(err)
	v.act = act
	return v
}

// renameRuns gives an event's rows of a project the IDs of another project's event, because the
// store's stamps are unique.
func (w *world) renameRuns(from, to store.Event) {
	of := w.project.ID.String()
	exec := func(statement string, args ...any) {
		w.execStatement(statement, args...)
	}
	was, is := from.ConnectorRunID.String(), to.ConnectorRunID.String()
	exec(`UPDATE inputs SET id = $3 WHERE project_id = $1 AND id = $2`, of, was, is)
	exec(`UPDATE idempotency_keys SET connector_run_id = $3, run_ids = (SELECT m.run_ids FROM open_connector_runs m WHERE m.project_id = $4 AND m.id = $3)
		WHERE project_id = $1 AND connector_run_id = $2`, of, was, is, to.ProjectID.String())
	exec(`UPDATE open_connector_runs SET id = $3, run_ids = (SELECT m.run_ids FROM open_connector_runs m WHERE m.project_id = $4 AND m.id = $3)
		WHERE project_id = $1 AND id = $2`, of, was, is, to.ProjectID.String())
	for i := range from.Runs {
		exec(`UPDATE open_runs SET id = $3, connector_run_id = $4, input_id = $4 WHERE project_id = $1 AND id = $2`,
			of, from.Runs[i].ID.String(), to.Runs[i].ID.String(), is)
	}
}
