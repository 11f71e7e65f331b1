// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// writers is the number of concurrent goroutines.
const writers = 8

// together runs fn in many goroutines at once and returns their errors.
func together(fn func(i int) error) error {
	var (
		group  sync.WaitGroup
		start  = make(chan struct{})
		faults = make([]error, writers)
	)
	for i := range writers {
		group.Go(func() {
			<-start
			faults[i] = fn(i)
		})
	}
	close(start)
	group.Wait()
	return errors.Join(faults...)
}

var contentionPromises = []promise{
	{"of concurrent equal keys one is accepted", func(w *world) {
		events, answers := make([]store.Event, writers), make([]store.Admission, writers)
		for i := range events {
			events[i] = w.keyedEvent("key:1", "body")
		}
		w.NoError(together(func(i int) error {
			admissions, err := w.s.Accept(w.ctx, events[i:i+1])
			if err != nil {
				return err
			}
			answers[i] = admissions[0]
			return answers[i].Err
		}))
		accepted := 0
		for _, a := range answers {
			w.Equal(answers[0].ConnectorRunID, a.ConnectorRunID, "all get the same rows")
			w.Equal(answers[0].RunIDs, a.RunIDs)
			if a.Verdict == store.Accepted {
				accepted++
			} else {
				w.Equal(store.Repeated, a.Verdict)
			}
		}
		w.Equal(1, accepted)
		w.Len(w.listRuns(store.RunQuery{ProjectID: w.project.ID, Limit: 100}), len(w.links))
	}},
	{"concurrent calls with keys in any order all return", func(w *world) {
		w.NoError(together(func(i int) error {
			events := []store.Event{w.keyedEvent("key:1", "body"), w.keyedEvent("key:2", "body")}
			if i%2 == 0 {
				events[0], events[1] = events[1], events[0]
			}
			admissions, err := w.s.Accept(w.ctx, events)
			if err != nil {
				return err
			}
			for _, a := range admissions {
				if a.Err != nil || a.Verdict != store.Accepted && a.Verdict != store.Repeated {
					return fmt.Errorf("verdict %d: %w", a.Verdict, a.Err)
				}
			}
			return nil
		}))
		_, total := w.listConnectorRuns(store.ConnectorRunQuery{Connector: w.connector.Key(), Limit: 1})
		w.EqualValues(2, total)
	}},
	{"runs that end together end their connector run once", func(w *world) {
		var agents []string
		for i := range writers - len(w.links) {
			agents = append(agents, fmt.Sprintf("more-%d", i))
			link := w.newLink(agents[i], w.connector.ID, agents[i], origin)
			w.NoError(w.s.PutLink(w.ctx, link))
			w.links = append(w.links, link)
		}
		w.deploy("one", append(agents, "first", "second")...)
		e := w.acceptEvent(w.event())
		claimed := w.claim(writers, lease)
		w.Len(claimed, writers)
		w.NoError(together(func(i int) error {
			c := completed(claimed[i])
			if i == 0 {
				c.Status = store.RunFailed
			}
			return errors.Join(w.complete(c), w.complete(c))
		}))
		w.Equal(store.ConnectorRunFailed, w.outcome(e.ConnectorRunID).Status)
	}},
	{"concurrent repeated entries do not deadlock", withAgent(func(w *world) {
		_, c := w.running(lease)
		entries := []store.JournalEntry{newEntry(1, store.JournalModelAnswer, false)}
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), entries))
		ctx, cancel := context.WithTimeout(w.ctx, time.Minute) // instead of waiting forever
		defer cancel()
		var group errgroup.Group
		for range 10 * writers {
			group.Go(func() error { return w.s.AppendJournal(ctx, leaseOf(c), entries) })
			group.Go(func() error {
				return ignoreError(w.s.Cancel(ctx, w.key(newUUIDv7()), runerror.Cancelled, "none"), store.ErrNotFound)
			})
		}
		w.NoError(group.Wait())
	})},
	{"concurrent claims of several environments claim each run once", func(w *world) {
		worlds, inputs, handed := []*world{w, w.twinProject(), w.twinProject()}, map[uuid.UUID]string{}, map[uuid.UUID]string{}
		for _, of := range worlds {
			of.deploy("one", "first")
			for i := range 4 * writers {
				e := of.singleEvent()
				e.Input = fmt.Appendf(nil, "%s/%d", of.project.ID, i)
				of.accept(&e)
				inputs[e.Runs[0].ID] = string(e.Input)
			}
		}
		var mutex sync.Mutex
		for len(handed) < len(inputs) {
			before := len(handed)
			w.NoError(together(func(i int) error {
				of := worlds[i%len(worlds)]
				result, err := of.s.Claim(of.ctx, store.Claim{
					Environment: of.environment.Key(), RunnerID: uuid.NewString(), Slots: 100, Limit: 3, Lease: lease,
				})
				mutex.Lock()
				defer mutex.Unlock()
				for _, c := range result.Runs {
					if _, twice := handed[c.Run.ID]; twice || c.Run.ProjectID != of.project.ID {
						err = errors.Join(err, fmt.Errorf("run %s of project %s was handed to project %s", c.Run.ID, c.Run.ProjectID, of.project.ID))
					}
					handed[c.Run.ID] = string(c.Input)
				}
				return err
			}))
			w.Greater(len(handed), before, "any of them may be late")
		}
		w.Equal(inputs, handed)
	}},
	{"of a concurrent sweep, release and completion one wins", withAgent(func(w *world) {
		e, c := w.running(expired)
		var completions, releases error
		w.NoError(together(func(i int) error {
			switch i {
			case 0:
				completions = w.complete(completed(c))
				return ignoreError(completions, store.ErrFenced)
			case 1:
				releases = w.s.Release(w.ctx, leaseOf(c), 0)
				return ignoreError(releases, store.ErrFenced)
			default:
				_, err := w.s.SweepLeases(w.ctx, 10)
				return err
			}
		}))
		run := w.run(c.Run.ID)
		if completions == nil {
			w.Equal(store.RunCompleted, run.Status)
			w.Equal(store.ConnectorRunCompleted, w.outcome(e.ConnectorRunID).Status)
			return
		}
		w.Equal(store.RunQueued, run.Status)
		w.Len(w.claim(10, lease), 1)
	})},
	{"concurrent beginnings leave one deployment open", func(w *world) {
		specs := make([]store.DeploymentSpec, writers)
		for i := range specs {
			specs[i] = w.newDeployment(fmt.Sprintf("deployment-%d", i))
		}
		w.NoError(together(func(i int) error {
			_, err := w.s.BeginDeployment(w.ctx, specs[i])
			return err
		}))
		list := w.listDeployments(w.environment.Key())
		w.Len(list, writers)
		seen := map[int64]bool{}
		for i, d := range list {
			seen[d.Sequence] = true
			if i == 0 {
				w.Equal(store.DeploymentPending, d.Status, "the last one")
			} else {
				w.Equal(store.DeploymentCancelled, d.Status)
			}
		}
		w.Len(seen, writers, "all sequences differ")
	}},
	{"of concurrent claims of an ID one wins", func(w *world) {
		id, mine := uuid.New(), make([]bool, writers)
		w.NoError(together(func(i int) error {
			connector := w.newConnector(fmt.Sprintf("rival-%d", i))
			connector.ID = id
			err := w.s.PutConnector(w.ctx, connector)
			var taken *store.IDTakenError
			if errors.As(err, &taken) {
				return nil
			}
			mine[i] = err == nil
			return err
		}))
		winners := 0
		for _, won := range mine {
			if won {
				winners++
			}
		}
		w.Equal(1, winners)
	}},
	{"concurrent changes each increase the version", func(w *world) {
		before := w.version()
		links := make([]store.Link, writers)
		for i := range links {
			name := fmt.Sprintf("more-%d", i)
			links[i] = w.newLink(name, w.connector.ID, name, origin)
		}
		w.NoError(together(func(i int) error { return w.s.PutLink(w.ctx, links[i]) }))
		w.GreaterOrEqual(w.version(), before+writers)
		w.Len(w.readRoute(w.connector.Key()).Links, len(w.links)+writers)
	}},
	{"deleting environments during events leaves nothing open", withAgents(func(w *world) {
		events := make([]store.Event, writers)
		for i := range events {
			events[i] = w.event()
		}
		stored := make([]bool, writers)
		w.NoError(together(func(i int) error {
			if i == 0 {
				return w.s.Remove(w.ctx, w.project.ID, w.environment.Ref)
			}
			admissions, err := w.s.Accept(w.ctx, events[i:i+1])
			if err != nil {
				return err
			}
			if stored[i] = admissions[0].Verdict == store.Accepted; stored[i] {
				stamped(&events[i], admissions[0])
			}
			return admissions[0].Err
		}))
		w.NoError(errorOf(w.s.SweepLeases(w.ctx, 100)))
		for i, e := range events {
			if stored[i] {
				w.True(w.outcome(e.ConnectorRunID).Terminal())
				w.Equal(store.RunCancelled, w.run(e.Runs[0].ID).Status)
			}
		}
	})},
}

// ignoreError returns nil for an error that is target.
func ignoreError(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}
