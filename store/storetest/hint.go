// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

var hintPromises = []promise{
	{"a slow reader gets every hint, or the hint of loss", func(w *world) {
		hints, stop := w.s.Subscribe(store.TopicDeployment)
		defer stop()
		var changed []store.Key
		for range 100 { // without a reader
			spec := w.beginNew(uuid.NewString())
			changed = append(changed, spec.Key())
		}
		for seen := map[store.Key]bool{}; !seen[changed[len(changed)-1]]; {
			hint := <-hints
			if seen[hint.Key] = true; hint.Key == (store.Key{}) {
				return
			}
			if hint.Key == changed[len(changed)-1] {
				for _, key := range changed {
					w.True(seen[key], "hints are in the order of the changes")
				}
			}
		}
	}},
	{"every end of a connector run sends a hint", withAgent(func(w *world) {
		none := w.event()
		none.Runs = nil
		w.awaitHint(store.TopicDone, none.ConnectorRunID, func() { w.accept(&none) })
		lacking := w.event()
		lacking.Runs = lacking.Runs[1:]
		w.accept(&lacking)
		w.awaitHint(store.TopicDone, lacking.ConnectorRunID, func() { w.claim(1, lease) })
		interrupted, c := w.running(lease)
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{newEntry(1, store.JournalToolStarted, true)}))
		w.awaitHint(store.TopicDone, interrupted.ConnectorRunID, func() { w.NoError(w.s.Release(w.ctx, leaseOf(c), 0)) })
		open := w.acceptEvent(w.event())
		w.awaitHint(store.TopicDone, open.ConnectorRunID, func() {
			w.NoError(w.s.Remove(w.ctx, w.project.ID, w.environment.Ref))
		})
	})},
	{"a hint has the end of the last run, unless it is large", withAgent(func(w *world) {
		for _, c := range []store.Completion{
			{Status: store.RunCompleted, Output: "done\x00", FinishReason: "stop"},
			{Status: store.RunFailed, ErrorCode: "model_error", Error: "no answer", FinishReason: "content_filter"},
			{Status: store.RunCompleted, Output: strings.Repeat("x", store.MaxHintedEnd)},
			{Status: store.RunCompleted, Output: strings.Repeat("x", store.MaxHintedEnd+1)},
			{Status: store.RunCompleted, Output: strings.Repeat("x", store.MaxOutput+1)},
		} {
			e, claimed := w.running(lease)
			c.Lease = leaseOf(claimed)
			hint := w.awaitHint(store.TopicDone, e.ConnectorRunID, func() { w.NoError(w.complete(c)) })
			run := w.run(claimed.Run.ID)
			if len(run.Output) > store.MaxHintedEnd {
				w.Nil(hint.End)
				continue
			}
			w.Equal(c.FinishReason, run.FinishReason)
			w.Equal(store.RunEnd{
				Run: run.Key(), Status: run.Status, ErrorCode: run.ErrorCode, Error: run.Error, Output: run.Output, FinishReason: run.FinishReason,
			}, *hint.End)
		}
	})},
	{"only a result with possible deliveries sends a delivery hint", withAgents(func(w *world) {
		w.outboundTo("results", automatic)
		e := w.acceptEvent(w.event())
		runs := w.claim(2, lease)
		slices.SortFunc(runs, func(a, b store.Claimed) int { return strings.Compare(a.Run.AgentName, b.Run.AgentName) })
		w.awaitHint(store.TopicDelivery, w.environment.ID, func() { w.NoError(w.complete(completed(runs[0]))) })
		hints, stop := w.s.Subscribe(store.TopicDelivery)
		defer stop()
		w.awaitHint(store.TopicDone, e.ConnectorRunID, func() { w.NoError(w.complete(completed(runs[1]))) })
		w.Empty(hints)
	})},
	{"a followed run sends a hint for each change", withAgent(func(w *world) {
		e := w.acceptEvent(w.singleEvent())
		run := e.Runs[0].ID
		w.s.FollowRun(w.key(run))
		var c store.Claimed
		w.awaitHint(store.TopicRun, run, func() { c = w.claim(1, lease)[0] })
		w.awaitHint(store.TopicRun, run, func() {
			w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{newEntry(1, store.JournalModelAnswer, false)}))
		})
		w.awaitHint(store.TopicRun, run, func() {
			large := newEntry(2, store.JournalModelAnswer, false)
			large.Data = json.RawMessage(`"` + strings.Repeat("x", store.MaxModelAnswer-2) + `"`)
			w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{large}))
		})
		w.awaitHint(store.TopicRun, run, func() { w.NoError(w.s.Suspend(w.ctx, store.Suspension{Lease: leaseOf(c), For: time.Hour})) })
		w.awaitHint(store.TopicRun, run, func() { w.NoError(w.s.Resume(w.ctx, w.key(run), json.RawMessage(`{}`))) })
		again := w.claim(1, lease)[0]
		w.awaitHint(store.TopicRun, run, func() { w.NoError(w.s.Release(w.ctx, leaseOf(again), 0)) })
		w.awaitHint(store.TopicRun, run, func() { w.NoError(w.complete(completed(w.claim(1, lease)[0]))) })
	})},
	{"a run that is not followed sends no hint", withAgent(func(w *world) {
		hints, stop := w.s.Subscribe(store.TopicRun)
		defer stop()
		_, c := w.running(lease)
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{newEntry(1, store.JournalModelAnswer, false)}))
		w.NoError(w.complete(completed(c)))
		followed, f := w.running(lease)
		w.s.FollowRun(f.Run.Key())
		w.awaitHint(store.TopicRun, f.Run.ID, func() { w.NoError(w.s.Cancel(w.ctx, f.Run.Key(), runerror.Cancelled, "")) })
		w.NotEmpty(followed.Runs)
		for hint := range hints {
			if hint.Key == f.Run.Key() || hint.Key == (store.Key{}) {
				break
			}
			w.NotEqual(c.Run.Key(), hint.Key)
		}
	})},
	{"a claimable run sends a hint", withAgent(func(w *world) {
		_, c := w.running(expired)
		w.awaitHint(store.TopicQueued, w.environment.ID, func() {
			w.NoError(errorOf(w.s.SweepLeases(w.ctx, 10)))
		})
		again := w.claim(1, lease)
		w.Len(again, 1)
		w.Equal(c.Run.ID, again[0].Run.ID)
		w.awaitHint(store.TopicQueued, w.environment.ID, func() { w.NoError(w.s.Release(w.ctx, leaseOf(again[0]), 0)) })
		spec := w.build("two", "first")
		w.awaitHint(store.TopicQueued, w.environment.ID, func() { w.activate(spec.ID) })
	})},
	{"a change sends a hint to its topic after its commit", withAgent(func(w *world) {
		watch := w.awaitHint
		e := w.singleEvent()
		watch(store.TopicQueued, w.environment.ID, func() { w.accept(&e) })
		watch(store.TopicDone, e.ConnectorRunID, func() { w.NoError(w.complete(completed(w.claim(1, lease)[0]))) })
		watch(store.TopicRoute, w.connector.ID, func() {
			changed := w.connector
			changed.Enabled = false
			w.NoError(w.s.PutConnector(w.ctx, changed))
		})
		spec := w.newDeployment("two")
		watch(store.TopicDeployment, spec.ID, func() {
			w.beginDeployment(spec)
		})
		watch(store.TopicQueued, w.environment.ID, func() {
			w.NoError(w.s.RequestPrefetch(w.ctx, w.environment.Key(), "sha256:wanted"))
		})
	})},
}

// awaitHint makes a change and waits for its hint, until the deadline of the test.
func (w *world) awaitHint(topic store.Topic, id uuid.UUID, change func()) (hint store.Hint) {
	hints, stop := w.s.Subscribe(topic)
	change()
	for hint = range hints {
		w.Equal(topic, hint.Topic)
		if hint.Key.ProjectID == w.project.ID && store.TailOf(hint.Key.ID) == store.TailOf(id) {
			break
		}
	}
	stop()
	stop() // a second call has no effect
	for range hints {
	} // it is closed
	return hint
}
