// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"
)

// Budget is waited for, in a line: first behind one's own project, and then behind the
// others, where each project stands with its part alone.
type Budget struct {
	all      *semaphore.Weighted
	part     int64
	line     int
	patience time.Duration

	mutex     sync.Mutex
	byProject map[uuid.UUID]*share
}

// share is a project's part, while somebody waits for it or has of it.
type share struct {
	left  *semaphore.Weighted
	users int
}

// NewBudget is so much, of which a project has one part. At most line of a project have of
// it or wait at once, for patience at most, or as long as they like where that is 0.
func NewBudget(all, parts int64, line int, patience time.Duration) *Budget {
	return &Budget{all: semaphore.NewWeighted(all), part: partOf(all, parts), line: line, patience: patience, byProject: map[uuid.UUID]*share{}}
}

// Grant is what was had of a budget. A nil one is nothing.
type Grant struct {
	budget  *Budget
	project uuid.UUID
	left    *semaphore.Weighted
	n       int64
}

// Wait has n of the budget for a project; ErrInVain or ErrAll when its patience is over, and
// ErrPart when too many of the project are there. The error of ctx is its cause. The caller
// ends the Grant.
func (b *Budget) Wait(ctx context.Context, project uuid.UUID, n int64) (*Grant, error) {
	n = min(n, b.part)
	s := b.enter(project)
	if s == nil {
		return nil, ErrPart
	}
	turn, cancel := b.turn(ctx)
	defer cancel()
	if s.left.Acquire(turn, n) != nil {
		b.leave(project)
		return nil, givenUp(ctx, ErrInVain)
	}
	if b.all.Acquire(turn, n) != nil {
		s.left.Release(n)
		b.leave(project)
		return nil, givenUp(ctx, ErrAll)
	}
	return &Grant{budget: b, project: project, left: s.left, n: n}, nil
}

// turn is ctx for as long as the patience lasts.
func (b *Budget) turn(ctx context.Context) (context.Context, context.CancelFunc) {
	if b.patience == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, b.patience)
}

// Free says that nobody has of it, or waits.
func (b *Budget) Free() bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return len(b.byProject) == 0
}

// givenUp is why a wait ended: its caller's did, or the patience.
func givenUp(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (b *Budget) enter(project uuid.UUID) *share {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	s, known := b.byProject[project]
	if !known {
		s = &share{left: semaphore.NewWeighted(b.part)}
		b.byProject[project] = s
	}
	if s.users >= b.line {
		return nil
	}
	s.users++
	return s
}

func (b *Budget) leave(project uuid.UUID) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if s := b.byProject[project]; s.users > 1 {
		s.users--
		return
	}
	delete(b.byProject, project)
}

// Amount is how much of it there is still.
func (g *Grant) Amount() int64 { return g.n }

// Keep gives back what is beyond n.
func (g *Grant) Keep(n int64) {
	n = min(n, g.n)
	g.left.Release(g.n - n)
	g.budget.all.Release(g.n - n)
	g.n = n
}

// End gives all back; once more is nothing.
func (g *Grant) End() {
	if g == nil || g.budget == nil {
		return
	}
	g.Keep(0)
	g.budget.leave(g.project)
	g.budget = nil
}
