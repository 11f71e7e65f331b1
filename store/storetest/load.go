// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// projectLoad measures the project.
func (w *world) projectLoad() store.ProjectLoad {
	load, err := w.s.ProjectLoad(w.ctx, w.project.ID)
	w.NoError(err)
	return load
}

// expireRuns ends runs older than age, at most limit.
func (w *world) expireRuns(age time.Duration, limit int) int {
	w.nextMillisecond()
	n, err := w.s.ExpireRuns(w.ctx, age, limit)
	w.NoError(err)
	return n
}

var loadPromises = []promise{
	{"limits are the latest written ones", func(w *world) {
		w.Equal(w.project.Limits, w.projectLoad().Limits)
		for _, limits := range []store.ProjectLimits{{BacklogRuns: 1}, {BacklogInput: 2}, {Storage: 3}, {RequestsPerMinute: 4}, {}} {
			w.project.Limits = limits
			w.NoError(w.s.PutProject(w.ctx, w.project))
			w.Equal(limits, w.projectLoad().Limits)
		}
		w.ErrorIs(errorOf(w.s.ProjectLoad(w.ctx, uuid.New())), store.ErrNotFound)
	}},
	{"the backlog counts open runs by environment", withAgents(func(w *world) {
		w.Empty(w.projectLoad().Backlog)
		both, one := w.event(), w.singleEvent()
		w.accept(&both, &one)
		w.twinProject()
		input := int64(len(both.Input))
		w.Equal(map[uuid.UUID]store.Backlog{w.environment.ID: {Runs: 3, Input: 2 * input}}, w.projectLoad().Backlog)
		for left := range int64(3) {
			w.NoError(w.complete(completed(w.claim(1, lease)[0])))
			w.Equal(2-left, w.projectLoad().Backlog[w.environment.ID].Runs)
		}
		w.Empty(w.projectLoad().Backlog)
	})},
	{"the backlog of a project without a limit is not counted", withAgent(func(w *world) {
		w.singles(2)
		for _, limits := range []struct {
			store.ProjectLimits
			counted bool
		}{{store.ProjectLimits{Storage: 1}, false}, {store.ProjectLimits{BacklogRuns: 1}, true}, {store.ProjectLimits{BacklogInput: 1}, true}} {
			w.project.Limits = limits.ProjectLimits
			w.NoError(w.s.PutProject(w.ctx, w.project))
			_, counted := w.projectLoad().Backlog[w.environment.ID]
			w.Equal(limits.counted, counted, "%+v", limits.ProjectLimits)
		}
	})},
	{"open runs of a deleted connector count", withAgent(func(w *world) {
		w.singles(2)
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.connector.Ref))
		w.EqualValues(2, w.projectLoad().Backlog[w.environment.ID].Runs)
	})},
	{"an event without runs counts as stored", func(w *world) {
		e := w.event()
		e.Runs, e.Input = nil, make([]byte, 1000)
		w.accept(&e)
		w.countStored(10)
		w.EqualValues(1000, w.projectLoad().Stored)
	}},
	{"a run that is open too long ends in any state", withAgent(func(w *world) {
		suspended, running, queued := w.oneRunning(), w.oneRunning(), w.singles(3)
		w.suspend(suspended, time.Hour)
		w.Zero(w.expireRuns(time.Hour, 10), "not yet")
		w.Equal(2, w.expireRuns(0, 2), "as many as requested, the oldest first")
		w.Equal(store.RunQueued, w.run(queued[0].Runs[0].ID).Status)
		w.Equal(3, w.expireRuns(0, 10))
		w.Zero(w.expireRuns(0, 10))
		for _, id := range []uuid.UUID{suspended.Run.ID, running.Run.ID, queued[0].Runs[0].ID, queued[2].Runs[0].ID} {
			run := w.run(id)
			w.Equal(store.RunFailed, run.Status)
			w.Equal(runerror.Expired, run.ErrorCode)
			w.NotEmpty(run.Error)
		}
		w.ErrorIs(w.complete(completed(running)), store.ErrFenced, "its runner is too late")
		w.Equal(store.ConnectorRunFailed, w.outcome(queued[1].ConnectorRunID).Status)
	})},
	{"expired runs of projects end round robin", func(w *world) {
		other := w.twinProject()
		other.singles(3)
		w.singles(3)
		left := func() [2]int64 {
			return [2]int64{w.projectLoad().Backlog[w.environment.ID].Runs, other.projectLoad().Backlog[w.environment.ID].Runs}
		}
		w.Equal(2, w.expireRuns(0, 2))
		w.Equal([2]int64{2, 2}, left())
		w.Equal(4, w.expireRuns(0, 100))
		w.Equal([2]int64{}, left())
	}},
}

// oneRunning returns a run in progress.
func (w *world) oneRunning() store.Claimed {
	_, c := w.running(lease)
	return c
}
