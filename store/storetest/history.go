// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing/iotest"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

var blobPromises = []promise{
	{"a blob is read as it was written", func(w *world) {
		for _, size := range []int{0, 1, store.BlobChunk, 2*store.BlobChunk + 7} {
			content, id := bytes.Repeat([]byte("ab\x00"), size/3+1)[:size], uuid.New()
			n, err := w.s.PutBlob(w.ctx, w.key(id), bytes.NewReader(content))
			w.NoError(err)
			w.EqualValues(size, n)
			r, err := w.s.OpenBlob(w.ctx, w.key(id))
			w.True(bytes.Equal(content, w.readAll(r, err)), size)
		}
		w.ErrorIs(errorOf(w.s.OpenBlob(w.ctx, w.key(uuid.New()))), store.ErrNotFound)
	}},
	{"an incomplete blob does not exist", func(w *world) {
		id, broken := uuid.New(), errors.New("broken")
		_, err := w.s.PutBlob(w.ctx, w.key(id), io.MultiReader(
			bytes.NewReader(make([]byte, store.BlobChunk+1)), iotest.ErrReader(broken)))
		w.ErrorIs(err, broken)
		w.ErrorIs(errorOf(w.s.OpenBlob(w.ctx, w.key(id))), store.ErrNotFound)
	}},
	{"an unmarked blob is deleted at once", func(w *world) {
		e, id, kept := w.singleEvent(), uuid.New(), newUUIDv7()
		for _, blob := range []uuid.UUID{id, kept} {
			w.NoError(errorOf(w.s.PutBlob(w.ctx, w.key(blob), strings.NewReader("content"))))
		}
		e.Input, e.InputBlob = nil, &kept
		w.accept(&e)
		w.NoError(w.s.DropBlob(w.ctx, w.key(id)))
		w.ErrorIs(errorOf(w.s.OpenBlob(w.ctx, w.key(id))), store.ErrNotFound)
		w.NoError(w.s.DropBlob(w.ctx, w.key(id)), "it no longer exists")
		w.ErrorIs(w.s.DropBlob(w.ctx, w.key(kept)), store.ErrConflict)
		_, body, err := w.s.RunInput(w.ctx, w.key(e.Runs[0].ID))
		w.Equal("content", string(w.readAll(body, err)))
	}},
	{"a bundle has its digest and its size", func(w *world) {
		digest := w.putBundle("content")
		r, err := w.s.OpenBundle(w.ctx, w.project.ID, digest)
		w.Equal("content", string(w.readAll(r, err)))
		w.Equal(digest, w.putBundle("content"), "storing it again keeps it")
		w.ErrorIs(errorOf(w.s.OpenBundle(w.ctx, uuid.New(), digest)), store.ErrNotFound, "another project does not have it")

		wrong := "sha256:" + strings.Repeat("0", 64)
		w.ErrorIs(errorOf(w.s.PutBundle(w.ctx, w.key(uuid.New()), wrong, strings.NewReader("content"), 1<<20)), store.ErrConflict)
		w.ErrorIs(errorOf(w.s.OpenBundle(w.ctx, w.project.ID, wrong)), store.ErrNotFound)
		w.ErrorIs(errorOf(w.s.PutBundle(w.ctx, w.key(uuid.New()), wrong, strings.NewReader("content"), 3)), store.ErrConflict)
		gone := errors.New("the build is deleted")
		_, err = w.s.PutBundle(w.ctx, w.key(uuid.New()), wrong, brokenOff{strings.NewReader(variedText(store.BlobChunk + 1)), gone}, 1<<20)
		w.ErrorIs(err, gone)
		w.EqualValues(1, w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1`), "nothing is left of incomplete ones")
	}},
	{"a bundle is counted once, and deleted after a day without a build", func(w *world) {
		stored := func() int64 { return w.storage() - w.ofDeployments() }
		w.putBundle("unnamed")
		w.putBundle("unnamed")
		w.EqualValues(len("unnamed"), stored())
		named := w.build("one", "first")
		both := stored()
		w.Equal(int64(len("unnamed")+len("bundle of one")), both)
		w.uploadsAge(store.BundleAge.Microseconds() - 60e6)
		w.putBundle("unnamed") // for another day
		w.uploadsAge(61e6)
		w.sweepUploads()
		w.Equal(both, stored())
		w.uploadsAge(store.BundleAge.Microseconds())
		w.uploadsAge(store.BundleAge.Microseconds() + 1)
		w.sweepUploads()
		w.EqualValues(len("bundle of one"), stored())
		w.EqualValues(1, w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1`))
		r, err := w.s.OpenBundle(w.ctx, w.project.ID, w.deployment(named.ID).BundleDigest)
		w.Equal("bundle of one", string(w.readAll(r, err)))
	}},
	{"a deployment has one bundle until its build has ended", func(w *world) {
		bundles := func() []int64 {
			return []int64{
				w.queryCount(`SELECT count(*) FROM bundles WHERE project_id = $1`), w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1 AND mark = 'bundle'`),
				w.storage() - w.ofDeployments(),
			}
		}
		building := func(spec store.DeploymentSpec) store.DeploymentSpec {
			w.startBuild(spec)
			return spec
		}
		one := building(w.newDeployment("one"))
		first := w.putBundleOf(one.ID, "first")
		w.Equal(first, w.putBundleOf(one.ID, "first"), "again")
		w.putBundleOf(one.ID, "the second")
		w.Equal([]int64{1, 1, int64(len("the second"))}, bundles())
		w.ErrorIs(errorOf(w.s.OpenBundle(w.ctx, w.project.ID, first)), store.ErrNotFound)
		w.ErrorIs(w.s.FinishBuild(w.ctx, one.Key(), store.BuildResult{BundleDigest: first}), store.ErrNotFound)

		staging := w.newEnvironment("staging", origin)
		w.NoError(w.s.PutEnvironment(w.ctx, staging))
		spec := w.newDeployment("two")
		spec.EnvironmentID = staging.ID
		two := building(spec)
		shared := w.putBundleOf(two.ID, "the second")
		last := w.putBundleOf(one.ID, "last")
		w.Equal([]int64{2, 2, int64(len("the second") + len("last"))}, bundles(), "another build has stored the replaced bundle")
		w.NoError(w.s.FinishBuild(w.ctx, two.Key(), store.BuildResult{BundleDigest: shared}))
		w.putBundleOf(one.ID, "the second")
		w.Equal([]int64{1, 1, int64(len("the second"))}, bundles())
		w.putBundleOf(one.ID, "last")
		w.Equal([]int64{2, 2, int64(len("the second") + len("last"))}, bundles(), "another build has ended with the replaced bundle")

		w.NoError(w.s.FinishBuild(w.ctx, one.Key(), store.BuildResult{BundleDigest: last}))
		w.putBundleOf(one.ID, "last")
		w.ErrorIs(errorOf(w.s.PutBundle(w.ctx, one.Key(), digestOf("more"), strings.NewReader("more"), 1<<20)), store.ErrConflict)
		_, err := w.s.PutBundle(w.ctx, one.Key(), shared, strings.NewReader("the second"), 1<<20)
		w.ErrorIs(err, store.ErrConflict, "nor is an existing one")
		w.Equal([]int64{2, 2, int64(len("the second") + len("last"))}, bundles())
		w.EqualValues(2, w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1`), "nothing is left of rejected and replaced ones")
	}},
	{"a project with full storage stores no further bundle", func(w *world) {
		w.putBundle("content")
		w.project.Limits.Storage = int64(len("content"))
		w.project.Ref.Generation++
		w.NoError(w.s.PutProject(w.ctx, w.project))
		w.putBundle("content")
		_, err := w.s.PutBundle(w.ctx, w.key(uuid.New()), "sha256:"+strings.Repeat("0", 64), strings.NewReader("more"), 1<<20)
		var full *store.StorageFullError
		w.ErrorAs(err, &full)
		w.Equal(store.StorageFullError{Stored: w.project.Limits.Storage, Limit: w.project.Limits.Storage}, *full)
		w.EqualValues(1, w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1`))
	}},
}

// listAllRuns returns the IDs of runs on all pages of a list.
func (w *world) listAllRuns(q store.RunQuery) (ids []uuid.UUID) {
	for {
		page, next, err := w.s.ListRuns(w.ctx, q)
		w.NoError(err)
		w.LessOrEqual(len(page), q.Limit)
		for _, run := range page {
			ids = append(ids, run.ID)
		}
		if next == nil {
			return ids
		}
		q.Before = next
	}
}

var historyPromises = []promise{
	{"the environments of open and ended runs are read together", withAgent(func(w *world) {
		w.endEvents(1)
		_, open := w.running(lease)
		runs := w.listRuns(store.RunQuery{ProjectID: w.project.ID, Limit: 10})
		w.Len(runs, 2)
		found, err := w.s.RunEnvironments(w.ctx, w.project.ID, []uuid.UUID{newUUIDv7(), runs[1].ID, runs[0].ID, runs[1].ID})
		w.NoError(err)
		w.Equal(open.Run.ID, runs[0].ID)
		w.Equal(map[uuid.UUID]uuid.UUID{runs[0].ID: w.environment.ID, runs[1].ID: w.environment.ID}, found)
		found, err = w.s.RunEnvironments(w.ctx, w.project.ID, nil)
		w.NoError(err)
		w.Empty(found)
	})},
	{"an ended run has the context that its scripts set", withAgent(func(w *world) {
		w.singles(3)
		runs := w.claim(3, lease)
		one := completed(runs[0])
		one.Context = json.RawMessage(`{"customer":"acme","n":9007199254740993}`)
		large := completed(runs[1])
		large.Context = json.RawMessage(`{"x":"` + strings.Repeat("x", store.MaxContext) + `"}`)
		none := completed(runs[2])
		for _, c := range []store.Completion{one, large, none} {
			w.NoError(w.complete(c))
		}
		got, err := w.s.Run(w.ctx, one.Run)
		w.NoError(err)
		w.Equal(one.Context, got.Context)
		got, err = w.s.Run(w.ctx, large.Run)
		w.NoError(err)
		w.Equal(runerror.ContextTooLarge, got.ErrorCode)
		got, err = w.s.Run(w.ctx, none.Run)
		w.NoError(err)
		w.Nil(got.Context)
	})},
	{"an ended run has the reason for the end of its last model answer", withAgent(func(w *world) {
		w.singles(3)
		runs := w.claim(3, lease)
		cut, none, invalid := completed(runs[0]), completed(runs[1]), completed(runs[2])
		cut.FinishReason, invalid.FinishReason = "length", "NO CODE"
		for _, c := range []store.Completion{cut, none, invalid} {
			w.NoError(w.complete(c))
		}
		for run, want := range map[store.Key]string{cut.Run: "length", none.Run: "", invalid.Run: ""} {
			got, err := w.s.Run(w.ctx, run)
			w.NoError(err)
			w.Equal(want, got.FinishReason)
			w.Equal(run == invalid.Run, got.ErrorCode == runerror.ReportInvalid)
		}
		listed := w.listRuns(store.RunQuery{ProjectID: cut.Run.ProjectID, Limit: 10})
		w.Len(listed, 3)
		for _, r := range listed {
			w.Equal(r.ID == cut.Run.ID, r.FinishReason == "length")
		}
	})},
	{"lists have contexts that are not large", withAgent(func(w *world) {
		w.singles(3)
		want := map[uuid.UUID]string{}
		for i, text := range []string{
			`{"customer":"acme"}`, `{"x":"` + strings.Repeat("é", store.MaxListedContext/2) + `"}`, `{"x":"` + strings.Repeat("x", store.MaxListedContext-8) + `"}`,
		} {
			done := completed(w.claim(1, lease)[0])
			done.Output, done.Context = "done", json.RawMessage(text)
			w.NoError(w.complete(done))
			if want[done.Run.ID] = text; i == 1 {
				want[done.Run.ID] = ""
			}
		}
		every := &store.Search{Match: func(context.Context, store.Searched) bool { return true }}
		for _, search := range []*store.Search{nil, every} {
			runs := w.listRuns(store.RunQuery{ProjectID: w.project.ID, Limit: 10, Search: search})
			got := map[uuid.UUID]string{}
			for _, run := range runs {
				got[run.ID] = string(run.Context)
				w.Empty(run.Output)
			}
			w.Equal(want, got)
		}
	})},
	{"missing rows are not found", func(w *world) {
		w.ErrorIs(errorOf(w.s.Run(w.ctx, w.key(uuid.New()))), store.ErrNotFound)
		w.ErrorIs(errorOf(w.s.Outcome(w.ctx, w.key(uuid.New()))), store.ErrNotFound)
		w.ErrorIs(errorOf(w.s.ConnectorRun(w.ctx, w.key(uuid.New()))), store.ErrNotFound)
		_, _, err := w.s.RunInput(w.ctx, w.key(uuid.New()))
		w.ErrorIs(err, store.ErrNotFound)
	}},
	{"runs are listed newest first, by page", withAgent(func(w *world) {
		var events []store.Event
		for range 5 {
			events = append(events, w.event())
		}
		w.acceptAll(events)
		got := w.listAllRuns(store.RunQuery{ProjectID: w.project.ID, AgentName: "second", Limit: 2})
		w.Len(got, 5)
		for i, id := range got {
			w.Equal(events[len(events)-1-i].Runs[1].ID, id)
		}
	})},
	{"a page with few matches reaches any distance", withAgent(func(w *world) {
		w.singles(150)
		var first []uuid.UUID
		for _, run := range w.claim(3, lease) {
			w.NoError(w.complete(completed(run)))
			first = append([]uuid.UUID{run.Run.ID}, first...)
		}
		query := store.RunQuery{ProjectID: w.project.ID, Statuses: []store.RunStatus{store.RunQueued}, Limit: 7}
		w.Len(w.listAllRuns(query), 150-len(first))
		for query.Limit = 1; query.Limit <= 4; query.Limit++ {
			query.Statuses = []store.RunStatus{store.RunCompleted}
			w.Equal(first, w.listAllRuns(query))
		}
	})},
	{"rollups take as many rows as requested", withAgent(func(w *world) {
		const ends = 300 // one outbox row each: more than one transaction takes
		w.singles(ends)
		for done := 0; done < ends; done++ {
			w.NoError(w.complete(completed(w.claim(1, lease)[0])))
		}
		n, err := w.s.RollUp(w.ctx, ends-1)
		w.NoError(err)
		w.Equal(ends-1, n)
		n, err = w.s.RollUp(w.ctx, ends)
		w.NoError(err)
		w.Equal(1, n)
	})},
	{"runs are filtered by environment and status", withAgents(func(w *world) {
		w.acceptAll([]store.Event{w.event(), w.event()})
		w.Len(w.claim(1, lease), 1)
		w.NoError(w.complete(completed(w.claim(1, lease)[0])))
		lost := completed(w.claim(1, lease)[0])
		lost.Status = store.RunFailed
		w.NoError(w.complete(lost))
		for _, c := range []struct {
			query store.RunQuery
			want  int
		}{
			{store.RunQuery{ProjectID: w.project.ID}, 4},
			{store.RunQuery{ProjectID: w.project.ID, Statuses: []store.RunStatus{store.RunRunning}}, 1},
			{store.RunQuery{ProjectID: w.project.ID, Statuses: []store.RunStatus{store.RunQueued}}, 1},
			{store.RunQuery{ProjectID: w.project.ID, Statuses: []store.RunStatus{store.RunFailed}}, 1},
			{store.RunQuery{ProjectID: w.project.ID, Statuses: []store.RunStatus{store.RunCompleted}}, 1},
			{store.RunQuery{ProjectID: w.project.ID, Statuses: []store.RunStatus{store.RunFailed, store.RunCompleted}}, 2},
			{store.RunQuery{ProjectID: w.project.ID, Statuses: []store.RunStatus{store.RunQueued, store.RunFailed, store.RunFailed}}, 2},
			{store.RunQuery{ProjectID: w.project.ID, Statuses: []store.RunStatus{store.RunCancelled, store.RunRunning}}, 1},
			{store.RunQuery{ProjectID: w.project.ID, AgentName: "first"}, 2},
			{store.RunQuery{ProjectID: w.project.ID, AgentName: "first", Statuses: []store.RunStatus{store.RunCancelled}}, 0},
			{store.RunQuery{ProjectID: w.project.ID, AgentName: "first\x00\xff"}, 0},
			{store.RunQuery{ProjectID: w.project.ID, EnvironmentIDs: []uuid.UUID{w.environment.ID}}, 4},
			{store.RunQuery{ProjectID: w.project.ID, EnvironmentIDs: []uuid.UUID{uuid.New()}}, 0},
			{store.RunQuery{ProjectID: uuid.New()}, 0},
		} {
			c.query.Limit = 10
			runs, next, err := w.s.ListRuns(w.ctx, c.query)
			w.NoError(err)
			w.Len(runs, c.want, c.query)
			w.Nil(next)
		}
	})},
	{"a list reads a limited number of queued runs of other agents", func(w *world) {
		spec := w.deploy("one", "first")
		w.acceptEvent(w.singleEvent())
		run := w.claim(1, lease)[0].Run
		w.manyQueued(store.TimeOf(run.ID), store.MaxCandidates)
		for name, q := range map[string]store.RunQuery{
			"agent":      {AgentName: "first"},
			"deployment": {DeploymentID: spec.ID},
		} {
			q.ProjectID, q.Limit = w.project.ID, 10
			runs, next, err := w.s.ListRuns(w.ctx, q)
			w.NoError(err)
			w.Empty(runs, name)
			w.NotNil(next, name)
			q.Before = next
			runs, next, err = w.s.ListRuns(w.ctx, q)
			w.NoError(err)
			w.Len(runs, 1, name)
			w.Nil(next, name)
		}
	}},
	{"connector runs are listed newest first, with their total", func(w *world) {
		events := []store.Event{w.singleEvent(), w.event(), w.singleEvent()}
		events[2].Trigger = store.TriggerCron
		w.acceptAll(events)
		list := func(q store.ConnectorRunQuery) ([]store.ConnectorRun, int64) {
			q.Connector = w.connector.Key()
			runs, total := w.listConnectorRuns(q)
			return runs, total
		}
		runs, total := list(store.ConnectorRunQuery{Limit: 2})
		w.EqualValues(3, total)
		w.Len(runs, 2)
		w.Equal(events[2].ConnectorRunID, runs[0].ID)
		w.Equal([]uuid.UUID{events[1].Runs[0].ID, events[1].Runs[1].ID}, runs[1].RunIDs)
		runs, total = list(store.ConnectorRunQuery{Limit: 2, Offset: 2})
		w.EqualValues(3, total)
		w.Len(runs, 1)
		w.Equal(events[0].ConnectorRunID, runs[0].ID)
		runs, total = list(store.ConnectorRunQuery{Trigger: store.TriggerCron, Limit: 10})
		w.EqualValues(1, total)
		w.Len(runs, 1)
		_, total = list(store.ConnectorRunQuery{Statuses: []store.ConnectorRunStatus{store.ConnectorRunFailed}, Limit: 10})
		w.Zero(total)
		_, total = list(store.ConnectorRunQuery{Since: time.Hour, Limit: 10})
		w.EqualValues(3, total)
	}},
}

var tokenPromises = []promise{
	{"an environment has one runner token", func(w *world) {
		token := store.Token{
			SHA256: []byte("one"), Kind: store.TokenRunner, ProjectID: w.project.ID, EnvironmentID: w.environment.ID,
		}
		w.NoError(w.s.PutToken(w.ctx, token))
		w.NoError(w.s.PutToken(w.ctx, token), "again")
		got, err := w.s.Token(w.ctx, token.SHA256)
		w.NoError(err)
		w.Equal(token, got)
		next := token
		next.SHA256 = []byte("two")
		w.NoError(w.s.PutToken(w.ctx, next))
		w.ErrorIs(errorOf(w.s.Token(w.ctx, token.SHA256)), store.ErrNotFound)
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.environment.Ref))
		w.ErrorIs(errorOf(w.s.Token(w.ctx, next.SHA256)), store.ErrNotFound, "the environment is deleted")
		again := w.environment
		again.Ref.ObjectUID = "second incarnation"
		w.NoError(w.s.PutEnvironment(w.ctx, again))
		w.ErrorIs(errorOf(w.s.Token(w.ctx, next.SHA256)), store.ErrNotFound, "and the re-created one is another")
	}},
	{"a build's token ends with its deployment", func(w *world) {
		spec := w.beginNew("one")
		token := store.Token{
			SHA256: []byte("build"), Kind: store.TokenBuild, ProjectID: w.project.ID, EnvironmentID: w.environment.ID,
			DeploymentID: &spec.ID,
		}
		runner := store.Token{
			SHA256: []byte("runner"), Kind: store.TokenRunner, ProjectID: w.project.ID, EnvironmentID: w.environment.ID,
		}
		w.NoError(w.s.PutToken(w.ctx, token))
		w.NoError(w.s.PutToken(w.ctx, runner))
		got, err := w.s.Token(w.ctx, token.SHA256)
		w.NoError(err)
		w.Equal(token, got)
		w.NoError(w.s.EndDeployment(w.ctx, spec.Key(), store.DeploymentCancelled, "", "cancelled"))
		w.ErrorIs(errorOf(w.s.Token(w.ctx, token.SHA256)), store.ErrNotFound)
		w.NoError(errorOf(w.s.Token(w.ctx, runner.SHA256)))
	}},
}
