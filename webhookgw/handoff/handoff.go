// SPDX-License-Identifier: Apache-2.0

// Package handoff is where an event that is accepted meets a runner that waits for work
// at the same process: its run begins with its acceptance, and no claim has to look for
// it. It concerns only runners that were told just before that there is nothing for them.
package handoff

import (
	"slices"
	"sync"

	"github.com/agentplatform/agentplatform/store"
)

// Runners are those whose requests for runs wait at this process. A nil one has none.
type Runners struct {
	mutex         sync.Mutex
	byEnvironment map[store.Key][]*Runner // the one that has waited longest first
}

// NewRunners returns an empty one.
func NewRunners() *Runners { return &Runners{byEnvironment: map[store.Key][]*Runner{}} }

// Runner is a request for runs that waits.
type Runner struct {
	store.RunnerKey
	// Places is how many runs it takes.
	Places int

	runners *Runners
	held    bool // guarded by the mutex of all
	given   chan []store.Claimed
}

// Wait lets a request wait for runs until Leave is called.
func (r *Runners) Wait(key store.RunnerKey, places int) *Runner {
	runner := &Runner{RunnerKey: key, Places: places, runners: r, given: make(chan []store.Claimed, 1)}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.byEnvironment[key.Environment] = append(r.byEnvironment[key.Environment], runner)
	return runner
}

// Hold takes the runner of an environment that has waited longest; nil without one. Until
// Give is called for it, which must be, it waits for nothing else.
func (r *Runners) Hold(environment store.Key) *Runner {
	if r == nil {
		return nil
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	waiting := r.byEnvironment[environment]
	if len(waiting) == 0 {
		return nil
	}
	runner := waiting[0]
	runner.held = true
	r.remove(runner)
	return runner
}

// remove takes a runner from those that wait; the mutex is held.
func (r *Runners) remove(runner *Runner) {
	waiting := r.byEnvironment[runner.Environment]
	i := slices.Index(waiting, runner)
	if i < 0 {
		return
	}
	if waiting = slices.Delete(waiting, i, i+1); len(waiting) == 0 {
		delete(r.byEnvironment, runner.Environment)
		return
	}
	r.byEnvironment[runner.Environment] = waiting
}

// Give ends a hold with the runs that have begun at the runner. None of them means that
// it is to ask the store: nothing began, or nobody knows.
func (r *Runner) Give(runs []store.Claimed) { r.given <- runs }

// Given tells once what Give was called with.
func (r *Runner) Given() <-chan []store.Claimed { return r.given }

// Leave ends the wait of a runner to which nothing was given; if it is held at this
// moment, it waits for that to end, and returns what it was given then.
func (r *Runner) Leave() (runs []store.Claimed, given bool) {
	r.runners.mutex.Lock()
	held := r.held
	r.runners.remove(r)
	r.runners.mutex.Unlock()
	if !held {
		return nil, false
	}
	return <-r.given, true
}
