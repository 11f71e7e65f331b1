// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// runKeys are the keys of runs that were accepted at once.
type runKeys struct {
	mutex sync.Mutex
	of    map[uuid.UUID]string
}

func (k *runKeys) addAdmissions(events []store.Event, admissions []store.Admission) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	for i, a := range admissions {
		for n, run := range a.RunIDs {
			k.of[run] = events[i].Runs[n].Concurrency.Text
		}
	}
}

func (k *runKeys) keyOfRun(run uuid.UUID) string { return k.of[run] }

var keyContentionPromises = []promise{
	{"batches with the same keys in any order do not fail", withAgent(func(w *world) {
		known := runKeys{of: map[uuid.UUID]string{}}
		version := w.version()
		w.NoError(together(func(i int) error {
			for round := range 5 {
				var events []store.Event
				for n := range 10 {
					events = append(events, w.contenderAt(version, fmt.Sprint(n)))
				}
				if (i+round)%2 == 0 {
					slices.Reverse(events)
				}
				admissions, err := w.s.Accept(w.ctx, events)
				if err != nil {
					return err
				}
				known.addAdmissions(events, admissions)
			}
			return nil
		}))
		w.Len(w.drainQueue(known.keyOfRun), writers*50)
	})},
	{"concurrent accepts, ends and cancels lose no run and no key", withAgent(func(w *world) {
		known := runKeys{of: map[uuid.UUID]string{}}
		version := w.version()
		w.NoError(together(func(i int) error {
			for range 10 {
				events := []store.Event{w.contenderAt(version, "a"), w.contenderAt(version, "b"), w.contenderAt(version, "a")}
				admissions, err := w.s.Accept(w.ctx, events)
				if err != nil {
					return err
				}
				known.addAdmissions(events, admissions)
				if err := w.s.Cancel(w.ctx, w.key(admissions[i%3].RunIDs[0]), runerror.Cancelled, ""); err != nil && !errors.Is(err, store.ErrConflict) {
					return err
				}
				if err := w.endSome(w.ctx); err != nil {
					return err
				}
			}
			return nil
		}))
		w.drainQueue(known.keyOfRun)
		w.Zero(w.countRowsOf("open_runs"), "no waiting forever")
	})},
}

// endSome claims runs and ends them together.
func (w *world) endSome(ctx context.Context) error {
	result, err := w.s.Claim(ctx, store.Claim{Environment: w.environment.Key(), RunnerID: uuid.NewString(), Slots: 5, Limit: 5, Lease: lease})
	if err != nil {
		return err
	}
	completions := make([]store.Completion, len(result.Runs))
	for i, c := range result.Runs {
		completions[i] = completed(c)
	}
	answers, err := w.s.Complete(ctx, completions)
	for _, answer := range answers {
		if answer != nil && !errors.Is(answer, store.ErrFenced) { // cancelled meanwhile
			return answer
		}
	}
	return err
}
