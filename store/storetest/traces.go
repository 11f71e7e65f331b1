// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// exporting makes the project export its traces.
func (w *world) exporting() store.Telemetry {
	t := store.Telemetry{
		Endpoint: "https://otlp.example", WithContent: true, SamplePercent: 100, Environments: []uuid.UUID{w.environment.ID},
		SealedHeaders: []byte("sealed"), SealedKey: "key",
	}
	w.project.Telemetry = &t
	w.NoError(w.s.PutProject(w.ctx, w.project))
	return t
}

// endsRun accepts and completes a run.
func (w *world) endsRun() uuid.UUID {
	e := w.singleEvent()
	e.Traceparent = traceparent
	w.accept(&e)
	run := w.claim(1, lease)[0]
	w.NoError(w.complete(completed(run)))
	return run.Run.ID
}

// dueTraces claims traces.
func (w *world) dueTraces(hold time.Duration, without ...uuid.UUID) []store.DueTraces {
	due, err := w.s.ClaimTraces(w.ctx, store.TraceClaim{Without: without, Projects: 10, Runs: 10, Lease: hold})
	w.NoError(err)
	return due
}

var tracePromises = []promise{
	{"ended runs of a project that exports traces are due once per lease", withAgent(func(w *world) {
		w.endsRun()
		w.Empty(w.dueTraces(0), "the project exports none")
		found, err := w.s.ProjectTelemetry(w.ctx, w.project.ID)
		w.NoError(err)
		w.Nil(found)
		telemetry := w.exporting()
		found, err = w.s.ProjectTelemetry(w.ctx, w.project.ID)
		w.NoError(err)
		w.Equal(&telemetry, found)
		run := w.endsRun()
		want := []store.DueTraces{{ProjectID: w.project.ID, Telemetry: telemetry, Runs: []uuid.UUID{run}}}
		w.Empty(w.dueTraces(0, w.project.ID))
		w.Equal(want, w.dueTraces(0))
		w.Equal(want, w.dueTraces(time.Hour), "the lease has ended")
		w.Empty(w.dueTraces(0))
		w.NoError(w.s.DelayTraces(w.ctx, uuid.New(), []uuid.UUID{run}, 0))
		w.Empty(w.dueTraces(0), "of another project")
		w.NoError(w.s.DelayTraces(w.ctx, w.project.ID, []uuid.UUID{run}, 0))
		w.Equal(want, w.dueTraces(0))
		w.NoError(w.s.EndTraces(w.ctx, uuid.New(), []uuid.UUID{run}))
		w.Equal(want, w.dueTraces(0), "of another project")
		w.NoError(w.s.EndTraces(w.ctx, w.project.ID, []uuid.UUID{run}))
		w.Empty(w.dueTraces(0))
	})},
	{"old traces are dropped", withAgent(func(w *world) {
		w.exporting()
		w.endsRun()
		w.endsRun()
		w.requireNone(w.s.DropTraces(w.ctx, time.Hour, 10))
		n, err := w.s.DropTraces(w.ctx, 0, 1)
		w.NoError(err)
		w.Equal(1, n)
		w.Len(w.dueTraces(0)[0].Runs, 1)
		w.project.Telemetry = nil
		w.NoError(w.s.PutProject(w.ctx, w.project))
		w.Empty(w.dueTraces(0), "the project exports none")
		n, err = w.s.DropTraces(w.ctx, 0, 10)
		w.NoError(err)
		w.Equal(1, n)
	})},
	{"a claim can name its projects", withAgent(func(w *world) {
		w.exporting()
		run := w.endsRun()
		other := w.twinProject()
		other.deploy("one", "first")
		other.exporting()
		theirs := other.endsRun()
		for of, want := range map[uuid.UUID]uuid.UUID{w.project.ID: run, other.project.ID: theirs} {
			due, err := w.s.ClaimTraces(w.ctx, store.TraceClaim{Only: []uuid.UUID{of}, Runs: 10, Lease: time.Hour})
			w.NoError(err)
			w.Len(due, 1)
			w.Equal([]uuid.UUID{want}, due[0].Runs)
			due, err = w.s.ClaimTraces(w.ctx, store.TraceClaim{Only: []uuid.UUID{of}, Runs: 10})
			w.NoError(err)
			w.Empty(due, "it has no due runs")
		}
	})},
	{"only runs of the sample and its environments are due", withAgent(func(w *world) {
		telemetry := w.exporting()
		for _, row := range []struct {
			percent      int
			environments []uuid.UUID
			isCovered    bool
		}{
			{0, nil, true}, {100, nil, true}, {50, []uuid.UUID{}, true},
			{100, []uuid.UUID{newUUIDv7()}, false}, {100, []uuid.UUID{newUUIDv7(), w.environment.ID}, true},
		} {
			telemetry.SamplePercent, telemetry.Environments = row.percent, row.environments
			w.project.Telemetry = &telemetry
			w.NoError(w.s.PutProject(w.ctx, w.project))
			want, due := []uuid.UUID{}, []uuid.UUID{}
			for range 8 {
				if run := w.endsRun(); row.isCovered && store.TraceBucket(run) < row.percent {
					want = append(want, run)
				}
			}
			for _, d := range w.dueTraces(0) {
				due = append(due, d.Runs...)
			}
			w.ElementsMatch(want, due, "%d percent of %v", row.percent, row.environments)
			w.NoError(w.s.EndTraces(w.ctx, w.project.ID, due))
		}
	})},
	{"an export that no database can read as JSON lets runs of all projects end", withAgent(func(w *world) {
		other := w.twinProject()
		other.deploy("one", "first")
		telemetry := w.exporting()
		telemetry.Endpoint = "https://otlp.example/\x00\xff\\u0000"
		w.project.Telemetry = &telemetry
		w.NoError(w.s.PutProject(w.ctx, w.project))
		var ends []store.Completion
		for _, of := range []*world{w, other} {
			of.acceptEvent(of.singleEvent())
			ends = append(ends, completed(of.claim(1, lease)[0]))
		}
		results, err := w.s.Complete(w.ctx, ends)
		w.NoError(err)
		w.Equal([]error{nil, nil}, results)
		telemetry.Endpoint = "https://otlp.example/\uFFFD\uFFFD\\u0000"
		w.Equal([]store.DueTraces{{ProjectID: w.project.ID, Telemetry: telemetry, Runs: []uuid.UUID{ends[0].Run.ID}}}, w.dueTraces(0))
	})},
	{"the trace of an erased run is not exported", withAgent(func(w *world) {
		w.exporting()
		erased, other := w.endsRun(), w.endsRun()
		w.NoError(w.s.EraseRun(w.ctx, w.key(erased)))
		w.Equal([]uuid.UUID{other}, w.dueTraces(0)[0].Runs)
	})},
	{"ended runs are read with their traceparents", withAgent(func(w *world) {
		traced, erased := w.endsRun(), w.endsRun()
		e := w.acceptEvent(w.singleEvent())
		plain := e.Runs[0].ID
		read := func() []store.TracedRun {
			found, err := w.s.TracedRuns(w.ctx, w.project.ID, []uuid.UUID{plain, newUUIDv7(), erased, traced})
			w.NoError(err)
			return found
		}
		w.Len(read(), 2, "one is open")
		w.NoError(w.complete(completed(w.claim(1, lease)[0])))
		w.NoError(w.s.EraseRun(w.ctx, w.key(erased)))
		want := []store.TracedRun{{Run: w.run(traced), Traceparent: traceparent}, {Run: w.run(plain)}}
		for i := range want {
			deployment, err := w.s.Deployment(w.ctx, w.key(*want[i].Run.DeploymentID))
			w.NoError(err)
			w.NotEmpty(deployment.BundleDigest)
			want[i].BundleDigest = deployment.BundleDigest
			want[i].Run = store.Run{
				ID: want[i].Run.ID, ProjectID: w.project.ID, EnvironmentID: w.environment.ID, AgentName: "first", Status: store.RunCompleted,
				Attempt: 1, QueuedAt: want[i].Run.QueuedAt, StartedAt: want[i].Run.StartedAt, EndedAt: want[i].Run.EndedAt,
			}
		}
		w.Equal(want, read())
	})},
	{"journals of many runs are read together", withAgent(func(w *world) {
		const many = store.MaxEntries*2/3 + 1 // a page ends within the second run
		want, runs := map[uuid.UUID][]store.JournalEntry{}, []uuid.UUID{}
		for _, count := range []int64{many, many, 0, 1} {
			_, c := w.running(lease)
			var entries []store.JournalEntry
			for i := range count {
				entries = append(entries, answerOfSize(i+1, 100))
			}
			if count == 1 {
				entries[0] = answerOfSize(1, store.MaxModelAnswer) // in a blob
			}
			if count > 0 {
				w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), entries))
				want[c.Run.ID] = entries
			}
			w.NoError(w.complete(completed(c)))
			runs = append([]uuid.UUID{c.Run.ID}, runs...)
		}
		got, order := map[uuid.UUID][]store.JournalEntry{}, []uuid.UUID{}
		w.NoError(w.s.RunJournals(w.ctx, w.project.ID, runs, func(run uuid.UUID, e store.JournalEntry) error {
			if len(got[run]) == 0 {
				order = append(order, run)
			}
			got[run] = append(got[run], e)
			return nil
		}))
		w.Len(got, len(want))
		for run, entries := range want {
			w.sameEntries(entries, got[run])
		}
		w.True(slices.IsSortedFunc(order, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }))
		enough, visits := errors.New("enough"), 0
		w.ErrorIs(w.s.RunJournals(w.ctx, w.project.ID, runs, func(uuid.UUID, store.JournalEntry) error {
			visits++
			return enough
		}), enough)
		w.Equal(1, visits)
	})},
}
