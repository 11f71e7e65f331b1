// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"maps"

	"github.com/google/uuid"
)

const (
	// keptShare is the part of a pool's places that is kept for sync and resumed
	// runs: one in so many, at least one.
	keptShare = 5
	// lowerTurn is how often the lower classes have their turn before sync: each
	// claim of that number.
	lowerTurn = 8
)

// Pool is what is known of an environment's runners when one of them claims.
type Pool struct {
	// Places are those of all its runners.
	Places int
	// Running counts the runs under way by agent.
	Running map[string]int
	// Lower counts the fresh runs under way that are not sync.
	Lower int
	// Served counts the runs ever claimed.
	Served int64
	// Turns names the agent that had its turn last, by class.
	Turns [Classes]string
}

// Candidate is a queued run. Those of an agent in a class stand in their order:
// handed back and resumed ones first, then the oldest.
type Candidate struct {
	ID    uuid.UUID
	Class Class
	Agent string
	// Fresh: neither handed back nor resumed.
	Fresh bool
	// Max is how many runs of the agent may be under way; 0 means any number.
	Max int
}

// Kept is how many of a pool's places fresh runs of the lower classes leave free.
func (p Pool) Kept() int {
	if p.Places <= 1 {
		return 0
	}
	return max(1, p.Places/keptShare)
}

// Pick chooses at most limit of the candidates, in the order in which they are to
// start, and returns the pool as it is then. Sync comes before inbound before
// deferred, but every eighth claim is the oldest of the lower classes; inside a
// class the agent comes next that has the fewest runs under way, and of several
// such the one whose turn it is.
func Pick(p Pool, candidates []Candidate, limit int) ([]Candidate, Pool) {
	running := map[string]int{}
	maps.Copy(running, p.Running)
	p.Running = running // the caller's stays as it is
	q := newQueues(candidates)
	var picked []Candidate
	for len(picked) < limit {
		next := q.next(p)
		if next == nil {
			break
		}
		c := next.take()
		picked = append(picked, c)
		p.Served++
		p.Running[c.Agent]++
		p.Turns[c.Class] = c.Agent
		if c.Class != ClassSync && c.Fresh {
			p.Lower++
		}
	}
	return picked, p
}

// line is the queue of one agent in one class.
type line struct {
	agent string
	runs  []Candidate
}

func (l *line) take() Candidate {
	c := l.runs[0]
	l.runs = l.runs[1:]
	return c
}

// queues are the lines of each class.
type queues [Classes][]*line

func newQueues(candidates []Candidate) *queues {
	var q queues
	for _, c := range candidates {
		lines := q[c.Class]
		var own *line
		for _, l := range lines {
			if l.agent == c.Agent {
				own = l
				break
			}
		}
		if own == nil {
			own = &line{agent: c.Agent}
			q[c.Class] = append(lines, own)
		}
		own.runs = append(own.runs, c)
	}
	return &q
}

// next is the line whose first run starts next, nil when none may.
func (q *queues) next(p Pool) *line {
	if (p.Served+1)%lowerTurn == 0 {
		if l := q.oldest(p); l != nil {
			return l
		}
	}
	for class := range q {
		if l := q.turn(p, Class(class)); l != nil {
			return l
		}
	}
	return nil
}

// oldest is the line of the lower classes with the oldest run at its head.
func (q *queues) oldest(p Pool) (first *line) {
	for _, lines := range q[ClassSync+1:] {
		for _, l := range lines {
			if l.may(p) && (first == nil || l.runs[0].ID.String() < first.runs[0].ID.String()) {
				first = l
			}
		}
	}
	return first
}

// turn is the line of a class whose turn it is.
func (q *queues) turn(p Pool, class Class) (first *line) {
	for _, l := range q[class] {
		if l.may(p) && (first == nil || l.before(p, class, first)) {
			first = l
		}
	}
	return first
}

// may says whether the line's first run may start.
func (l *line) may(p Pool) bool {
	if len(l.runs) == 0 {
		return false
	}
	c := l.runs[0]
	if c.Max > 0 && p.Running[c.Agent] >= c.Max {
		return false
	}
	return c.Class == ClassSync || !c.Fresh || p.Lower < p.Places-p.Kept()
}

// before compares two lines of a class: fewer runs under way, then the turn, which
// goes round by name.
func (l *line) before(p Pool, class Class, other *line) bool {
	past := func(agent string) int {
		if agent > p.Turns[class] {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(p.Running[l.agent], p.Running[other.agent]),
		cmp.Compare(past(l.agent), past(other.agent)),
		cmp.Compare(l.agent, other.agent),
	) < 0
}
