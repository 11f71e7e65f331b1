// SPDX-License-Identifier: Apache-2.0

package push

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/store"
)

// asker asks the store for looks, for all callers together: what waits goes in one read and
// one transaction at most, of a project once, and one batch a while. So what calls cost the
// store does not depend on how many come.
type asker struct {
	store store.Looks
	// known are projects that there were, all of them soon after the start; those that
	// strangers make up have their own share of what may wait.
	known *lru.Cache[uuid.UUID, struct{}]
	wake  chan struct{} // holds one
	wait  func(ctx context.Context, pause time.Duration) error

	mutex     sync.Mutex
	waiting   map[uuid.UUID]*question
	strangers int // of waiting
}

// question is one about a project, whoever has it.
type question struct {
	look     bool // a look is asked for
	stranger bool
	done     chan struct{}
	there    bool
	err      error
}

func newAsker(s store.Looks) *asker {
	known, err := lru.New[uuid.UUID, struct{}](maxKnown)
	if err != nil {
		panic("making a cache of projects: " + err.Error()) // refuses sizes below 1 alone
	}
	return &asker{store: s, known: known, wake: make(chan struct{}, 1), wait: pause.For, waiting: map[uuid.UUID]*question{}}
}

// ask says whether there is such a project, and asks for a look at its repository where look
// is set: with no error, that is committed. errStrangers or errBusy when too many ask.
func (a *asker) ask(ctx context.Context, project uuid.UUID, look bool) (there bool, err error) {
	q, err := a.join(project, look)
	if err != nil {
		return false, err
	}
	select {
	case <-q.done:
		return q.there, q.err
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// join returns a question that is not asked yet, and sees that it will be.
func (a *asker) join(project uuid.UUID, look bool) (*question, error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	q := a.waiting[project]
	if q == nil {
		q = &question{stranger: !a.known.Contains(project), done: make(chan struct{})}
		switch {
		case q.stranger && a.strangers >= maxStrangers:
			return nil, errStrangers
		case len(a.waiting) >= store.MaxLooks:
			return nil, errBusy
		case q.stranger:
			a.strangers++
		}
		a.waiting[project] = q
	}
	q.look = q.look || look
	select {
	case a.wake <- struct{}{}:
	default: // it is awake
	}
	return q, nil
}

// take takes all questions that wait.
func (a *asker) take() map[uuid.UUID]*question {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	taken := a.waiting
	a.waiting, a.strangers = map[uuid.UUID]*question{}, 0
	return taken
}

// run asks until ctx ends.
func (a *asker) run(ctx context.Context) {
	for {
		select {
		case <-a.wake:
		case <-ctx.Done():
			return
		}
		a.answer(ctx, a.take())
		if a.wait(ctx, batchesApart) != nil {
			return
		}
	}
}

// learn keeps the ids of all projects known until ctx ends: so those that strangers make up
// keep out no project, which may be called once alone. It is content with maxKnown.
func (a *asker) learn(ctx context.Context, logger *slog.Logger) {
	for {
		if err := a.learnOnce(ctx); err != nil && ctx.Err() == nil {
			logger.Error("reading the ids of all projects", "error", err)
		}
		if a.wait(ctx, idsApart) != nil {
			return
		}
	}
}

func (a *asker) learnOnce(ctx context.Context) error {
	after := uuid.Nil
	for read := 0; read < maxKnown; read += maxIDs {
		page, err := a.page(ctx, after)
		if err != nil {
			return err
		}
		for _, project := range page {
			a.known.ContainsOrAdd(project, struct{}{})
		}
		if len(page) < maxIDs {
			return nil
		}
		after = page[len(page)-1]
	}
	return nil
}

func (a *asker) page(ctx context.Context, after uuid.UUID) ([]uuid.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return a.store.ProjectIDs(ctx, after, maxIDs)
}

// answer asks the store and answers those who wait.
func (a *asker) answer(ctx context.Context, questions map[uuid.UUID]*question) {
	there, err := a.put(ctx, questions)
	for project, q := range questions {
		q.there, q.err = there[project], err
		switch {
		case err != nil:
		case q.there:
			a.known.Add(project, struct{}{})
		default:
			a.known.Remove(project)
		}
		close(q.done)
	}
}

// put asks for the looks that nobody has asked for yet, and says which projects there are.
func (a *asker) put(ctx context.Context, questions map[uuid.UUID]*question) (there map[uuid.UUID]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var projects, missing []uuid.UUID
	for project := range questions {
		projects = append(projects, project)
	}
	asked, err := a.store.LookedFor(ctx, projects)
	if err != nil {
		return nil, fmt.Errorf("reading which projects there are: %w", err)
	}
	there = map[uuid.UUID]bool{}
	for project, is := range asked {
		there[project] = true
		if questions[project].look && !is {
			missing = append(missing, project)
		}
	}
	if len(missing) == 0 {
		return there, nil
	}
	return there, a.store.AskLooks(ctx, missing)
}
