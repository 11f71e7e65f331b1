// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// claimForHour claims in the world's environment, for an hour.
func (w *world) claimForHour(c store.Claim) store.ClaimResult {
	c.Environment, c.Lease = w.environment.Key(), lease
	result, err := w.s.Claim(w.ctx, c)
	w.NoError(err)
	return result
}

// singles accepts n events with a run for the first link each.
func (w *world) singles(n int) []store.Event {
	events := make([]store.Event, n)
	for i := range events {
		events[i] = w.singleEvent()
	}
	w.acceptAll(events)
	return events
}

// updateRows changes rows of the project directly.
func (w *world) updateRows(statement string, args ...any) {
	w.execStatement(statement+` WHERE project_id = $1`, append([]any{w.project.ID.String()}, args...)...)
}

// runIDs returns the IDs of claimed runs.
func runIDs(claimed []store.Claimed) (ids []uuid.UUID) {
	for _, c := range claimed {
		ids = append(ids, c.Run.ID)
	}
	return ids
}

var heldPromises = []promise{
	{"an invalid completion does not affect others", withAgents(func(w *world) {
		e, other := w.event(), w.event()
		w.accept(&e)
		w.accept(&other)
		claimed := w.claim(4, lease)
		w.Len(claimed, 4)
		of := func(c store.Claimed, token int64, sequences ...int64) store.Completion {
			done := completed(c)
			done.Token = token
			for _, n := range sequences {
				done.Journal = append(done.Journal, newEntry(n, store.JournalModelAnswer, false))
			}
			return done
		}
		answers, err := w.s.Complete(w.ctx, []store.Completion{
			of(claimed[0], claimed[0].Token, 1, 1), of(claimed[1], claimed[1].Token, 1, 3), of(claimed[2], claimed[2].Token, 1),
			of(claimed[3], claimed[3].Token-1, 1, 2), of(claimed[3], claimed[3].Token, 1),
		})
		w.NoError(err)
		w.Len(answers, 5)
		w.NoError(answers[0], "a duplicate counts once")
		w.ErrorIs(answers[1], store.ErrConflict, "a gap")
		w.NoError(answers[2])
		w.ErrorIs(answers[3], store.ErrFenced)
		w.NoError(answers[4])
		for i, want := range []int{1, 0, 1, 1} {
			w.Len(w.readJournal(claimed[i].Run.Key()), want, i)
		}
		w.Equal(store.RunRunning, w.run(claimed[1].Run.ID).Status)
	})},
	{"the number of runners is limited, and unrecorded ones work", withAgent(func(w *world) {
		for i := range store.MaxRunners {
			w.execStatement(`INSERT INTO runners (project_id, environment_id, id, seen_at, places, digests) VALUES ($1, $2, $3, 0, 1, '[]')`,
				w.project.ID.String(), w.environment.ID.String(), "r-"+strconv.Itoa(i))
		}
		w.singles(2)
		w.Len(w.claimAs("one more", 1, lease), 1)
		w.Equal(store.MaxRunners, w.countRowsOf("runners"))
		w.Len(w.claimAs("r-7", 1, lease), 1)
		w.updateRows(`DELETE FROM runners`)
		w.claimAs("one more", 1, lease)
		w.Equal(1, w.countRowsOf("runners"))
	})},
	{"runs of missing agents block no others", func(w *world) {
		w.deploy("one", "second")
		for range 30 {
			w.acceptEvent(w.singleEvent())
		}
		e := w.acceptEvent(w.event())
		claimed := w.claim(1, lease)
		w.Len(claimed, 1, "at once")
		w.Equal(e.Runs[1].ID, claimed[0].Run.ID)
	}},
	{"each completion of a call has its own result", withAgent(func(w *world) {
		w.singles(4)
		c := w.claim(4, lease)
		w.NoError(w.s.Release(w.ctx, leaseOf(c[2]), time.Hour))
		w.NoError(w.complete(completed(c[3])))
		unknown := completed(c[0])
		unknown.Run = w.key(newUUIDv7())
		open := completed(c[1])
		open.Status = store.RunQueued
		answers, err := w.s.Complete(w.ctx, []store.Completion{
			completed(c[0]), completed(c[2]), completed(c[3]), open, unknown, completed(c[0]), completed(c[1]),
		})
		w.NoError(err)
		for i, want := range []error{nil, store.ErrFenced, nil, store.ErrConflict, store.ErrNotFound, nil, nil} {
			w.ErrorIs(answers[i], want, "answer %d", i)
		}
		for i, want := range []store.RunStatus{store.RunCompleted, store.RunCompleted, store.RunQueued, store.RunCompleted} {
			w.Equal(want, w.run(c[i].Run.ID).Status, "run %d", i)
		}
	})},
	{"a run is returned again after a lost response, not while it is held", withAgent(func(w *world) {
		e := w.singles(3)
		first := w.claimForHour(store.Claim{RunnerID: "r", Slots: 5, Limit: 2}).Runs
		w.Len(first, 2)
		held, lost := leaseOf(first[0]), first[1]
		got := w.claimForHour(store.Claim{RunnerID: "r", Slots: 5, Holding: []store.Lease{held}})
		w.Empty(got.Lost)
		w.Equal([]uuid.UUID{lost.Run.ID}, runIDs(got.Runs))
		w.Equal(lost.Token, got.Runs[0].Token)
		w.Equal(lost.BundleDigest, got.Runs[0].BundleDigest)
		w.Equal(e[1].Input, got.Runs[0].Input)
		w.Equal(1, got.Runs[0].Run.Attempt)
		w.Empty(w.claimForHour(store.Claim{RunnerID: "another", Slots: 5}).Runs, "not another's")
		w.Empty(w.claimForHour(store.Claim{RunnerID: "r", Slots: 5, Holding: []store.Lease{held, leaseOf(lost)}}).Runs)
		got = w.claimForHour(store.Claim{RunnerID: "r", Slots: 5, Limit: 5, Holding: []store.Lease{held}})
		w.Equal([]uuid.UUID{lost.Run.ID, e[2].Runs[0].ID}, runIDs(got.Runs), "and new ones with it")
		w.NoError(w.complete(completed(lost)))
		w.Equal([]store.Lease{leaseOf(lost)}, w.claimForHour(store.Claim{RunnerID: "r", Slots: 5, Holding: []store.Lease{held, leaseOf(lost), leaseOf(got.Runs[1])}}).Lost)
	})},
	{"runs that a runner no longer holds are released", withAgent(func(w *world) {
		w.singles(4)
		mine := w.claimAs("r", 3, lease)
		theirs := w.claimAs("another", 1, lease)
		for _, want := range []int{2, 0} {
			n, err := w.s.Reclaim(w.ctx, w.environment.Key(), "r", []store.Lease{leaseOf(mine[0])})
			w.NoError(err)
			w.Equal(want, n)
		}
		w.Equal(store.RunRunning, w.run(mine[0].Run.ID).Status)
		w.Equal(store.RunRunning, w.run(theirs[0].Run.ID).Status)
		w.ElementsMatch(runIDs(mine[1:]), runIDs(w.claim(5, lease)))
	})},
	{"runs of a bundle that a runner rejects are for others", func(w *world) {
		d := w.deploy("one", "first")
		w.singles(1)
		digest := w.deployment(d.ID).BundleDigest
		w.Empty(w.claimForHour(store.Claim{RunnerID: "r", Slots: 5, Limit: 5, Refused: []string{"sha256:other", digest}}).Runs)
		w.Len(w.claimForHour(store.Claim{RunnerID: "another", Slots: 5, Limit: 5, Refused: []string{"sha256:other"}}).Runs, 1)
	}},
	{"runs of an unusable bundle block no other runs", func(w *world) {
		d := w.deploy("one", "first")
		w.singles(5)
		for _, c := range w.claim(5, lease) {
			w.NoError(w.s.Release(w.ctx, leaseOf(c), 0))
		}
		w.deploy("two", "first")
		fresh := w.singles(2)
		claimed := w.claimForHour(store.Claim{RunnerID: "r", Slots: 5, Limit: 3, Refused: []string{w.deployment(d.ID).BundleDigest}}).Runs
		w.Equal([]uuid.UUID{fresh[0].Runs[0].ID, fresh[1].Runs[0].ID}, runIDs(claimed))
		w.Len(w.claimForHour(store.Claim{RunnerID: "another", Slots: 9, Limit: 9}).Runs, 5, "and they still exist")
	}},
	{"a run released with a delay waits", withAgent(func(w *world) {
		_, c := w.running(lease)
		w.NoError(w.s.Release(w.ctx, leaseOf(c), time.Hour))
		w.NoError(w.s.Release(w.ctx, leaseOf(c), 0), "a repetition changes nothing")
		w.Equal(store.RunQueued, w.run(c.Run.ID).Status)
		w.Empty(w.claim(5, lease))
		next := w.singles(1)[0]
		w.Equal([]uuid.UUID{next.Runs[0].ID}, runIDs(w.claim(5, lease)), "and does not keep others from starting")
		w.updateRows(`UPDATE open_runs SET not_before = not_before - $2`, time.Hour.Microseconds())
		w.Equal([]uuid.UUID{c.Run.ID}, runIDs(w.claim(5, lease)))
	})},
	{"a heartbeat revives a swept claim until another runner has the run", withAgent(func(w *world) {
		_, c := w.running(expired)
		revived := func(hold time.Duration) bool {
			return len(w.renewLeases(w.environment.Key(), heldClaims(leaseOf(c)), hold)) == 0
		}
		w.Equal(1, w.sweep(10))
		w.True(revived(expired))
		w.Equal(store.RunRunning, w.run(c.Run.ID).Status)
		w.Equal(1, w.sweep(10))
		w.True(revived(lease), "again")
		w.Empty(w.claim(5, lease))
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{newEntry(1, store.JournalModelAnswer, false)}))
		w.True(revived(expired))
		w.Equal(1, w.sweep(10))
		next := w.claim(5, lease)
		w.Len(next, 1)
		w.False(revived(lease))
		w.NoError(w.complete(completed(next[0])))
		w.False(revived(lease))
	})},
	{"a released claim is not revived", withAgent(func(w *world) {
		_, c := w.running(lease)
		w.NoError(w.s.Release(w.ctx, leaseOf(c), time.Hour))
		lost := w.renewLeases(w.environment.Key(), heldClaims(leaseOf(c)), lease)
		w.Equal([]store.Lease{leaseOf(c)}, lost)
		w.Equal(store.RunQueued, w.run(c.Run.ID).Status)
	})},
	{"waiting runners are present and learn of queued runs", withAgent(func(w *world) {
		other := w.newEnvironment("staging", origin.Add(time.Hour))
		w.NoError(w.s.PutEnvironment(w.ctx, other))
		w.claimForHour(store.Claim{RunnerID: "r", Slots: 1})
		w.updateRows(`UPDATE runners SET seen_at = seen_at - $2`, time.Hour.Microseconds())
		attend := func() []store.Key {
			queued, err := w.s.Attend(w.ctx, []store.RunnerKey{
				{Environment: w.environment.Key(), ID: "r"}, {Environment: w.environment.Key(), ID: "unknown"}, {Environment: other.Key(), ID: "r"},
			})
			w.NoError(err)
			return queued
		}
		w.Empty(attend())
		runners := w.listRunners(w.environment.Key(), time.Minute)
		w.Len(runners, 1, "a runner that never claimed is not recorded")
		w.Equal("r", runners[0].ID)
		w.singles(1)
		w.Equal([]store.Key{w.environment.Key()}, attend())
		w.Len(w.claim(1, lease), 1)
		w.Empty(attend(), "running runs are not queued")
		w.requireNone(w.s.Attend(w.ctx, nil))
	})},
}
