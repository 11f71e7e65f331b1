// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"maps"

	"github.com/google/uuid"
)

const (
	// reservedShare is the share of slots for sync and resumed runs: one in reservedShare slots, at least
	// one slot.
	reservedShare = 5
	// lowerClassInterval makes the lower classes precede sync for every lowerClassInterval-th claimed run.
	lowerClassInterval = 8
)

// Pool is the state of an environment's runner pool during a claim.
type Pool struct {
	// Slots is the number of slots of all runners.
	Slots int
	// Running counts the runs in progress by agent.
	Running map[string]int
	// Lower counts the new runs in progress that are not sync.
	Lower int
	// Served counts all runs ever claimed.
	Served int64
	// LastAgents is the agent that was served last, by class.
	LastAgents [Classes]string
}

// Candidate is a queued run. Candidates of an agent and class are in queue order: released and
// resumed runs first, then the oldest.
type Candidate struct {
	ID    uuid.UUID
	Class Class
	Agent string
	// Fresh means that the run was neither released nor resumed.
	Fresh bool
	// Max is the maximum number of runs of the agent in progress; 0 means no limit.
	Max int
}

// Reserved returns the number of reserved slots, which new runs of the lower classes leave free.
func (p Pool) Reserved() int {
	if p.Slots <= 1 {
		return 0
	}
	return max(1, p.Slots/reservedShare)
}

// Pick chooses at most limit candidates, in start order, and returns the resulting pool. Sync
// precedes inbound, and inbound precedes deferred. Every eighth run is the oldest of the lower
// classes. Within a class, the agent with the fewest runs in progress is next. Ties are resolved
// round robin.
func Pick(p Pool, candidates []Candidate, limit int) ([]Candidate, Pool) {
	running := map[string]int{}
	maps.Copy(running, p.Running)
	p.Running = running // do not change the caller's map
	q := newQueues(candidates)
	var picked []Candidate
	for len(picked) < limit {
		next := q.nextQueue(p)
		if next == nil {
			break
		}
		c := next.takeFirst()
		picked = append(picked, c)
		p.Served++
		p.Running[c.Agent]++
		p.LastAgents[c.Class] = c.Agent
		if c.Class != ClassSync && c.Fresh {
			p.Lower++
		}
	}
	return picked, p
}

// agentQueue is the queue of an agent in a class.
type agentQueue struct {
	agent string
	runs  []Candidate
}

func (a *agentQueue) takeFirst() Candidate {
	c := a.runs[0]
	a.runs = a.runs[1:]
	return c
}

// agentQueues are the queues by class.
type agentQueues [Classes][]*agentQueue

func newQueues(candidates []Candidate) *agentQueues {
	var q agentQueues
	for _, c := range candidates {
		queues := q[c.Class]
		var own *agentQueue
		for _, l := range queues {
			if l.agent == c.Agent {
				own = l
				break
			}
		}
		if own == nil {
			own = &agentQueue{agent: c.Agent}
			q[c.Class] = append(queues, own)
		}
		own.runs = append(own.runs, c)
	}
	return &q
}

// nextQueue returns the queue whose first run starts next, nil if no run can start.
func (q *agentQueues) nextQueue(p Pool) *agentQueue {
	if (p.Served+1)%lowerClassInterval == 0 {
		if l := q.oldestQueue(p); l != nil {
			return l
		}
	}
	for class := range q {
		if l := q.nextInClass(p, Class(class)); l != nil {
			return l
		}
	}
	return nil
}

// oldestQueue returns the queue of the lower classes with the oldest first run.
func (q *agentQueues) oldestQueue(p Pool) (first *agentQueue) {
	for _, queues := range q[ClassSync+1:] {
		for _, l := range queues {
			if l.canStart(p) && (first == nil || l.runs[0].ID.String() < first.runs[0].ID.String()) {
				first = l
			}
		}
	}
	return first
}

// nextInClass returns the queue that is next in a class.
func (q *agentQueues) nextInClass(p Pool, class Class) (first *agentQueue) {
	for _, l := range q[class] {
		if l.canStart(p) && (first == nil || l.precedes(p, class, first)) {
			first = l
		}
	}
	return first
}

// canStart reports whether the first run of the queue can start.
func (a *agentQueue) canStart(p Pool) bool {
	if len(a.runs) == 0 {
		return false
	}
	c := a.runs[0]
	if c.Max > 0 && p.Running[c.Agent] >= c.Max {
		return false
	}
	return c.Class == ClassSync || !c.Fresh || p.Lower < p.Slots-p.Reserved()
}

// precedes orders two queues of a class: fewer runs in progress first, then round robin by name.
func (a *agentQueue) precedes(p Pool, class Class, other *agentQueue) bool {
	past := func(agent string) int {
		if agent > p.LastAgents[class] {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(p.Running[a.agent], p.Running[other.agent]),
		cmp.Compare(past(a.agent), past(other.agent)),
		cmp.Compare(a.agent, other.agent),
	) < 0
}
