// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

const (
	// budgetShare is the part of a budget that one project has.
	budgetShare = 4
	// maxClaimBytes is how many bytes of answers to claims are held at once, until
	// their runners have read them; maxStreamBytes those of inputs, journals and
	// bundles under way.
	maxClaimBytes  = 48 << 20
	maxStreamBytes = 48 << 20
	// maxInLine is how many requests of a project wait for a budget, patience for how
	// long: less than their runner waits for an answer.
	maxInLine = 512
	patience  = 5 * time.Second
)

// budget is memory for answers. Who wants of it waits in line: first behind its own
// project, which has a part of all, and then behind other projects. So one that asks
// for a lot waits for itself.
type budget struct {
	all   *semaphore.Weighted
	share int64

	mutex  sync.Mutex
	shares map[uuid.UUID]*share
}

// share is a project's part, while somebody waits for it or has of it.
type share struct {
	own   *semaphore.Weighted
	users int
}

func newBudget(all int64) *budget {
	return &budget{all: semaphore.NewWeighted(all), share: all / budgetShare, shares: map[uuid.UUID]*share{}}
}

var (
	errShareWait = later(http.StatusTooManyRequests, httpserver.CodeTooManyWaiting,
		"Answers to this project's runners hold as much memory as they may; call again.")
	errBudgetWait = later(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"The gateway's answers hold as much memory as there is; call again.")
)

// take waits for n bytes, at most a share; a Problem when there are none in time.
func (b *budget) take(ctx context.Context, project uuid.UUID, n int64) (*held, error) {
	n = min(n, b.share)
	s, err := b.enter(project)
	if err != nil {
		return nil, err
	}
	turn, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if s.own.Acquire(turn, n) != nil {
		b.leave(project)
		return nil, givenUp(ctx, errShareWait)
	}
	if b.all.Acquire(turn, n) != nil {
		s.own.Release(n)
		b.leave(project)
		return nil, givenUp(ctx, errBudgetWait)
	}
	return &held{budget: b, project: project, own: s.own, bytes: n}, nil
}

// givenUp is why a wait ended: its request did, or the problem.
func givenUp(ctx context.Context, problem httpserver.Problem) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return problem
}

func (b *budget) enter(project uuid.UUID) (*share, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	s, known := b.shares[project]
	if !known {
		s = &share{own: semaphore.NewWeighted(b.share)}
		b.shares[project] = s
	}
	if s.users >= maxInLine {
		return nil, errShareWait
	}
	s.users++
	return s, nil
}

func (b *budget) leave(project uuid.UUID) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if s := b.shares[project]; s.users > 1 {
		s.users--
		return
	}
	delete(b.shares, project)
}

// held is what was taken of a budget. A nil one is nothing.
type held struct {
	budget  *budget
	project uuid.UUID
	own     *semaphore.Weighted
	bytes   int64
}

// keep gives back what is beyond n bytes.
func (h *held) keep(n int64) {
	n = min(n, h.bytes)
	h.own.Release(h.bytes - n)
	h.budget.all.Release(h.bytes - n)
	h.bytes = n
}

// give gives all back; once more is nothing.
func (h *held) give() {
	if h == nil || h.budget == nil {
		return
	}
	h.keep(0)
	h.budget.leave(h.project)
	h.budget = nil
}

// later is a problem that goes by without anybody's doing.
func later(status int, code httpserver.Code, detail string) httpserver.Problem {
	p := httpserver.NewProblem(status, code, detail)
	p.RetryAfter = time.Second
	return p
}
