// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// keyedBy are the concurrency settings of a deployment's agents.
type keyedBy map[string]store.Concurrency

// deployKeyed makes a new deployment with these settings live.
func (w *world) deployKeyed(name string, by keyedBy, agents ...string) {
	spec := w.startBuild(w.newDeployment(name))
	result := w.buildResult("bundle of "+name, agents...)
	for i, a := range result.Agents {
		result.Agents[i].ConcurrencyKey, result.Agents[i].ConcurrencyDrop = by[a.Name].Expression, by[a.Name].Drop
	}
	w.NoError(w.s.FinishBuild(w.ctx, spec.Key(), result))
	w.True(w.activate(spec.ID).Live)
}

// contender returns a single event whose run has a concurrency key.
func (w *world) contender(key string) store.Event { return w.contenderAt(w.version(), key) }

// contenderAt is contender with a known version of the connector.
func (w *world) contenderAt(version int64, key string) store.Event {
	e := w.eventAt(version)
	e.Runs = e.Runs[:1]
	e.Runs[0].Concurrency.Text = key
	return e
}

// contenders accepts single events with keys, one after the other, and returns their runs.
func (w *world) contenders(keys ...string) (runs []uuid.UUID) {
	for _, key := range keys {
		e := w.acceptEvent(w.contender(key))
		runs = append(runs, e.Runs[0].ID)
	}
	return runs
}

// underWay claims all claimable runs, which must be these.
func (w *world) underWay(runs ...uuid.UUID) []store.Claimed {
	claimed := w.claim(50, lease)
	ids := make([]uuid.UUID, len(claimed))
	for i, c := range claimed {
		ids[i] = c.Run.ID
	}
	w.ElementsMatch(runs, ids)
	return claimed
}

// completeTogether ends claimed runs together.
func (w *world) completeTogether(claimed ...store.Claimed) {
	completions := make([]store.Completion, len(claimed))
	for i, c := range claimed {
		completions[i] = completed(c)
	}
	answers, err := w.s.Complete(w.ctx, completions)
	w.NoError(err)
	for _, err := range answers {
		w.NoError(err)
	}
}

// noSlots checks that the project has no slots, as when no run is open.
func (w *world) noSlots() { w.Zero(w.countRowsOf("concurrency_slots")) }

// countRowsOf returns the number of rows of the project in a table.
func (w *world) countRowsOf(table string) (n int) {
	w.NoError(w.db.QueryRowContext(w.ctx, `SELECT count(*) FROM `+table+` WHERE project_id = $1`, w.project.ID.String()).Scan(&n))
	return n
}

// drainQueue claims and ends runs until there are none, one at a time per key.
func (w *world) drainQueue(key func(run uuid.UUID) string) (order []uuid.UUID) {
	for {
		claimed := w.claim(50, lease)
		seen := map[string]bool{}
		for _, c := range claimed {
			w.False(seen[key(c.Run.ID)], "two with one key")
			seen[key(c.Run.ID)] = true
			order = append(order, c.Run.ID)
		}
		if len(claimed) == 0 {
			w.noSlots()
			return order
		}
		w.completeTogether(claimed...)
	}
}

var concurrencyPromises = []promise{
	{"runs with one key execute in the order of acceptance", withAgents(func(w *world) {
		r := w.contenders("a", "a", "b", "a", "", "")
		claimed := w.underWay(r[0], r[2], r[4], r[5])
		w.Empty(w.claim(10, lease))
		w.completeTogether(claimed...)
		w.completeTogether(w.underWay(r[1])...)
		w.completeTogether(w.underWay(r[3])...)
		w.noSlots()
		w.underWay(w.contenders("a")...)
	})},
	{"a key belongs to one agent, environment and project", withAgents(func(w *world) {
		e := w.event()
		for i := range e.Runs {
			e.Runs[i].Concurrency.Text = "a"
		}
		w.accept(&e)
		w.underWay(e.Runs[0].ID, e.Runs[1].ID)
		twin := w.twinProject()
		twin.deploy("one", "first")
		twin.underWay(twin.contenders("a")...)
		elsewhere := *w
		elsewhere.environment = w.newEnvironment("staging", origin)
		w.NoError(w.s.PutEnvironment(w.ctx, elsewhere.environment))
		elsewhere.deploy("two", "first")
		elsewhere.underWay(elsewhere.contenders("a")...)
	})},
	{"in a batch the first run gets the key", withAgent(func(w *world) {
		events := []store.Event{w.contender("a"), w.contender("a"), w.contender("b")}
		events[1].Runs[0].Concurrency.Drop = true
		w.acceptAll(events)
		w.underWay(events[0].Runs[0].ID, events[2].Runs[0].ID)
		w.Equal(runerror.ConcurrencyDropped, w.run(events[1].Runs[0].ID).ErrorCode)
	})},
	{"a run that does not wait is cancelled if its key is taken", withAgent(func(w *world) {
		r := w.contenders("a")
		dropped := w.contender("a")
		dropped.Runs[0].Concurrency.Drop = true
		again := dropped
		w.accept(&dropped)
		run := w.run(dropped.Runs[0].ID)
		w.Equal(store.RunCancelled, run.Status)
		w.Equal(runerror.ConcurrencyDropped, run.ErrorCode)
		w.NotEmpty(run.Error)
		w.True(w.outcome(dropped.ConnectorRunID).Terminal())
		w.completeTogether(w.underWay(r...)...)
		again.ConnectorRunID, again.Runs[0].ID = newUUIDv7(), newUUIDv7()
		w.accept(&again)
		w.underWay(again.Runs[0].ID)
	})},
	{"a suspended, resumed, released or lost run keeps its key", withAgent(func(w *world) {
		r := w.contenders("a", "a")
		c := w.underWay(r[0])[0]
		w.suspend(c, time.Hour)
		w.Empty(w.claim(10, lease))
		w.NoError(w.s.Resume(w.ctx, c.Run.Key(), json.RawMessage(`{}`)))
		c = w.underWay(r[0])[0]
		w.NoError(w.s.Release(w.ctx, leaseOf(c), time.Hour))
		w.Empty(w.claim(10, lease), "neither it nor the next can be claimed")
		w.updateRows(`UPDATE open_runs SET not_before = 0`)
		w.NoError(errorOf(w.s.Heartbeat(w.ctx, w.environment.Key(), heldClaims(leaseOf(w.underWay(r[0])[0])), expired)))
		w.Equal(1, w.sweep(10))
		w.completeTogether(w.underWay(r[0])...)
		w.underWay(r[1])
	})},
	{"every end of a run hands over its key", withAgent(func(w *world) {
		r := w.contenders("a", "a", "a", "a", "a", "a")
		cancel := func(run uuid.UUID) {
			w.NoError(w.s.Cancel(w.ctx, w.key(run), runerror.Cancelled, ""))
		}
		cancel(r[1]) // blocked
		w.underWay(r[0])
		cancel(r[0]) // running
		c := w.underWay(r[2])[0]
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{newEntry(1, store.JournalToolStarted, true)}))
		w.NoError(w.s.Release(w.ctx, leaseOf(c), 0)) // interrupted
		c = w.underWay(r[3])[0]
		w.suspend(c, time.Hour)
		cancel(r[3]) // suspended
		cancel(r[4]) // queued
		w.underWay(r[5])
		cancel(r[5])
		w.noSlots()
	})},
	{"expired and orphaned runs leave no key", withAgent(func(w *world) {
		r := w.contenders("a", "a", "b", "a", "")
		w.Equal(2, w.expireRuns(0, 2))
		w.underWay(r[2], r[3], r[4])
		w.contenders("a", "a", "b", "c", "c", "c")
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.environment.Ref))
		w.sweep(100)
		w.Zero(w.countRowsOf("open_runs"))
		w.noSlots()
	})},
	{"a sweep cancels blocked runs of a deleted environment", func(w *world) {
		e := w.singleEvent()
		e.EnvironmentID = uuid.New()
		e.Runs[0].Concurrency.Text = "a"
		for range 5 {
			e.ConnectorRunID, e.Runs[0].ID = newUUIDv7(), newUUIDv7()
			again := e
			w.accept(&again)
		}
		w.Equal(2, w.sweep(2))
		w.Equal(3, w.sweep(10))
		w.noSlots()
	}},
	{"completions with and without keys end together", withAgent(func(w *world) {
		w.contenders("a", "a", "", "b", "", "b", "c")
		claimed := w.claim(10, lease)
		w.Len(claimed, 5)
		completions := make([]store.Completion, len(claimed))
		for i, c := range claimed {
			completions[i] = completed(c)
			completions[i].Journal = []store.JournalEntry{newEntry(1, store.JournalModelAnswer, false)}
		}
		completions[1].Token++
		for range 2 {
			answers, err := w.s.Complete(w.ctx, completions)
			w.NoError(err)
			for i, err := range answers {
				if i == 1 {
					w.ErrorIs(err, store.ErrFenced)
				} else {
					w.NoError(err)
				}
			}
		}
		w.Len(w.claim(10, lease), 2, "the waiting runs")
	})},
	{"blocked runs are not waited for", withAgent(func(w *world) {
		w.contenders("a", "a", "a")
		runner := []store.RunnerKey{{Environment: w.environment.Key(), ID: "one"}}
		w.claim(1, lease)
		w.requireNone(w.s.Attend(w.ctx, runner))
		w.Equal(map[store.Class]store.QueueDepth{0: {}, 1: {}, 2: {}}, w.readFigures().Queued[store.QueueClaimable])
	})},
	{"a run with an invalid key rejects only its event", withAgent(func(w *world) {
		events := []store.Event{w.contender("a"), w.contender(strings.Repeat("k", store.MaxConcurrencyKey+1)), w.contender(strings.Repeat("k", store.MaxConcurrencyKey))}
		admissions := w.tryAccept(events...)
		w.NoError(admissions[0].Err)
		w.Error(admissions[1].Err)
		w.NoError(admissions[2].Err)
		w.Len(w.claim(10, lease), 2)
	})},
	{"a repeated event takes no second key", withAgent(func(w *world) {
		e := w.keyedEvent("key:1", "body")
		e.Runs = e.Runs[:1]
		e.Runs[0].Concurrency.Text = "a"
		w.accept(&e)
		w.Equal(store.Repeated, w.tryAccept(e)[0].Verdict)
		w.completeTogether(w.underWay(e.Runs[0].ID)...)
		w.noSlots()
	})},
}
