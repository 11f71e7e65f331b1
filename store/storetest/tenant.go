// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

var tenantPromises = []promise{
	{"whatever is asked under another project, its rows are not seen and not touched", func(w *world) {
		methods := maps.Clone(ofThePlatform)
		for method := range strangers {
			methods[method] = "asked"
		}
		w.ElementsMatch(methodsOf(reflect.TypeFor[store.Store]()), slices.Collect(maps.Keys(methods)), "a new method belongs here")

		v := w.newVictim()
		before := w.rows(w.project.ID)
		for _, method := range slices.Sorted(maps.Keys(strangers)) {
			strangers[method](&stranger{victim: v, project: uuid.New()})
			w.Equal(before, w.rows(w.project.ID), method)
		}
	}},
	{"every table has rows of the project, or this suite looks past it", func(w *world) {
		w.newVictim()
		for table, rows := range w.rows(w.project.ID) {
			w.NotEmpty(rows, table)
		}
	}},
	{"two projects with the same ids live as if alone", func(w *world) {
		w.deploy("one", "first", "second")
		twin := w.twin()
		twin.deploy("one", "first", "second")
		e := w.keyed("key:1", "body")
		theirs := e
		theirs.ProjectID, theirs.ConnectorVersion = twin.project.ID, twin.version()
		w.accept(e, theirs)
		mine, other := w.claim(10, lease), twin.claim(10, lease)
		w.Len(mine, 2)
		w.Len(other, 2)
		for i := range mine {
			w.Equal(mine[i].Run.ID, other[i].Run.ID)
			w.NotEqual(mine[i].Run.ProjectID, other[i].Run.ProjectID)
		}
		lost, err := w.s.Heartbeat(w.ctx, []store.Lease{leaseOf(mine[0]), leaseOf(other[0])}, expired)
		w.NoError(err)
		w.Empty(lost)
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(mine[0]), []store.JournalEntry{entry(1, store.JournalToolStarted, true)}))
		n := w.sweep(10)
		w.Equal(2, n)
		w.Equal(store.RunFailed, w.run(e.Runs[0].ID).Status)
		w.Equal(store.RunQueued, twin.run(e.Runs[0].ID).Status)
		w.NoError(w.s.Complete(w.ctx, completed(mine[1])))
		w.True(w.outcome(e.ConnectorRunID).Terminal())
		w.False(twin.outcome(e.ConnectorRunID).Terminal())
		again := twin.claim(1, lease)
		w.Len(again, 1)
		w.Empty(again[0].Journal, "not the other's")
		before := w.rows(twin.project.ID)
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.environment.Ref))
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.connector.Ref))
		w.Equal(before, w.rows(twin.project.ID))
	}},
}

// twin is another project with the same ids and names as this one.
func (w *world) twin() *world {
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

// tables are those that hold rows of projects.
func (w *world) tables() (out []string) {
	catalog := `SELECT DISTINCT table_name FROM information_schema.columns WHERE table_schema = 'public' AND column_name = 'project_id'`
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

// rows are all rows of a project as text, by table.
func (w *world) rows(project uuid.UUID) map[string][]string {
	out := map[string][]string{}
	for _, table := range w.tables() {
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

// victim is a project with something of everything.
type victim struct {
	*world
	building store.DeploymentSpec
	event    store.Event
	running  store.Claimed
	digest   string
	blob     uuid.UUID
	token    store.Token
	act      uuid.UUID
}

func (w *world) newVictim() *victim {
	v := &victim{world: w, blob: uuid.New(), digest: w.putBundle("a bundle of theirs")}
	w.begun()
	w.derivationKey(w.connector.ID, 1)
	w.take(w.project.ID, perHour)
	v.deploy("one", "first", "second")
	v.building = v.newDeployment("two")
	_, err := w.s.BeginDeployment(w.ctx, v.building)
	w.NoError(err)
	w.NoError(w.s.StartBuild(w.ctx, v.building.Key()))
	w.NoError(w.s.AppendBuildLog(w.ctx, v.building.Key(), 0, "theirs"))
	v.token = store.Token{SHA256: []byte("theirs"), Kind: store.TokenRunner, ProjectID: w.project.ID, EnvironmentID: w.environment.ID}
	w.NoError(w.s.PutToken(w.ctx, v.token))
	_, err = w.s.PutBlob(w.ctx, w.key(v.blob), strings.NewReader("theirs"))
	w.NoError(err)
	v.event = w.keyed("key:1", "body")
	v.event.InputBlob, v.event.Input = &v.blob, nil
	w.accept(v.event)
	v.running = w.claim(1, lease)[0]
	w.NoError(w.s.AppendJournal(w.ctx, leaseOf(v.running), []store.JournalEntry{entry(1, store.JournalModelAnswer, false)}))
	v.act, err = w.s.RecordAudit(w.ctx, store.AuditEntry{
		ProjectID: w.project.ID, Operation: "createConnector", Actor: store.AuditActor{Kind: store.AuditAPIKey, Name: "ci"},
		Outcome: &store.AuditOutcome{Status: 201},
	})
	w.NoError(err)
	return v
}

// stranger asks under a project of its own for what is the victim's.
type stranger struct {
	*victim
	project uuid.UUID
}

func (s *stranger) key(id uuid.UUID) store.Key { return store.Key{ProjectID: s.project, ID: id} }

func (s *stranger) none(err error) { s.ErrorIs(err, store.ErrNotFound) }

// live is the id of the victim's live deployment.
func (s *stranger) live() uuid.UUID {
	e, err := s.s.Environment(s.ctx, s.environment.Key())
	s.NoError(err)
	s.NotNil(e.LiveDeploymentID)
	has, err := s.s.HasAgent(s.ctx, store.Key{ProjectID: e.ProjectID, ID: *e.LiveDeploymentID}, "first")
	s.NoError(err)
	s.True(has, "its own project sees it")
	return *e.LiveDeploymentID
}

func (s *stranger) lease() store.Lease {
	return store.Lease{Run: s.key(s.running.Run.ID), Token: s.running.Token}
}

// ofThePlatform are the methods that are about all projects, with the reason.
var ofThePlatform = map[string]string{
	"Cluster":        "the lease is of the whole store",
	"HoldCluster":    "the lease is of the whole store",
	"AdoptCluster":   "the lease is of the whole store",
	"FinishAdoption": "the lease is of the whole store",
	"ForCluster":     "the lease is of the whole store",
	"ListProjected":  "the sweep of what is gone looks at all projects",
	"ReportKeys":     "keys are of the platform",
	"ForgetProcess":  "keys are of the platform",
	"AdmitKeys":      "keys are of the platform",
	"PromoteKeys":    "keys are of the platform",
	"Keys":           "keys are of the platform",
	"DerivedFrom":    "a key's use is looked for in all projects",
	"SealedBefore":   "a key's use is looked for in all projects",
	"RetireKey":      "keys are of the platform",
	"SweepLeases":    "leases expire in all projects",
	"QueueFigures":   "how much is open, over all projects",
	"SweepExpired":   "keys, runners and blobs expire in all projects",
	"Token":          "whose a token is, is what it is asked for",
	"Subscribe":      "hints name their project",
	"Migrate":        "the schema is of the whole store",
	"Ping":           "the schema is of the whole store",
	"Close":          "it is of the process",
}

// strangers are what each method answers somebody who knows all ids of a
// project, but asks under another one.
var strangers = map[string]func(s *stranger){
	"ClaimID": func(s *stranger) { s.NoError(s.s.ClaimID(s.ctx, s.key(s.connector.ID), s.connector.Ref)) },
	"PutProject": func(s *stranger) {
		p := s.victim.project
		p.ID = s.project
		s.NoError(s.s.PutProject(s.ctx, p))
	},
	"PutEnvironment": func(s *stranger) {
		e := s.environment
		e.ProjectID = s.project
		s.NoError(s.s.PutEnvironment(s.ctx, e))
		got, err := s.s.Environment(s.ctx, e.Key())
		s.NoError(err)
		s.Nil(got.LiveDeploymentID)
		s.Equal(e.Slug, got.Slug)
	},
	"PutConnector": func(s *stranger) {
		c := s.connector
		c.ProjectID, c.SecretDigest = s.project, []byte("another secret")
		s.NoError(s.s.PutConnector(s.ctx, c))
		route, err := s.s.Route(s.ctx, c.Key())
		s.NoError(err)
		s.False(route.Connector.Enabled, "its project has no such environment")
		s.Len(route.Connector.Secrets, 1)
		s.Empty(route.Links)
	},
	"DisableConnector": func(s *stranger) { s.NoError(s.s.DisableConnector(s.ctx, s.key(s.connector.ID), s.connector.Ref)) },
	"PutLink": func(s *stranger) {
		l := s.links[0]
		l.ProjectID = s.project
		s.NoError(s.s.PutLink(s.ctx, l))
	},
	"Remove": func(s *stranger) {
		e, c := s.environment, s.connector
		e.ProjectID, c.ProjectID = s.project, s.project
		s.NoError(s.s.PutEnvironment(s.ctx, e))
		s.NoError(s.s.PutConnector(s.ctx, c))
		for _, ref := range []store.ObjectRef{s.victim.project.Ref, s.environment.Ref, s.connector.Ref, s.links[0].Ref, s.building.Ref} {
			s.NoError(s.s.Remove(s.ctx, s.project, ref))
		}
	},
	"Route": func(s *stranger) {
		_, err := s.s.Route(s.ctx, s.key(s.connector.ID))
		s.none(err)
	},
	"Holder": func(s *stranger) {
		_, err := s.s.Holder(s.ctx, s.key(s.connector.ID))
		s.none(err)
	},
	"Holders": func(s *stranger) {
		holders, err := s.s.Holders(s.ctx, s.project, store.KindConnector)
		s.NoError(err)
		s.Empty(holders)
	},
	"Environment": func(s *stranger) {
		_, err := s.s.Environment(s.ctx, s.key(s.environment.ID))
		s.none(err)
	},
	"DefaultEnvironment": func(s *stranger) {
		_, err := s.s.DefaultEnvironment(s.ctx, s.project)
		s.none(err)
	},
	"Connector": func(s *stranger) {
		_, err := s.s.Connector(s.ctx, s.key(s.connector.ID))
		s.none(err)
	},
	"HasAgent": func(s *stranger) {
		has, err := s.s.HasAgent(s.ctx, s.key(s.live()), "first")
		s.NoError(err)
		s.False(has)
	},
	"AgentNames": func(s *stranger) {
		names, err := s.s.AgentNames(s.ctx, s.key(s.live()), 10)
		s.NoError(err)
		s.Empty(names)
	},
	"Agents": func(s *stranger) {
		agents, err := s.s.Agents(s.ctx, s.key(s.environment.ID))
		s.NoError(err)
		s.Empty(agents)
	},
	"AgentConfig": func(s *stranger) {
		_, _, err := s.s.AgentConfig(s.ctx, s.key(s.environment.ID), "first")
		s.none(err)
	},
	"RecordAudit": func(s *stranger) {
		_, err := s.s.RecordAudit(s.ctx, store.AuditEntry{
			ProjectID: s.project, Operation: "o", Actor: store.AuditActor{Kind: store.AuditAPIKey, Name: "theirs"},
		})
		s.NoError(err)
	},
	"RecordAuditOutcome": func(s *stranger) {
		s.NoError(s.s.RecordAuditOutcome(s.ctx, s.project, s.act, store.AuditOutcome{Status: 500}))
	},
	"ListAudit": func(s *stranger) {
		list, err := s.s.ListAudit(s.ctx, store.AuditQuery{ProjectID: s.project, Limit: 10})
		s.NoError(err)
		s.Empty(list)
	},
	"DerivationKey": func(s *stranger) {
		_, err := s.s.DerivationKey(s.ctx, s.key(s.connector.ID), 1)
		s.NoError(err)
	},
	"DerivationKeys": func(s *stranger) {
		keys, err := s.s.DerivationKeys(s.ctx, s.project, []uuid.UUID{s.connector.ID})
		s.NoError(err)
		s.Empty(keys)
	},
	"TakeRequest": func(s *stranger) {
		// What counts is another project's own.
		verdict, err := s.s.TakeRequest(s.ctx, s.project, store.RateLimit{Requests: 1000, Window: time.Hour})
		s.NoError(err)
		s.True(verdict.Allowed)
	},
	"Reseal": func(s *stranger) {
		// What has no such row has changed since: nothing is put anywhere.
		_ = s.s.Reseal(s.ctx, store.SealedField{Connector: s.key(s.connector.ID)}, []byte("theirs"), sealingOne)
	},
	"BeginDeployment": func(s *stranger) {
		spec := s.building
		spec.ProjectID = s.project
		d, err := s.s.BeginDeployment(s.ctx, spec)
		s.NoError(err)
		s.Equal(store.DeploymentPending, d.Status, "one of its own")
	},
	"Deployment": func(s *stranger) {
		_, err := s.s.Deployment(s.ctx, s.key(s.building.ID))
		s.none(err)
	},
	"ListDeployments": func(s *stranger) {
		list, err := s.s.ListDeployments(s.ctx, s.key(s.environment.ID))
		s.NoError(err)
		s.Empty(list)
	},
	"StartBuild": func(s *stranger) { s.none(s.s.StartBuild(s.ctx, s.key(s.building.ID))) },
	"EndDeployment": func(s *stranger) {
		s.none(s.s.EndDeployment(s.ctx, s.key(s.building.ID), store.DeploymentCancelled, "", ""))
	},
	"ReportBuild": func(s *stranger) {
		s.none(s.s.ReportBuild(s.ctx, s.key(s.building.ID), store.BuildReport{Phase: store.PhaseTesting}))
	},
	"AppendBuildLog": func(s *stranger) { s.none(s.s.AppendBuildLog(s.ctx, s.key(s.building.ID), 1, "not theirs")) },
	"BuildLog": func(s *stranger) {
		log, err := s.s.BuildLog(s.ctx, s.key(s.building.ID))
		s.NoError(err)
		s.Empty(log)
	},
	"FinishBuild": func(s *stranger) {
		s.none(s.s.FinishBuild(s.ctx, s.key(s.building.ID), store.BuildResult{BundleDigest: s.digest}))
	},
	"RequestPrefetch": func(s *stranger) { s.none(s.s.RequestPrefetch(s.ctx, s.key(s.environment.ID), s.digest)) },
	"Runners": func(s *stranger) {
		runners, err := s.s.Runners(s.ctx, s.key(s.environment.ID), time.Hour)
		s.NoError(err)
		s.Empty(runners)
	},
	"Activate": func(s *stranger) {
		_, err := s.s.Activate(s.ctx, store.Activation{Deployment: s.key(s.building.ID)})
		s.none(err)
	},
	"PutBlob": func(s *stranger) {
		_, err := s.s.PutBlob(s.ctx, s.key(s.blob), strings.NewReader("one's own"))
		s.NoError(err)
		r, err := s.s.OpenBlob(s.ctx, s.key(s.blob))
		s.Equal("one's own", string(s.readAll(r, err)))
	},
	"OpenBlob": func(s *stranger) {
		_, err := s.s.OpenBlob(s.ctx, s.key(s.blob))
		s.none(err)
	},
	"PutBundle": func(s *stranger) {
		_, err := s.s.PutBundle(s.ctx, s.project, s.digest, bytes.NewReader([]byte("a bundle of theirs")), 1<<20)
		s.NoError(err)
	},
	"NamesBundle": func(s *stranger) {
		s.none(s.s.NamesBundle(s.ctx, s.key(s.environment.ID), s.digest))
	},
	"OpenBundle": func(s *stranger) {
		_, err := s.s.OpenBundle(s.ctx, s.project, s.digest)
		s.none(err)
	},
	"Accept": func(s *stranger) {
		e := s.event
		e.ProjectID, e.ConnectorRunID = s.project, v7()
		admissions, err := s.s.Accept(s.ctx, []store.Event{e})
		s.NoError(err)
		s.Equal(store.Outdated, admissions[0].Verdict, "it has no such connector")
		c := s.connector
		c.ProjectID = s.project
		s.NoError(s.s.PutConnector(s.ctx, c))
		route, err := s.s.Route(s.ctx, c.Key())
		s.NoError(err)
		e.ConnectorVersion = route.Connector.Version
		admissions, err = s.s.Accept(s.ctx, []store.Event{e})
		s.NoError(err)
		s.none(admissions[0].Err) // it has no such blob
		e.InputBlob = nil
		admissions, err = s.s.Accept(s.ctx, []store.Event{e})
		s.NoError(err)
		s.Equal(store.Accepted, admissions[0].Verdict, "another project's key is another key")
	},
	"Claim": func(s *stranger) {
		claimed, err := s.s.Claim(s.ctx, store.Claim{
			Environment: s.key(s.environment.ID), RunnerID: "runner", Limit: 10, Lease: lease,
		})
		s.NoError(err)
		s.Empty(claimed)
	},
	"Heartbeat": func(s *stranger) {
		lost, err := s.s.Heartbeat(s.ctx, []store.Lease{s.lease()}, lease)
		s.NoError(err)
		s.Equal([]store.Lease{s.lease()}, lost)
	},
	"AppendJournal": func(s *stranger) {
		s.none(s.s.AppendJournal(s.ctx, s.lease(), []store.JournalEntry{entry(2, store.JournalModelAnswer, false)}))
	},
	"Complete": func(s *stranger) {
		s.none(s.s.Complete(s.ctx, store.Completion{Lease: s.lease(), Status: store.RunCompleted}))
	},
	"Release": func(s *stranger) { s.none(s.s.Release(s.ctx, s.lease())) },
	"Outcome": func(s *stranger) {
		_, err := s.s.Outcome(s.ctx, s.key(s.event.ConnectorRunID))
		s.none(err)
	},
	"Run": func(s *stranger) {
		_, err := s.s.Run(s.ctx, s.key(s.running.Run.ID))
		s.none(err)
	},
	"RunInput": func(s *stranger) {
		_, _, err := s.s.RunInput(s.ctx, s.key(s.running.Run.ID))
		s.none(err)
	},
	"Journal": func(s *stranger) {
		entries, err := s.s.Journal(s.ctx, s.key(s.running.Run.ID))
		s.NoError(err)
		s.Empty(entries)
	},
	"ListRuns": func(s *stranger) {
		runs, err := s.s.ListRuns(s.ctx, store.RunQuery{
			ProjectID: s.project, EnvironmentIDs: []uuid.UUID{s.environment.ID}, Limit: 10,
		})
		s.NoError(err)
		s.Empty(runs)
	},
	"ConnectorRun": func(s *stranger) {
		_, err := s.s.ConnectorRun(s.ctx, s.key(s.event.ConnectorRunID))
		s.none(err)
	},
	"ListConnectorRuns": func(s *stranger) {
		runs, total, err := s.s.ListConnectorRuns(s.ctx, store.ConnectorRunQuery{Connector: s.key(s.connector.ID), Limit: 10})
		s.NoError(err)
		s.Empty(runs)
		s.Zero(total)
	},
	"PutToken": func(s *stranger) {
		token := s.token
		token.SHA256, token.ProjectID = []byte(s.project.String()), s.project
		s.NoError(s.s.PutToken(s.ctx, token))
		_, err := s.s.Token(s.ctx, token.SHA256)
		s.none(err) // its project has no such environment
		got, err := s.s.Token(s.ctx, s.token.SHA256)
		s.NoError(err)
		s.Equal(s.token, got)
	},
}
