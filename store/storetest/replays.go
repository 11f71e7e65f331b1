// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
)

// lastHourFilter returns a filter for connector runs that ended in the last hour. It waits for the next
// millisecond, because a window ends before the millisecond of the replay.
func (w *world) lastHourFilter(statuses ...store.ConnectorRunStatus) store.ReplayFilter {
	now := w.nextMillisecond()
	return store.ReplayFilter{Statuses: statuses, Since: now.Add(-time.Hour).Truncate(time.Millisecond), Until: now.Add(time.Minute).Truncate(time.Millisecond)}
}

// nextMillisecond waits for the next millisecond, the resolution of IDs.
func (w *world) nextMillisecond() (now time.Time) {
	begun, err := w.s.Now(w.ctx)
	w.NoError(err)
	for now = begun; now.UnixMilli() == begun.UnixMilli(); {
		now = w.readClock()
	}
	return now
}

// newReplay requests a replay of a connector's runs.
func (w *world) newReplay(c store.Connector, statuses ...store.ConnectorRunStatus) store.NewReplay {
	return store.NewReplay{Connector: c.Key(), ID: uuid.New(), Fingerprint: []byte("request"), Filter: w.lastHourFilter(statuses...), PerMinute: 600}
}

// startReplay starts a replay that must be accepted.
func (w *world) startReplay(n store.NewReplay) store.Replay {
	r, verdict, err := w.s.StartReplay(w.ctx, n)
	w.NoError(err)
	w.Equal(store.Accepted, verdict)
	return r
}

// storedReplay returns the current state of a replay.
func (w *world) storedReplay(r store.Replay) store.Replay {
	r, err := w.s.Replay(w.ctx, r.Key())
	w.NoError(err)
	return r
}

// originals returns the next originals of a replay.
func (w *world) originals(r store.Replay, limit int) store.ReplayPage {
	page, err := w.s.ReplayOriginals(w.ctx, r, limit)
	w.NoError(err)
	return page
}

// endedEvents returns ended events of the world's connector with these statuses, oldest first.
func (w *world) endedEvents(statuses ...store.RunStatus) (ids []uuid.UUID) {
	w.deploy("past", "first", "second")
	for _, status := range statuses {
		e := w.acceptEvent(w.singleEvent())
		w.NoError(w.complete(store.Completion{Lease: leaseOf(w.claim(1, lease)[0]), Status: status, Error: "no"}))
		ids = append(ids, e.ConnectorRunID)
	}
	return ids
}

// replayStep returns the step after an original was replayed.
func replayStep(r store.Replay, original uuid.UUID) store.ReplayStep {
	step := store.ReplayStep{From: r.Position, To: r}
	step.To.Position = original
	step.To.Replayed++
	return step
}

// replayStep replays an original as a step.
func (w *world) replayStep(original store.ConnectorRun, step store.ReplayStep) (store.Admission, error) {
	return replay.Step(w.ctx, w.s, replayRules, w.projectLoad(), original, step)
}

// originalIDs returns the IDs of connector runs.
func originalIDs(runs []store.ConnectorRun) (ids []uuid.UUID) {
	for _, run := range runs {
		ids = append(ids, run.ID)
	}
	return ids
}

// countReplays returns the number of replays of a connector run.
func (w *world) countReplays(connector store.Key, original uuid.UUID) (n int) {
	runs, _ := w.listConnectorRuns(store.ConnectorRunQuery{Connector: connector, Limit: 100})
	for _, run := range runs {
		if run.ReplayOf != nil && *run.ReplayOf == original {
			n++
		}
	}
	return n
}

var replaysPromises = []promise{
	{"a bulk replay is due at once and has its matches", func(w *world) {
		_, next, err := w.s.NextReplay(w.ctx)
		w.NoError(err)
		w.Nil(next)
		failed, ok := store.RunFailed, store.RunCompleted
		w.endedEvents(failed, ok, failed)
		n := w.newReplay(w.connector, store.ConnectorRunFailed)
		match, err := w.s.MatchReplay(w.ctx, n.Connector, n.Filter)
		w.NoError(err)
		w.Equal(store.ReplayMatch{Matched: 2}, match)
		r := w.startReplay(n)
		w.Equal(r, w.storedReplay(r))
		w.Equal(n.ID, r.ID)
		w.Equal(w.connector.Key(), r.Connector())
		w.True(n.Filter.Since.Equal(r.Filter.Since))
		clock := w.readClock()
		w.True(r.Filter.Until.Before(n.Filter.Until))
		w.False(r.Filter.Until.After(clock), "later ones are not included, whatever the caller's clock says")
		w.Equal(n.Filter.Statuses, r.Filter.Statuses)
		w.Equal(store.ReplayMatch{Matched: 2}, r.Match)
		w.Equal(store.ReplayRunning, r.Status)
		w.EqualValues(600, r.PerMinute)
		w.Zero(r.Done())
		w.Nil(r.EndedAt)
		now, next, err := w.s.NextReplay(w.ctx)
		w.NoError(err)
		w.False(next.After(now))
	}},
	{"a filter finds ended connector runs of its window, and no replays", func(w *world) {
		failed, ok := store.RunFailed, store.RunCompleted
		ids := w.endedEvents(failed, ok, failed, failed)
		open := w.acceptEvent(w.singleEvent())
		skipped := w.event()
		skipped.Runs, skipped.Input, skipped.Skipped, skipped.Trigger = nil, nil, "not now", store.TriggerCron
		w.accept(&skipped)
		w.NoError(w.complete(store.Completion{Lease: leaseOf(w.claim(1, lease)[0]), Status: failed}))
		again := w.replayRun(ids[0])
		for _, run := range w.claim(2, lease) {
			w.NoError(w.complete(store.Completion{Lease: leaseOf(run), Status: failed}))
		}
		w.Equal(store.ConnectorRunFailed, w.connectorRun(again.ID).Status)
		other := w.newConnector("other")
		w.NoError(w.s.PutConnector(w.ctx, other))
		at := func(id uuid.UUID) time.Time { return w.connectorRun(id).StartedAt.Truncate(time.Millisecond) }
		all := w.newReplay(w.connector, store.ConnectorRunFailed)
		for what, of := range map[string]struct {
			change func(*store.NewReplay)
			want   []uuid.UUID
		}{
			"all failed ones": {func(*store.NewReplay) {}, []uuid.UUID{ids[0], ids[2], ids[3], open.ConnectorRunID}},
			"two statuses": {func(n *store.NewReplay) {
				n.Filter.Statuses = []store.ConnectorRunStatus{store.ConnectorRunCompleted, store.ConnectorRunSkipped}
			}, []uuid.UUID{ids[1], skipped.ConnectorRunID}},
			"a cause": {func(n *store.NewReplay) {
				n.Filter.Statuses, n.Filter.Trigger = append(n.Filter.Statuses, store.ConnectorRunSkipped), store.TriggerCron
			}, []uuid.UUID{skipped.ConnectorRunID}},
			"later":             {func(n *store.NewReplay) { n.Filter.Since = at(open.ConnectorRunID).Add(time.Minute) }, nil},
			"earlier":           {func(n *store.NewReplay) { n.Filter.Until = at(ids[0]) }, nil},
			"another connector": {func(n *store.NewReplay) { n.Connector = other.Key() }, nil},
		} {
			n := all
			n.ID = uuid.New()
			of.change(&n)
			r := w.startReplay(n)
			w.EqualValues(len(of.want), r.Match.Matched, what)
			page := w.originals(r, 100)
			w.Equal(of.want, originalIDs(page.Originals), what)
			w.True(page.End, what)
			w.NoError(w.s.CancelReplay(w.ctx, r.Key()))
		}
	}},
	{"a page continues after the last one", func(w *world) {
		failed, ok := store.RunFailed, store.RunCompleted
		ids := w.endedEvents(failed, ok, failed, ok)
		r := w.startReplay(w.newReplay(w.connector, store.ConnectorRunFailed))
		page := w.originals(r, 1)
		w.Equal(ids[:1], originalIDs(page.Originals))
		w.Equal(ids[0], page.Last)
		w.False(page.End)
		r.Position = page.Last
		page = w.originals(r, 10)
		w.Equal(ids[2:3], originalIDs(page.Originals))
		w.Equal(ids[3], page.Last, "the last one that was read")
		w.True(page.End)
	}},
	{"a replayed event and its step are written together, once", func(w *world) {
		ids := w.endedEvents(store.RunFailed, store.RunFailed)
		r := w.startReplay(w.newReplay(w.connector, store.ConnectorRunFailed))
		page := w.originals(r, 10)
		step := replayStep(r, ids[0])
		a, err := w.replayStep(page.Originals[0], step)
		w.NoError(err)
		w.Equal(store.Accepted, a.Verdict)
		moved := w.storedReplay(r)
		w.Equal(ids[0], moved.Position)
		w.EqualValues(1, moved.Replayed)
		w.Equal(1, w.countReplays(w.connector.Key(), ids[0]))
		before := w.allRows(w.project.ID)
		w.ErrorIs(errorOf(w.replayStep(page.Originals[0], step)), store.ErrReplayMoved, "a stale process changes nothing")
		w.Equal(before, w.allRows(w.project.ID))
		w.NoError(w.s.CancelReplay(w.ctx, r.Key()))
		before = w.allRows(w.project.ID)
		w.ErrorIs(errorOf(w.replayStep(page.Originals[1], replayStep(moved, ids[1]))), store.ErrReplayMoved, "also after a cancellation")
		w.Equal(before, w.allRows(w.project.ID))
	}},
	{"a replayed delivery and its step are written together, once", withAgent(func(w *world) {
		out := w.outboundTo("results", automatic)
		original := w.completedDelivery(out)
		r := w.startReplay(w.newReplay(out, store.ConnectorRunCompleted))
		page := w.originals(r, 10)
		w.Equal([]uuid.UUID{original.ID}, originalIDs(page.Originals))
		w.NoError(errorOf(w.replayStep(page.Originals[0], replayStep(r, original.ID))))
		w.EqualValues(1, w.storedReplay(r).Replayed)
		before := w.allRows(w.project.ID)
		w.ErrorIs(errorOf(w.replayStep(page.Originals[0], replayStep(r, original.ID))), store.ErrReplayMoved)
		w.Equal(before, w.allRows(w.project.ID))
		w.Equal(1, w.countReplays(out.Key(), original.ID))
	})},
	{"concurrent processes replay each original once", func(w *world) {
		ids := w.endedEvents(store.RunFailed, store.RunFailed, store.RunFailed)
		r := w.startReplay(w.newReplay(w.connector, store.ConnectorRunFailed))
		originals, load := w.originals(r, 10).Originals, w.projectLoad()
		var both sync.WaitGroup
		taken := make([]int, 2)
		failures := make([]error, 2)
		for i := range taken {
			both.Go(func() {
				at := r
				for _, original := range originals {
					step := replayStep(at, original.ID)
					_, err := replay.Step(w.ctx, w.s, replayRules, load, original, step)
					switch {
					case err == nil:
						taken[i]++
					case !errors.Is(err, store.ErrReplayMoved):
						failures[i] = err
					}
					at = step.To
				}
			})
		}
		both.Wait()
		for i := range taken {
			w.NoError(failures[i])
		}
		w.Equal(len(ids), taken[0]+taken[1])
		w.EqualValues(len(ids), w.storedReplay(r).Replayed)
		for _, id := range ids {
			w.Equal(1, w.countReplays(w.connector.Key(), id))
		}
	}},
	{"a taken replay has a lease", func(w *world) {
		w.endedEvents(store.RunFailed)
		r := w.startReplay(w.newReplay(w.connector, store.ConnectorRunFailed))
		taken, err := w.s.TakeReplays(w.ctx, 10, lease)
		w.NoError(err)
		w.Len(taken, 1)
		w.Equal(r.ID, taken[0].ID)
		now, next, err := w.s.NextReplay(w.ctx)
		w.NoError(err)
		w.False(taken[0].TakenAt.After(now))
		w.Equal(taken[0].TakenAt.Add(lease), *next)
		w.requireNone(w.s.TakeReplays(w.ctx, 10, lease))
		w.NoError(w.s.MoveReplay(w.ctx, store.ReplayStep{From: r.Position, To: taken[0], Due: taken[0].TakenAt}))
		w.updateRows(`UPDATE replays SET due_at = due_at - 1`)
		again, err := w.s.TakeReplays(w.ctx, 10, expired)
		w.NoError(err)
		w.Len(again, 1)
		again, err = w.s.TakeReplays(w.ctx, 10, lease)
		w.NoError(err)
		w.Len(again, 1, "its lease has expired")
	}},
	{"a step records position, reason and outcome", func(w *world) {
		ids := w.endedEvents(store.RunFailed)
		r := w.startReplay(w.newReplay(w.connector, store.ConnectorRunFailed))
		to := r
		to.Position, to.Tries, to.Refused, to.Reason, to.Detail = ids[0], 3, map[string]int64{"gone": 2, "not_storable": 1}, "backlog_full", "Later."
		w.NoError(w.s.MoveReplay(w.ctx, store.ReplayStep{From: r.Position, To: to}))
		w.Equal(to, w.storedReplay(r))
		w.EqualValues(3, w.storedReplay(r).Done())
		w.ErrorIs(w.s.MoveReplay(w.ctx, store.ReplayStep{From: r.Position, To: to}), store.ErrReplayMoved)
		to.Status, to.Reason, to.Detail = store.ReplayCompleted, "", ""
		w.NoError(w.s.MoveReplay(w.ctx, store.ReplayStep{From: to.Position, To: to}))
		ended := w.storedReplay(r)
		w.Equal(store.ReplayCompleted, ended.Status)
		w.NotNil(ended.EndedAt)
		w.ErrorIs(w.s.MoveReplay(w.ctx, store.ReplayStep{From: to.Position, To: to}), store.ErrReplayMoved)
		w.ErrorIs(w.s.CancelReplay(w.ctx, r.Key()), store.ErrConflict)
		_, next, err := w.s.NextReplay(w.ctx)
		w.NoError(err)
		w.Nil(next)
	}},
	{"a connector has one open replay, and a request is one replay", func(w *world) {
		n := w.newReplay(w.connector, store.ConnectorRunFailed)
		r := w.startReplay(n)
		again, verdict, err := w.s.StartReplay(w.ctx, n)
		w.NoError(err)
		w.Equal(store.Repeated, verdict)
		w.Equal(r, again)
		other := n
		other.Fingerprint = []byte("another")
		_, verdict, err = w.s.StartReplay(w.ctx, other)
		w.NoError(err)
		w.Equal(store.KeyReused, verdict)
		_, _, err = w.s.StartReplay(w.ctx, w.newReplay(w.connector, store.ConnectorRunFailed))
		w.ErrorIs(err, store.ErrReplayRunning)
		w.NoError(w.s.CancelReplay(w.ctx, r.Key()))
		w.Equal(store.ReplayCancelled, w.storedReplay(r).Status)
		second := w.startReplay(w.newReplay(w.connector, store.ConnectorRunFailed))
		list := w.listReplays(w.connector.Key())
		w.Equal([]store.Replay{second, w.storedReplay(r)}, list)
		unknown := w.newReplay(w.connector, store.ConnectorRunFailed)
		unknown.Connector.ID = uuid.New()
		_, _, err = w.s.StartReplay(w.ctx, unknown)
		w.ErrorIs(err, store.ErrNotFound)
		w.ErrorIs(errorOf(w.s.Replay(w.ctx, w.key(unknown.ID))), store.ErrNotFound)
		w.ErrorIs(w.s.CancelReplay(w.ctx, w.key(unknown.ID)), store.ErrNotFound)
	}},
	{"the number of open replays per project is limited", func(w *world) {
		start := func() (store.Replay, error) {
			c := w.newConnector(uuid.NewString())
			w.NoError(w.s.PutConnector(w.ctx, c))
			r, _, err := w.s.StartReplay(w.ctx, w.newReplay(c, store.ConnectorRunFailed))
			return r, err
		}
		var last store.Replay
		var (
			all   sync.WaitGroup
			mutex sync.Mutex
			made  int
		)
		for range store.MaxRunningReplays + 4 { // at once
			all.Go(func() {
				r, err := start()
				mutex.Lock()
				defer mutex.Unlock()
				if err == nil {
					last, made = r, made+1
				} else {
					w.ErrorIs(err, store.ErrTooManyReplays)
				}
			})
		}
		all.Wait()
		w.Equal(store.MaxRunningReplays, made)
		w.ErrorIs(errorOf(start()), store.ErrTooManyReplays)
		w.NoError(w.s.CancelReplay(w.ctx, last.Key()))
		w.NoError(errorOf(start()))
	}},
	{"of concurrent replays of a connector one starts", func(w *world) {
		var all sync.WaitGroup
		errs := make([]error, 4)
		news := make([]store.NewReplay, len(errs))
		for i := range news {
			news[i] = w.newReplay(w.connector, store.ConnectorRunFailed)
			all.Go(func() { _, _, errs[i] = w.s.StartReplay(w.ctx, news[i]) })
		}
		all.Wait()
		made := 0
		for _, err := range errs {
			if err == nil {
				made++
				continue
			}
			w.ErrorIs(err, store.ErrReplayRunning)
		}
		w.Equal(1, made)
	}},
	{"a replay started twice at once exists once", func(w *world) {
		var all sync.WaitGroup
		n := w.newReplay(w.connector, store.ConnectorRunFailed)
		for range 4 {
			all.Go(func() {
				r, _, err := w.s.StartReplay(w.ctx, n)
				w.NoError(err)
				w.Equal(n.ID, r.ID)
			})
		}
		all.Wait()
	}},
	{"old replays are deleted by number, by age, and with their connector", func(w *world) {
		var first store.Replay
		for i := range store.MaxReplays + 2 {
			r := w.startReplay(w.newReplay(w.connector, store.ConnectorRunFailed))
			if i == 0 {
				first = r
			}
			w.NoError(w.s.CancelReplay(w.ctx, r.Key()))
		}
		w.Len(w.listReplays(w.connector.Key()), store.MaxReplays)
		_, err := w.s.Replay(w.ctx, first.Key())
		w.ErrorIs(err, store.ErrNotFound)
		running := w.startReplay(w.newReplay(w.connector, store.ConnectorRunFailed))
		w.updateRows(`UPDATE replays SET ended_at = CASE WHEN ended_at IS NULL THEN NULL ELSE 1 END`)
		for n := 1; n > 0; {
			n = w.sweepExpired(100)
		}
		w.Equal([]store.Replay{running}, w.listReplays(w.connector.Key()))
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.connector.Ref))
		w.ErrorIs(errorOf(w.s.Replay(w.ctx, running.Key())), store.ErrNotFound)
		_, next, err := w.s.NextReplay(w.ctx)
		w.NoError(err)
		w.Nil(next)
	}},
}
