// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"
)

// Budget is an amount that callers can wait for. A caller waits behind its own project first, and
// then behind other projects, each with at most its part.
type Budget struct {
	all         *semaphore.Weighted
	part        int64
	queueLength int
	patience    time.Duration

	mutex     sync.Mutex
	byProject map[uuid.UUID]*share
}

// share is a project's part while it is used or waited for.
type share struct {
	left  *semaphore.Weighted
	users int
}

// NewBudget returns a budget of all. A project has one of parts equal parts. At most queueLength requests
// of a project use it or wait at the same time, for patience, or without a limit if patience is 0.
func NewBudget(all, parts int64, queueLength int, patience time.Duration) *Budget {
	return &Budget{all: semaphore.NewWeighted(all), part: projectPart(all, parts), queueLength: queueLength, patience: patience, byProject: map[uuid.UUID]*share{}}
}

// Grant is an amount taken from a budget. A nil grant is empty.
type Grant struct {
	budget  *Budget
	project uuid.UUID
	left    *semaphore.Weighted
	n       int64
}

// Wait takes n of the budget for a project. It returns ErrWaitTimeout or ErrTotalLimit after its patience, and
// ErrProjectLimit if too many requests of the project wait. The error of ctx is its cause. The caller ends
// the Grant.
func (b *Budget) Wait(ctx context.Context, project uuid.UUID, n int64) (*Grant, error) {
	n = min(n, b.part)
	s := b.enterProject(project)
	if s == nil {
		return nil, ErrProjectLimit
	}
	turn, cancel := b.withPatience(ctx)
	defer cancel()
	if s.left.Acquire(turn, n) != nil {
		b.leaveProject(project)
		return nil, waitError(ctx, ErrWaitTimeout)
	}
	if b.all.Acquire(turn, n) != nil {
		s.left.Release(n)
		b.leaveProject(project)
		return nil, waitError(ctx, ErrTotalLimit)
	}
	return &Grant{budget: b, project: project, left: s.left, n: n}, nil
}

// withPatience returns ctx with the patience as its timeout.
func (b *Budget) withPatience(ctx context.Context) (context.Context, context.CancelFunc) {
	if b.patience == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, b.patience)
}

// Free reports whether nothing is taken and nobody waits.
func (b *Budget) Free() bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return len(b.byProject) == 0
}

// waitError returns the reason why a wait ended: its caller's end or the patience.
func waitError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (b *Budget) enterProject(project uuid.UUID) *share {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	s, known := b.byProject[project]
	if !known {
		s = &share{left: semaphore.NewWeighted(b.part)}
		b.byProject[project] = s
	}
	if s.users >= b.queueLength {
		return nil
	}
	s.users++
	return s
}

func (b *Budget) leaveProject(project uuid.UUID) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if s := b.byProject[project]; s.users > 1 {
		s.users--
		return
	}
	delete(b.byProject, project)
}

// Amount returns the remaining amount.
func (g *Grant) Amount() int64 { return g.n }

// Keep returns everything above n.
func (g *Grant) Keep(n int64) {
	n = min(n, g.n)
	g.left.Release(g.n - n)
	g.budget.all.Release(g.n - n)
	g.n = n
}

// End returns the whole amount. A second call has no effect.
func (g *Grant) End() {
	if g == nil || g.budget == nil {
		return
	}
	g.Keep(0)
	g.budget.leaveProject(g.project)
	g.budget = nil
}
