// SPDX-License-Identifier: Apache-2.0

package script

import (
	"context"
	"slices"
)

// slotLimits are the limits of the scripts of a pool.
type slotLimits struct {
	// computing limits scripts that compute at the same time, children all scripts, also waiting ones.
	computing, children int
	// memory limits the memory of all children in bytes. A script that computes counts with each, the most that it can use. A
	// script that waits counts with the memory that it has.
	memory, each uint64
}

// limitsFor returns the limits of scripts with a memory limit in a container. Kubernetes ends all processes of a container
// that exceeds its limit, so the children together must not.
func limitsFor(container, memory uint64, children int) slotLimits {
	each := memory + childMemory
	room := each // A pool executes one script in any case.
	if container > parentMemory+each {
		room = min(container-parentMemory, each*uint64(children)) //nolint:gosec // A number of children is positive.
	}
	return slotLimits{computing: int(room / each), children: children, memory: room, each: each} //nolint:gosec // At most children.
}

// computingOfRun limits the scripts of one run that compute. One slot is left for other runs.
func (l slotLimits) computingOfRun() int { return max(l.computing-1, 1) }

// childrenOfRun limits the scripts of one run. Half of the children are left for other runs.
func (l slotLimits) childrenOfRun() int { return (l.children + 1) / 2 }

// slotQueue decides which script computes next. Runs take turns. Each run's scripts take the run's turns in the order of
// their requests, and scripts that have begun come before scripts that have not. The caller holds the lock of the pool.
type slotQueue struct {
	limits slotLimits
	// computing and children count scripts, held is their memory. childless counts scripts that may compute and have no child yet.
	computing, children, childless int
	held                           uint64
	runs                           map[string]*runSlots
	// turns are the runs with requests, the next turn first.
	turns []*runSlots
}

// runSlots are the scripts of a run.
type runSlots struct {
	id                  string
	computing, children int
	resuming, starting  []*slot
}

// slotState is the state of a slot.
type slotState int

const (
	// slotStarting has no child yet.
	slotStarting slotState = iota
	slotComputing
	// slotWaiting waits for the host, slotResuming for its turn after that.
	slotWaiting
	slotResuming
	slotReleased
)

// slot is the place of a script in the queue.
type slot struct {
	run      *runSlots
	state    slotState
	held     uint64
	hasChild bool
	// granted gets a value each time that the script may compute.
	granted chan struct{}
}

func newSlotQueue(limits slotLimits) *slotQueue {
	return &slotQueue{limits: limits, runs: map[string]*runSlots{}}
}

// requestSlot adds a script of a run.
func (q *slotQueue) requestSlot(id string) *slot {
	run := q.runs[id]
	if run == nil {
		run = &runSlots{id: id}
		q.runs[id] = run
	}
	s := &slot{run: run, granted: make(chan struct{}, 1)}
	run.starting = append(run.starting, s)
	q.enqueueRun(run)
	return s
}

// pauseScript takes the slot of a script that waits for its host, and keeps the memory that the script has.
func (q *slotQueue) pauseScript(s *slot, memory uint64) {
	q.computing, s.run.computing = q.computing-1, s.run.computing-1
	q.setMemory(s, min(memory, q.limits.each))
	s.state = slotWaiting
	q.dispatchSlots()
}

// resumeScript asks for the slot of a script that has waited for its host.
func (q *slotQueue) resumeScript(s *slot) {
	s.state = slotResuming
	s.run.resuming = append(s.run.resuming, s)
	q.enqueueRun(s.run)
}

// recordChild records that a script has got its child.
func (q *slotQueue) recordChild(s *slot) { s.hasChild, q.childless = true, q.childless-1 }

// releaseSlot removes a script in any state.
func (q *slotQueue) releaseSlot(s *slot) {
	if s.state == slotReleased {
		return
	}
	run := s.run
	run.removeRequest(s)
	if s.state != slotStarting && !s.hasChild {
		q.childless--
	}
	if s.state == slotComputing {
		q.computing, run.computing = q.computing-1, run.computing-1
	}
	if s.state != slotStarting {
		q.children, run.children = q.children-1, run.children-1
	}
	q.setMemory(s, 0)
	s.state = slotReleased
	if run.isIdle() {
		q.removeRun(run)
		if run.children == 0 {
			delete(q.runs, run.id)
		}
	}
	q.dispatchSlots()
}

// setMemory changes the memory that a script counts with.
func (q *slotQueue) setMemory(s *slot, memory uint64) {
	q.held += memory - s.held // Unsigned numbers wrap around, also for less memory.
	s.held = memory
}

func (q *slotQueue) enqueueRun(run *runSlots) {
	if !slices.Contains(q.turns, run) {
		q.turns = append(q.turns, run)
	}
	q.dispatchSlots()
}

// removeRun removes a run from the turns.
func (q *slotQueue) removeRun(run *runSlots) {
	q.turns = slices.DeleteFunc(q.turns, func(other *runSlots) bool { return other == run })
}

// dispatchSlots gives free slots to the runs whose turn it is.
func (q *slotQueue) dispatchSlots() {
	for q.computing < q.limits.computing {
		s := q.nextSlot()
		if s == nil {
			return
		}
		q.grantSlot(s)
	}
}

// nextSlot returns the request of the next turn that can be granted, or nil.
//
// A request that does not fit into the memory keeps its turn while other scripts compute. Otherwise, scripts with many short
// requests could keep it waiting for a long time. If no script computes, the next request that fits is granted. A request
// fits in the end: at least the script that was granted last fits again, because no other script has got more memory since.
func (q *slotQueue) nextSlot() *slot {
	for _, run := range q.turns {
		s := q.nextRequest(run)
		switch {
		case run.computing >= q.limits.computingOfRun():
		case s.state == slotStarting && (q.children >= q.limits.children || run.children >= q.limits.childrenOfRun()):
		case q.hasMemoryFor(s):
			return s
		case q.computing > 0:
			return nil
		}
	}
	return nil
}

// grantSlot gives a slot to a request, and ends the turn of its run.
func (q *slotQueue) grantSlot(s *slot) {
	run := s.run
	if s.state == slotStarting {
		q.children, run.children, q.childless = q.children+1, run.children+1, q.childless+1
	}
	run.removeRequest(s)
	q.removeRun(run)
	if !run.isIdle() {
		q.turns = append(q.turns, run)
	}
	q.computing, run.computing = q.computing+1, run.computing+1
	q.setMemory(s, q.limits.each)
	s.state = slotComputing
	select {
	case s.granted <- struct{}{}:
	default: // The script has not seen its last slot, and sees one of the two.
	}
}

// spareMemory returns the memory that idle children may have.
func (q *slotQueue) spareMemory() uint64 { return q.limits.memory - min(q.held, q.limits.memory) }

// waitForGrant waits until the script may compute. Its error is the context's.
func (s *slot) waitForGrant(ctx context.Context) error {
	select {
	case <-s.granted:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// removeRequest removes a request, if there is one.
func (r *runSlots) removeRequest(s *slot) {
	isSame := func(other *slot) bool { return other == s }
	r.resuming, r.starting = slices.DeleteFunc(r.resuming, isSame), slices.DeleteFunc(r.starting, isSame)
}

// isIdle reports whether the run has no requests.
func (r *runSlots) isIdle() bool { return len(r.resuming) == 0 && len(r.starting) == 0 }

// nextRequest returns the request that takes a run's turn. Scripts that have begun come first, because they hold memory
// until they end.
func (q *slotQueue) nextRequest(run *runSlots) *slot {
	if at := slices.IndexFunc(run.resuming, q.hasMemoryFor); at >= 0 {
		return run.resuming[at]
	}
	return slices.Concat(run.resuming, run.starting)[0]
}

// hasMemoryFor reports whether there is memory for a script that computes.
func (q *slotQueue) hasMemoryFor(s *slot) bool { return q.held-s.held+q.limits.each <= q.limits.memory }
