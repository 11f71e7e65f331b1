// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"time"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// suspend suspends a claimed run, with an answer as its last journal entry.
func (w *world) suspend(c store.Claimed, wait time.Duration) {
	w.NoError(w.s.Suspend(w.ctx, store.Suspension{
		Lease: leaseOf(c), For: wait, Journal: []store.JournalEntry{newEntry(c.JournalLength+1, store.JournalModelAnswer, false)},
	}))
}

var suspensionPromises = []promise{
	{"a suspended run uses no slot until it is resumed", withAgent(func(w *world) {
		_, c := w.running(lease)
		w.suspend(c, time.Hour)
		w.Equal(store.RunAwaitingApproval, w.run(c.Run.ID).Status)
		w.Zero(w.sweep(10))
		w.Empty(w.claim(5, lease))
		w.Len(w.renewLeases(w.environment.Key(), heldClaims(leaseOf(c)), lease), 1)
		w.ErrorIs(w.complete(completed(c)), store.ErrFenced)
		w.ErrorIs(w.s.Release(w.ctx, leaseOf(c), 0), store.ErrFenced)

		w.NoError(w.s.Resume(w.ctx, c.Run.Key(), json.RawMessage(`{"approved":true}`)))
		w.ErrorIs(w.s.Resume(w.ctx, c.Run.Key(), nil), store.ErrConflict, "it no longer waits")
		w.singles(1)
		again := w.claim(1, lease)
		w.Equal(c.Run.ID, again[0].Run.ID, "before new ones")
		w.Equal(2, again[0].Run.Attempt)
		w.Equal([]store.JournalEntry{
			newEntry(1, store.JournalModelAnswer, false), {Sequence: 2, Kind: store.JournalResumed, Data: json.RawMessage(`{"approved":true}`)},
		}, w.journalOf(again[0]))
		w.NoError(w.complete(completed(again[0])))
		w.ErrorIs(w.s.Resume(w.ctx, c.Run.Key(), nil), store.ErrConflict, "it has ended")
		w.ErrorIs(w.s.Resume(w.ctx, w.key(newUUIDv7()), nil), store.ErrNotFound)
	})},
	{"a suspended run that times out continues with a journal entry", withAgent(func(w *world) {
		_, c := w.running(lease)
		w.suspend(c, expired)
		w.Equal(store.Swept{Resumed: 1}, w.sweepLeases(10))
		again := w.claim(1, lease)
		w.Len(again, 1)
		w.Equal(store.JournalExpired, w.journalOf(again[0])[1].Kind)
		w.suspend(again[0], time.Hour)
		w.Zero(w.sweep(10))
	})},
	{"a run with an unsafe tool in flight is not suspended", withAgent(func(w *world) {
		_, c := w.running(lease)
		err := w.s.Suspend(w.ctx, store.Suspension{
			Lease: leaseOf(c), For: time.Hour, Journal: []store.JournalEntry{newEntry(1, store.JournalToolStarted, true)},
		})
		w.ErrorIs(err, store.ErrConflict)
		w.Empty(w.journalOf(c), "nothing of it was recorded")
		w.Equal(store.RunRunning, w.run(c.Run.ID).Status)
		stale := leaseOf(c)
		stale.Token++
		w.ErrorIs(w.s.Suspend(w.ctx, store.Suspension{Lease: stale, For: time.Hour}), store.ErrFenced)
		w.ErrorIs(w.s.Suspend(w.ctx, store.Suspension{Lease: store.Lease{Run: w.key(newUUIDv7())}, For: time.Hour}), store.ErrNotFound)
	})},
	{"an open run is cancelled in any state, an ended one is not", withAgent(func(w *world) {
		events := w.singles(3)
		c := w.claimForHour(store.Claim{RunnerID: "r", Slots: 5, Limit: 2}).Runs
		w.Len(c, 2)
		w.suspend(c[1], time.Hour)
		for _, e := range events {
			run := w.key(e.Runs[0].ID)
			w.NoError(w.s.Cancel(w.ctx, run, runerror.Cancelled, "no longer wanted"))
			w.ErrorIs(w.s.Cancel(w.ctx, run, runerror.Cancelled, "again"), store.ErrConflict)
			got := w.run(run.ID)
			w.Equal(store.RunCancelled, got.Status)
			w.Equal(runerror.Cancelled, got.ErrorCode)
			w.Equal("no longer wanted", got.Error)
			w.Equal(store.ConnectorRunCancelled, w.outcome(e.ConnectorRunID).Status)
		}
		w.Equal([]store.Lease{leaseOf(c[0])}, w.claimForHour(store.Claim{RunnerID: "r", Slots: 5, Limit: 5, Holding: []store.Lease{leaseOf(c[0])}}).Lost)
		w.ErrorIs(w.complete(completed(c[0])), store.ErrFenced)
		w.ErrorIs(w.s.AppendJournal(w.ctx, leaseOf(c[0]), []store.JournalEntry{newEntry(1, store.JournalModelAnswer, false)}), store.ErrFenced)
		w.ErrorIs(w.s.Resume(w.ctx, c[1].Run.Key(), nil), store.ErrConflict)
		w.ErrorIs(w.s.Cancel(w.ctx, w.key(newUUIDv7()), runerror.Cancelled, "unknown"), store.ErrNotFound)
	})},
}
