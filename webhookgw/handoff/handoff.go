// SPDX-License-Identifier: Apache-2.0

// Package handoff connects accepted events with runners that wait for runs at the same gateway. A
// handed-off run starts with its acceptance, without a claim from the store. Only runners that just
// received an empty claim result take part.
package handoff

import (
	"slices"
	"sync"

	"github.com/agentplatform/agentplatform/store"
)

// Runners holds the requests for runs that wait at this gateway. A nil Runners is empty.
type Runners struct {
	mutex         sync.Mutex
	byEnvironment map[store.Key][]*Runner // the longest-waiting runner first
}

// NewRunners returns an empty Runners.
func NewRunners() *Runners { return &Runners{byEnvironment: map[store.Key][]*Runner{}} }

// Runner is a waiting request for runs.
type Runner struct {
	store.RunnerKey
	// Slots is the number of free slots.
	Slots int

	runners *Runners
	held    bool // guarded by the mutex of Runners
	given   chan []store.Claimed
}

// Wait adds a request that waits for runs until Leave is called.
func (r *Runners) Wait(key store.RunnerKey, slots int) *Runner {
	runner := &Runner{RunnerKey: key, Slots: slots, runners: r, given: make(chan []store.Claimed, 1)}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.byEnvironment[key.Environment] = append(r.byEnvironment[key.Environment], runner)
	return runner
}

// Hold removes the longest-waiting runner of an environment and returns it, or nil if none waits.
// The caller must call Give for it.
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
	r.removeRunner(runner)
	return runner
}

// removeRunner removes a waiting runner. The caller holds the mutex.
func (r *Runners) removeRunner(runner *Runner) {
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

// Give ends a hold with the runs that have started at the runner. Without runs the runner queries
// the store, because no run started or the outcome is unknown.
func (r *Runner) Give(runs []store.Claimed) { r.given <- runs }

// Given receives the argument of Give, once.
func (r *Runner) Given() <-chan []store.Claimed { return r.given }

// Leave removes a runner without runs. If the runner is held, Leave waits for Give and returns its
// runs.
func (r *Runner) Leave() (runs []store.Claimed, given bool) {
	r.runners.mutex.Lock()
	held := r.held
	r.runners.removeRunner(r)
	r.runners.mutex.Unlock()
	if !held {
		return nil, false
	}
	return <-r.given, true
}
