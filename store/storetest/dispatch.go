// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// newEntry returns a journal entry; unsafe has a meaning for tools only.
func newEntry(sequence int64, kind store.JournalKind, unsafe bool) store.JournalEntry {
	return store.JournalEntry{Sequence: sequence, Kind: kind, Data: json.RawMessage(`{"n":1}`), Unsafe: unsafe}
}

var journalPromises = []promise{
	{"entries are appended in order, repeats are no error", withAgent(func(w *world) {
		_, c := w.running(lease)
		entries := []store.JournalEntry{
			newEntry(1, store.JournalModelAnswer, false), newEntry(2, store.JournalToolStarted, false),
			newEntry(3, store.JournalToolResult, false),
		}
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), entries[:2]))
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), entries[:2]), "again")
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), entries), "some again")
		got := w.readJournal(c.Run.Key())
		w.Equal(entries, w.undated(got))
	})},
	{"a gap is rejected", withAgent(func(w *world) {
		_, c := w.running(lease)
		w.Error(w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{newEntry(2, store.JournalModelAnswer, false)}))
		w.requireNone(w.s.Journal(w.ctx, c.Run.Key()))
	})},
	{"an old claim appends nothing", withAgent(func(w *world) {
		_, c := w.running(lease)
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{newEntry(1, store.JournalModelAnswer, false)}))
		w.NoError(w.s.CheckClaim(w.ctx, leaseOf(c)))
		w.NoError(w.s.Release(w.ctx, leaseOf(c), 0))
		w.ErrorIs(w.s.CheckClaim(w.ctx, leaseOf(c)), store.ErrFenced)
		late := []store.JournalEntry{newEntry(2, store.JournalModelAnswer, false)}
		w.ErrorIs(w.s.AppendJournal(w.ctx, leaseOf(c), late), store.ErrFenced)
		again := w.claim(1, lease)
		w.Len(again, 1)
		w.Len(w.journalOf(again[0]), 1, "the next claim gets the recorded entries")
		w.ErrorIs(w.s.AppendJournal(w.ctx, leaseOf(c), late), store.ErrFenced)
		w.ErrorIs(w.s.CheckClaim(w.ctx, leaseOf(c)), store.ErrFenced)
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(again[0]), late))
		w.NoError(w.complete(completed(again[0])))
		w.ErrorIs(w.s.CheckClaim(w.ctx, leaseOf(again[0])), store.ErrFenced)
	})},
	{"a new claim does not record the entries of an old one again", withAgent(func(w *world) {
		_, c := w.running(lease)
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{newEntry(1, store.JournalModelAnswer, false)}))
		w.NoError(w.s.Release(w.ctx, leaseOf(c), 0))
		again := w.claim(1, lease)
		w.Error(w.s.AppendJournal(w.ctx, leaseOf(again[0]), []store.JournalEntry{newEntry(1, store.JournalToolStarted, true)}),
			"a new claim cannot record the entries of an old one again")
	})},
	{"appends to several journals succeed and fail independently", withAgents(func(w *world) {
		first, second := w.event(), w.event()
		w.accept(&first)
		w.accept(&second)
		claimed := w.claim(4, lease)
		w.Len(claimed, 4)
		one, two, three := newEntry(1, store.JournalModelAnswer, false), newEntry(2, store.JournalToolStarted, false), newEntry(3, store.JournalToolResult, false)
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(claimed[1]), []store.JournalEntry{one}))
		old := leaseOf(claimed[3])
		old.Token++
		errs := w.s.AppendJournals(w.ctx, []store.JournalAppend{
			{Lease: leaseOf(claimed[0]), Entries: []store.JournalEntry{one, two}},
			{Lease: leaseOf(claimed[1]), Entries: []store.JournalEntry{one, two}}, // one was appended before
			{Lease: leaseOf(claimed[2]), Entries: []store.JournalEntry{two}},      // one is missing
			{Lease: old, Entries: []store.JournalEntry{one}},
			{Lease: leaseOf(claimed[0]), Entries: []store.JournalEntry{three}}, // continues the first append
		})
		w.Len(errs, 5)
		w.NoError(errs[0])
		w.NoError(errs[1])
		w.ErrorIs(errs[2], store.ErrConflict)
		w.ErrorIs(errs[3], store.ErrFenced)
		w.NoError(errs[4])
		for i, want := range [][]store.JournalEntry{{one, two, three}, {one, two}, {}, {}} {
			w.Len(w.readJournal(claimed[i].Run.Key()), len(want), i)
		}
		w.Empty(w.s.AppendJournals(w.ctx, nil))
		errs = w.s.AppendJournals(w.ctx, []store.JournalAppend{
			{Lease: leaseOf(claimed[2]), Entries: []store.JournalEntry{one, three}}, // two is missing
			{Lease: leaseOf(claimed[2]), Entries: []store.JournalEntry{one}},
			{Lease: old},
			{Lease: leaseOf(claimed[3]), Entries: []store.JournalEntry{one}},
		})
		w.ErrorIs(errs[0], store.ErrConflict)
		w.NoError(errs[1])
		w.ErrorIs(errs[2], store.ErrFenced)
		w.NoError(errs[3])
	})},
}

var endingPromises = []promise{
	{"the last run ends its connector run", withAgents(func(w *world) {
		e := w.acceptEvent(w.event())
		claimed := w.claim(10, lease)
		first := completed(claimed[0])
		first.Usage = store.TokenUsage{InputTokens: 1, OutputTokens: 2, ThinkingTokens: 3, CachedInputTokens: 4, TotalTokens: 6}
		first.Journal = []store.JournalEntry{newEntry(1, store.JournalModelAnswer, false)}
		w.NoError(w.complete(first))
		w.Equal(store.ConnectorRunRunning, w.outcome(e.ConnectorRunID).Status)
		w.NoError(w.complete(first), "again")
		w.Equal(store.ConnectorRunRunning, w.outcome(e.ConnectorRunID).Status, "and is counted once")
		w.NoError(w.complete(completed(claimed[1])))

		outcome := w.outcome(e.ConnectorRunID)
		w.Equal(store.ConnectorRunCompleted, outcome.Status)
		w.True(outcome.Terminal())
		w.Len(outcome.Runs, 2)
		run := outcome.Runs[0]
		w.Equal(e.Runs[0].ID, run.ID, "in the order of the links")
		w.Equal(store.RunCompleted, run.Status)
		w.Equal("done", run.Output)
		w.Equal(first.Usage, run.Usage)
		w.NotNil(run.EndedAt)
		journal := w.readJournal(run.Key())
		w.Equal(first.Journal, w.undated(journal))
		w.NotNil(w.connectorRun(e.ConnectorRunID).EndedAt)
	})},
	{"a failed run fails its connector run", withAgents(func(w *world) {
		e := w.acceptEvent(w.event())
		claimed := w.claim(10, lease)
		w.NoError(w.complete(store.Completion{
			Lease: leaseOf(claimed[0]), Status: store.RunFailed, ErrorCode: "model_error", Error: "no answer",
		}))
		w.NoError(w.complete(completed(claimed[1])))
		outcome := w.outcome(e.ConnectorRunID)
		w.Equal(store.ConnectorRunFailed, outcome.Status)
		w.EqualValues("model_error", outcome.Runs[0].ErrorCode)
		w.Equal("no answer", outcome.Runs[0].Error)
	})},
	{"a connector run ends as its runs did, in any order", withAgents(func(w *world) {
		const c, f, x = store.RunCompleted, store.RunFailed, store.RunCancelled
		for _, of := range []struct {
			runs  []store.RunStatus // in the order of their ends
			want  store.ConnectorRunStatus
			error string
		}{
			{[]store.RunStatus{c, c}, store.ConnectorRunCompleted, ""},
			{[]store.RunStatus{c, x}, store.ConnectorRunCompleted, ""},
			{[]store.RunStatus{x, c}, store.ConnectorRunCompleted, ""},
			{[]store.RunStatus{f, c}, store.ConnectorRunFailed, "failed for a reason"},
			{[]store.RunStatus{f, x}, store.ConnectorRunFailed, "failed for a reason"},
			{[]store.RunStatus{x, f}, store.ConnectorRunFailed, "failed for a reason"},
			{[]store.RunStatus{x, x}, store.ConnectorRunCancelled, "cancelled for a reason"},
			{[]store.RunStatus{x}, store.ConnectorRunCancelled, "cancelled for a reason"},
		} {
			e := w.event()
			e.Runs = e.Runs[:len(of.runs)]
			w.accept(&e)
			claimed := w.claim(len(of.runs), lease)
			w.Len(claimed, len(of.runs))
			for i, run := range claimed {
				end := completed(run)
				if end.Status = of.runs[i]; end.Status != c {
					end.ErrorCode, end.Error = "a_code", string(end.Status)+" for a reason"
				}
				w.NoError(w.complete(end))
			}
			w.Equal(of.want, w.outcome(e.ConnectorRunID).Status, of.runs)
			w.Equal(of.error, w.connectorRun(e.ConnectorRunID).Error, of.runs)
		}
		w.Equal(map[store.ConnectorRunStatus]int64{
			store.ConnectorRunCompleted: 3, store.ConnectorRunFailed: 3, store.ConnectorRunCancelled: 2,
		}, w.connectorTotals(w.connector.Key()), "and is counted so")
	})},
	{"an old claim completes nothing", withAgent(func(w *world) {
		e, c := w.running(expired)
		w.Equal(1, w.sweep(10))
		w.ErrorIs(w.complete(completed(c)), store.ErrFenced)
		again := w.claim(1, lease)
		w.Len(again, 1)
		w.ErrorIs(w.complete(completed(c)), store.ErrFenced)
		w.ErrorIs(w.s.Release(w.ctx, leaseOf(c), 0), store.ErrFenced)
		w.NoError(w.complete(completed(again[0])))
		w.ErrorIs(w.complete(completed(c)), store.ErrFenced)
		w.Equal(store.ConnectorRunCompleted, w.outcome(e.ConnectorRunID).Status)
	})},
	{"a late completion by the current claim counts", withAgent(func(w *world) {
		_, c := w.running(expired)
		w.NoError(w.complete(completed(c)))
		w.Zero(w.sweep(10))
	})},
	{"a released run is queued again", withAgent(func(w *world) {
		_, c := w.running(lease)
		w.NoError(w.s.Release(w.ctx, leaseOf(c), 0))
		w.Equal(store.RunQueued, w.run(c.Run.ID).Status)
		lost := w.renewLeases(w.environment.Key(), heldClaims(leaseOf(c)), lease)
		w.Equal([]store.Lease{leaseOf(c)}, lost)
		w.ErrorIs(w.complete(completed(c)), store.ErrFenced)
	})},
	{"a run released with an unsafe tool in flight fails", withAgent(func(w *world) {
		e, c := w.running(lease)
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{newEntry(1, store.JournalToolStarted, true)}))
		w.NoError(w.s.Release(w.ctx, leaseOf(c), 0))
		w.Equal(runerror.ToolInterrupted, w.run(c.Run.ID).ErrorCode)
		w.Equal(store.ConnectorRunFailed, w.outcome(e.ConnectorRunID).Status)
	})},
}

var sweepPromises = []promise{
	{"expired claims end, current ones stay", withAgents(func(w *world) {
		e := w.acceptEvent(w.event())
		w.Len(w.claim(1, lease), 1)
		w.Len(w.claim(1, expired), 1)
		w.Equal(1, w.sweep(10))
		w.Equal(store.RunRunning, w.run(e.Runs[0].ID).Status)
		w.Equal(store.RunQueued, w.run(e.Runs[1].ID).Status)
	})},
	{"at most limit claims end", withAgents(func(w *world) {
		w.acceptAll([]store.Event{w.event(), w.event()})
		w.Len(w.claim(4, expired), 4)
		for _, want := range []int{3, 1, 0} {
			w.Equal(want, w.sweep(3))
		}
	})},
	{"only an unsafe tool in flight fails the run", withAgents(func(w *world) {
		e := w.acceptEvent(w.event())
		claimed := w.claim(2, lease)
		started, ended := newEntry(1, store.JournalToolStarted, true), newEntry(2, store.JournalToolResult, true)
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(claimed[0]), []store.JournalEntry{started}))
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(claimed[0]), []store.JournalEntry{started}), "counted once")
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(claimed[1]), []store.JournalEntry{started, ended}))
		w.requireNone(w.s.Heartbeat(w.ctx, w.environment.Key(), heldClaims(leaseOf(claimed[0]), leaseOf(claimed[1])), expired))
		w.Equal(store.Swept{GivenBack: 1, Failed: 1}, w.sweepLeases(10))
		failed := w.run(e.Runs[0].ID)
		w.Equal(store.RunFailed, failed.Status)
		w.Equal(runerror.ToolInterrupted, failed.ErrorCode)
		w.Equal(store.RunQueued, w.run(e.Runs[1].ID).Status)
	})},
	{"a repeated result of an unsafe tool frees no other tool", withAgent(func(w *world) {
		_, c := w.running(lease)
		result := newEntry(3, store.JournalToolResult, true)
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{
			newEntry(1, store.JournalToolStarted, true), newEntry(2, store.JournalToolStarted, true), result,
		}))
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{result}))
		w.NoError(w.s.Release(w.ctx, leaseOf(c), 0))
		w.Equal(runerror.ToolInterrupted, w.run(c.Run.ID).ErrorCode, "one of two is still in flight")
	})},
	{"queued runs of a deleted environment are cancelled", func(w *world) {
		e := w.singleEvent()
		e.EnvironmentID = uuid.New()
		w.accept(&e)
		w.Equal(store.Swept{Cancelled: 1}, w.sweepLeases(10))
		run := w.run(e.Runs[0].ID)
		w.Equal(store.RunCancelled, run.Status)
		w.Equal(runerror.EnvironmentDeleted, run.ErrorCode)
		w.True(w.outcome(e.ConnectorRunID).Terminal())
	}},
	{"orphaned runs are found in every project and environment", func(w *world) {
		twin, open := w.twinProject(), 0
		for _, of := range []*world{w, twin} {
			for i := range 3 {
				e := of.singleEvent()
				e.EnvironmentID = uuid.New()
				of.accept(&e)
				there := of.newEnvironment(fmt.Sprintf("there-%d", i), origin)
				w.NoError(w.s.PutEnvironment(w.ctx, there))
				e = of.singleEvent()
				e.EnvironmentID = there.ID
				of.accept(&e)
			}
		}
		w.Equal(6, w.sweep(100))
		for _, of := range []*world{w, twin} {
			runs := w.listRuns(store.RunQuery{ProjectID: of.project.ID, Statuses: []store.RunStatus{store.RunQueued}, Limit: 100})
			open += len(runs)
		}
		w.Equal(6, open)
	}},
	{"the claims that expired first end first", func(w *world) {
		twin := w.twinProject()
		w.deploy("one", "first")
		twin.deploy("one", "first")
		for _, of := range [][]*world{{w, twin}, {twin, w}} {
			_, late := of[1].running(expired)
			_, early := of[0].running(expired - time.Minute)
			w.Equal(1, w.sweep(1))
			w.Equal(store.RunQueued, of[0].run(early.Run.ID).Status)
			w.Equal(store.RunRunning, of[1].run(late.Run.ID).Status)
			w.NoError(w.complete(completed(late)))
			w.NoError(w.complete(completed(of[0].claim(1, lease)[0])))
		}
	}},
	{"present runners and new blobs are kept", func(w *world) {
		w.Empty(w.claim(0, lease))
		w.NoError(errorOf(w.s.SweepExpired(w.ctx, 100)))
		w.Len(w.listRunners(w.environment.Key(), time.Hour), 1)
	}},
}
