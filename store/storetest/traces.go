// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// exporting makes the project export its traces.
func (w *world) exporting() store.Telemetry {
	t := store.Telemetry{
		Endpoint: "https://otlp.example", WithContent: true, SamplePercent: 50, Environments: []uuid.UUID{w.environment.ID},
		SealedHeaders: []byte("sealed"), SealedKey: "key",
	}
	w.project.Telemetry = &t
	w.NoError(w.s.PutProject(w.ctx, w.project))
	return t
}

// endsRun accepts and completes a run.
func (w *world) endsRun() uuid.UUID {
	e := w.single()
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
	{"ended runs of a project that exports traces are due once per lease", func(w *world) {
		w.deploy("one", "first")
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
	}},
	{"old traces are dropped", func(w *world) {
		w.deploy("one", "first")
		w.exporting()
		w.endsRun()
		w.endsRun()
		n, err := w.s.DropTraces(w.ctx, time.Hour, 10)
		w.NoError(err)
		w.Zero(n)
		n, err = w.s.DropTraces(w.ctx, 0, 1)
		w.NoError(err)
		w.Equal(1, n)
		w.Len(w.dueTraces(0)[0].Runs, 1)
		w.project.Telemetry = nil
		w.NoError(w.s.PutProject(w.ctx, w.project))
		w.Empty(w.dueTraces(0), "the project exports none")
		n, err = w.s.DropTraces(w.ctx, 0, 10)
		w.NoError(err)
		w.Equal(1, n)
	}},
	{"a run has the traceparent of its event", func(w *world) {
		w.deploy("one", "first")
		e := w.single()
		e.Traceparent = traceparent
		w.accept(&e)
		for range 2 { // open, then ended
			text, err := w.s.RunTraceparent(w.ctx, w.key(e.Runs[0].ID))
			w.NoError(err)
			w.Equal(traceparent, text)
			for _, run := range w.claim(1, lease) {
				w.NoError(w.complete(completed(run)))
			}
		}
		text, err := w.s.RunTraceparent(w.ctx, w.key(v7()))
		w.NoError(err)
		w.Empty(text)
	}},
}
