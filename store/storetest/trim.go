// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// bygone is history of all kinds beyond its project's retention: an event with a run that has a
// file, headers and a journal, and a delivery of it.
type bygone struct {
	*world
	run, event, delivery uuid.UUID
	to                   store.Connector
}

// forgets sets a retention that has passed, as seen in some days.
func (w *world) forgets() {
	now := w.readClock()
	w.keepsSince(now.Add(4 * aDay))
}

func (b *bygone) requireNotFound(err error) { b.ErrorIs(err, store.ErrNotFound) }

// readsOfHistory has a check for each method that reads history: it finds nothing there.
var readsOfHistory = map[string]func(b *bygone){
	"Outcome":         func(b *bygone) { b.requireNotFound(errorOf(b.s.Outcome(b.ctx, b.key(b.event)))) },
	"Run":             func(b *bygone) { b.requireNotFound(errorOf(b.s.Run(b.ctx, b.key(b.run)))) },
	"RunEnvironments": func(b *bygone) { b.requireNone(b.s.RunEnvironments(b.ctx, b.project.ID, []uuid.UUID{b.run})) },
	"RunInput": func(b *bygone) {
		_, _, err := b.s.RunInput(b.ctx, b.key(b.run))
		b.requireNotFound(err)
	},
	"RunHeaders":   func(b *bygone) { b.requireNotFound(errorOf(b.s.RunHeaders(b.ctx, b.key(b.run)))) },
	"Journal":      func(b *bygone) { b.requireNone(b.s.Journal(b.ctx, b.key(b.run))) },
	"RunCalls":     func(b *bygone) { b.requireNone(b.s.RunCalls(b.ctx, b.key(b.run))) },
	"JournalAfter": func(b *bygone) { b.requireNone(b.s.JournalAfter(b.ctx, b.key(b.run), 0, 10)) },
	"ListRuns": func(b *bygone) {
		for _, q := range []store.RunQuery{{}, {AgentName: "first"}, {Statuses: []store.RunStatus{store.RunCompleted}}, {Search: searchUnindexed()}, {Search: searchFor("done")}} {
			q.ProjectID, q.Limit = b.project.ID, 10
			runs, next, err := b.s.ListRuns(b.ctx, q)
			b.NoError(err)
			b.Empty(runs)
			b.Nil(next)
		}
	},
	"ConnectorRun": func(b *bygone) {
		for _, id := range []uuid.UUID{b.event, b.delivery} {
			b.requireNotFound(errorOf(b.s.ConnectorRun(b.ctx, b.key(id))))
		}
	},
	"ListConnectorRuns": func(b *bygone) {
		for _, c := range []store.Connector{b.connector, b.to} {
			runs, total := b.listConnectorRuns(store.ConnectorRunQuery{Connector: c.Key(), Limit: 10})
			b.Empty(runs)
			b.Zero(total)
		}
	},
	"EventFiles":    func(b *bygone) { b.requireNone(b.s.EventFiles(b.ctx, b.key(b.event))) },
	"RunFiles":      func(b *bygone) { b.requireNotFound(errorOf(b.s.RunFiles(b.ctx, b.key(b.run)))) },
	"RunSavedFiles": func(b *bygone) { b.requireNone(b.s.RunSavedFiles(b.ctx, b.key(b.run))) },
	"OpenSavedFile": func(b *bygone) {
		_, _, err := b.s.OpenSavedFile(b.ctx, b.key(b.run), "s1", 0)
		b.requireNotFound(err)
	},
	"OpenRunFile": func(b *bygone) {
		_, _, err := b.s.OpenRunFile(b.ctx, b.key(b.run), 0)
		b.requireNotFound(err)
	},
	"Attempts": func(b *bygone) {
		attempts, next := b.listAttempts(b.key(b.delivery))
		b.Empty(attempts)
		b.Nil(next)
	},
	"AttemptsOf": func(b *bygone) { b.requireNone(b.s.AttemptsOf(b.ctx, []store.Key{b.key(b.delivery)})) },
	"EventInput": func(b *bygone) { b.requireNotFound(errorOf(b.s.EventInput(b.ctx, b.key(b.event)))) },
	"Redeliver": func(b *bygone) {
		b.requireNotFound(errorOf(b.s.Redeliver(b.ctx, store.Redelivery{Of: b.key(b.delivery), Idempotency: requestKey("1", "again")})))
	},
	"RetryDeliveryNow": func(b *bygone) {
		b.requireNotFound(errorOf(b.s.RetryDeliveryNow(b.ctx, b.key(b.delivery), requestKey("2", "now"))))
	},
	"MatchReplay": func(b *bygone) {
		b.requireNone(b.s.MatchReplay(b.ctx, b.connector.Key(), b.lastHourFilter(store.ConnectorRunCompleted)))
	},
	"ReplayOriginals": func(b *bygone) {
		page, err := b.s.ReplayOriginals(b.ctx, store.Replay{
			ProjectID: b.project.ID, ConnectorID: b.connector.ID, Filter: b.lastHourFilter(store.ConnectorRunCompleted),
		}, 10)
		b.NoError(err)
		b.Empty(page.Originals)
	},
	"ConnectorStatistics": func(b *bygone) { // likewise
		at := store.TimeOf(b.event)
		n := b.connectorStatistics(store.ConnectorStatisticsQuery{
			Connector: b.connector.Key(), Since: at.Add(-time.Millisecond), Until: at.Add(time.Millisecond),
		})
		b.Zero(n.Last)
		b.Empty(n.Runs)
	},
	"RunStatistics": func(b *bygone) { // of a window that is read run by run
		at := store.TimeOf(b.run)
		n := b.runStatistics(store.StatisticsQuery{
			Environment: b.environment.Key(), AgentName: "first", Since: at.Add(-time.Millisecond), Until: at.Add(time.Millisecond),
		})
		b.Empty(n.Runs)
		b.Empty(n.Calls)
	},
}

// unboundReads are the other methods of the reading interfaces, with the reason.
var unboundReads = map[string]string{
	"Ended":                "reports which are not open, and reads these only",
	"KnownRequest":         "keys live for a day",
	"SendTest":             "creates a new row",
	"StartReplay":          "creates a new row, of the matches of MatchReplay",
	"Replay":               "is not history: it is deleted some days after its end",
	"ListReplays":          "is not history: it is deleted some days after its end",
	"CancelReplay":         "belongs to an open run",
	"NextReplay":           "belongs to an open run",
	"TakeReplays":          "belongs to an open run",
	"MoveReplay":           "belongs to an open run",
	"PostDeliveries":       "newly ended runs",
	"ClaimDeliveries":      "open runs",
	"NextDelivery":         "open runs",
	"RecordAttempts":       "open runs",
	"DestinationsOf":       "belongs to connectors",
	"TroubledDestinations": "belongs to connectors",
	"ResumeDestination":    "belongs to connectors",
	"SaveFile":             "belongs to open runs",
}

var trimPromises = []promise{
	{"history beyond a project's retention is not read, and is deleted with its blobs", func(w *world) {
		b := &bygone{world: w, to: w.outboundTo("results", automatic)}
		w.outboundTo("tell", toolPolicy("tell"))
		w.deploy("one", "first")
		e := w.secretive()
		b.event, b.run, b.delivery = e.ConnectorRunID, e.Runs[0].ID, w.deliveriesOf(b.to)[0].ID
		w.consumed()
		w.Positive(w.storedBytes())
		stays := func() bool { _, err := w.s.Run(w.ctx, w.key(b.run)); return err == nil }
		w.project.Retention = store.MinRetention
		w.NoError(w.s.PutProject(w.ctx, w.project))
		w.Zero(w.trimHistory(100), "it is not old enough")
		w.True(stays())

		w.forgets()
		w.False(stays(), "at once")
		covered := map[string]bool{}
		for _, of := range []reflect.Type{
			reflect.TypeFor[store.History](), reflect.TypeFor[store.Files](), reflect.TypeFor[store.SavedFiles](), reflect.TypeFor[store.Replays](), reflect.TypeFor[store.ReplayJobs](),
			reflect.TypeFor[store.Statistics](), reflect.TypeFor[store.Deliveries](),
		} {
			for _, method := range methodsOf(of) {
				read, reads := readsOfHistory[method]
				_, excused := unboundReads[method]
				w.True(reads != excused, "%s: does it read what a project keeps no longer?", method)
				if covered[method] = true; reads {
					read(b)
				}
			}
		}
		w.Len(covered, len(readsOfHistory)+len(unboundReads), "these are methods of the store")

		w.untilTrimmed(3)
		for _, table := range []string{"inputs", "ended_runs", "ended_connector_runs", "journal", "model_calls", "delivery_attempts", "run_words", "stored_days"} {
			w.Zero(w.queryCount(`SELECT count(*) FROM `+table+` WHERE project_id = $1`), table)
		}
		w.Zero(w.storedBytes())
		w.dropHistory(aDay)
		w.EqualValues(1, w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1`), "that of the bundle")
		all := w.runStatistics(store.StatisticsQuery{Environment: w.environment.Key(), AgentName: "first"})
		w.EqualValues(1, all.Runs[store.RunCompleted], "rollups are kept forever")
	}},
	{"other projects keep theirs", func(w *world) {
		other := w.twinProject()
		e := w.history()
		theirs := other.history()
		w.forgets()
		w.untilTrimmed(100)
		w.ErrorIs(errorOf(w.s.Run(w.ctx, w.key(e.Runs[0].ID))), store.ErrNotFound)
		other.Equal(store.RunCompleted, other.run(theirs.Runs[0].ID).Status)
	}},
	{"overdue projects are trimmed round robin", func(w *world) {
		other := w.twinProject()
		w.history()
		other.history()
		now := w.readClock()
		overdue := func() int {
			by, err := w.s.ProjectHistoryOverdue(w.ctx)
			w.NoError(err)
			return int(by / aDay)
		}
		w.Zero(overdue())
		today := now.UTC().Truncate(aDay)
		w.keepsSince(today.Add(2*aDay + aDay/2))
		w.Equal(1, overdue())
		other.keepsSince(today.Add(4*aDay + aDay/2))
		w.Equal(3, overdue())
		left := func(of *world) (n int64) {
			for _, table := range []string{"inputs", "ended_runs", "ended_connector_runs", "journal", "run_words", "stored_days"} {
				n += of.queryCount(`SELECT count(*) FROM ` + table + ` WHERE project_id = $1`)
			}
			return n
		}
		for left(w) > 0 && left(other) > 0 {
			before := [2]int64{left(w), left(other)}
			var late []int
			for range 2 {
				trimmed, err := w.s.TrimHistory(w.ctx, 1)
				w.NoError(err)
				w.Positive(trimmed.Count)
				late = append(late, int(trimmed.Overdue/aDay))
			}
			w.ElementsMatch([]int{1, 3}, late, "how overdue each of them was")
			w.Less(left(w), before[0])
			w.Less(left(other), before[1])
		}
	}},
	{"a project whose history cannot be deleted blocks no other", func(w *world) {
		other := w.twinProject()
		stuck, others := w.history(), other.history()
		w.forgets()
		other.forgets()
		cure := w.failWrites("DELETE", "ended_runs", "id", stuck.Runs[0].ID)
		failed := 0
		for range 300 {
			if _, err := w.s.TrimHistory(w.ctx, 100); err != nil {
				w.requireSetAside(err, 1)
				failed++
			}
		}
		w.Positive(failed)
		w.Less(failed, 30, "it is skipped")
		w.Zero(other.queryCount(`SELECT count(*) FROM stored_days WHERE project_id = $1`))
		w.ErrorIs(errorOf(other.s.Run(w.ctx, other.key(others.Runs[0].ID))), store.ErrNotFound)
		w.NotZero(w.queryCount(`SELECT count(*) FROM ended_runs WHERE project_id = $1`))
		cure()
		for range 100 {
			w.trimHistory(100)
		}
		w.Zero(w.queryCount(`SELECT count(*) FROM stored_days WHERE project_id = $1`))
	}},
	{"days beyond the retention do not count as stored", func(w *world) {
		w.history()
		w.countAllStored()
		w.Positive(w.storedBytes())
		w.forgets()
		w.Zero(w.storedBytes())
	}},
	{"a run that ends while its day is deleted is deleted with it", withAgent(func(w *world) {
		_, late := w.running(lease)
		w.history()
		w.forgets()
		left := func(table string) int64 {
			return w.queryCount(`SELECT count(*) FROM ` + table + ` WHERE project_id = $1`)
		}
		for left("ended_runs") > 0 {
			w.Positive(w.trimHistory(1))
		}
		w.NoError(w.complete(largeCompletion(late)))
		for w.countStored(100) > 0 { // into the row of the deleted day
		}
		w.Positive(left("ended_runs"))
		w.untilTrimmed(1)
		for _, table := range []string{"inputs", "ended_runs", "ended_connector_runs", "journal", "stored_days"} {
			w.Zero(left(table), table)
		}
		w.Zero(w.storedBytes())
	})},
	{"an open run keeps its data, and ends a day before the retention", withAgent(func(w *world) {
		e, run := w.running(lease)
		w.announce(run, 1, 1)
		w.Zero(w.expireRuns(store.MaxOpen, 10))
		w.forgets()
		w.Len(w.readJournal(w.key(run.Run.ID)), 1)
		_, body, err := w.s.RunInput(w.ctx, w.key(run.Run.ID))
		w.NotEmpty(w.readAll(body, err))
		w.Positive(w.expireRuns(store.MaxOpen, 10))
		w.Zero(w.queryCount(`SELECT count(*) FROM open_runs WHERE project_id = $1 AND agent_name = 'first'`))
		w.ErrorIs(errorOf(w.s.Run(w.ctx, w.key(e.Runs[0].ID))), store.ErrNotFound)
	})},
	{"a delivery ends a day before the retention", withAgents(func(w *world) {
		w.underWayTo(w.outboundTo("results", automatic))
		w.updateRows(`UPDATE deliveries SET lease_until = NULL`)
		w.requireNone(w.s.ExpireDeliveries(w.ctx, store.MaxOpen, 10))
		w.forgets()
		w.Equal(1, w.expireDeliveries(store.MaxOpen, 10))
	})},
}
