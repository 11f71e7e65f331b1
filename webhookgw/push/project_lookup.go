// SPDX-License-Identifier: Apache-2.0

package push

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/store"
)

// projectLookup requests polls of repositories from the store. It combines all waiting calls into one batch
// per interval, with at most one read and one transaction. A batch has each project once, so the
// load on the store does not depend on the number of calls.
type projectLookup struct {
	store store.PollRequests
	// known has the IDs of existing projects, shortly after the start all of them. Calls for other
	// IDs have their own limit.
	known *lru.Cache[uuid.UUID, struct{}]
	wake  chan struct{} // capacity 1
	wait  func(ctx context.Context, pause time.Duration) error

	mutex     sync.Mutex
	waiting   map[uuid.UUID]*pendingLookup
	strangers int // number of unknown projects in waiting
}

// pendingLookup is a pending question about one project. Several calls can share it.
type pendingLookup struct {
	requestPoll bool // whether to request a poll
	stranger    bool
	done        chan struct{}
	exists      bool
	err         error
}

func newProjectLookup(s store.PollRequests) *projectLookup {
	known, err := lru.New[uuid.UUID, struct{}](maxKnown)
	if err != nil {
		panic("creating a cache of projects: " + err.Error()) // lru.New only fails for sizes below 1
	}
	return &projectLookup{store: s, known: known, wake: make(chan struct{}, 1), wait: pause.For, waiting: map[uuid.UUID]*pendingLookup{}}
}

// lookUpProject reports whether a project exists. It can also request a poll of the project's repository.
// The poll request is committed when the error is nil. It returns errStrangers or errBusy if too many calls
// wait.
func (a *projectLookup) lookUpProject(ctx context.Context, project uuid.UUID, look bool) (there bool, err error) {
	q, err := a.joinLookup(project, look)
	if err != nil {
		return false, err
	}
	select {
	case <-q.done:
		return q.exists, q.err
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// joinLookup returns the pending question about a project, or adds one.
func (a *projectLookup) joinLookup(project uuid.UUID, look bool) (*pendingLookup, error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	q := a.waiting[project]
	if q == nil {
		q = &pendingLookup{stranger: !a.known.Contains(project), done: make(chan struct{})}
		switch {
		case q.stranger && a.strangers >= maxStrangers:
			return nil, errStrangers
		case len(a.waiting) >= store.MaxPollRequests:
			return nil, errBusy
		case q.stranger:
			a.strangers++
		}
		a.waiting[project] = q
	}
	q.requestPoll = q.requestPoll || look
	select {
	case a.wake <- struct{}{}:
	default: // already awake
	}
	return q, nil
}

// takeLookups removes and returns all pending questions.
func (a *projectLookup) takeLookups() map[uuid.UUID]*pendingLookup {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	taken := a.waiting
	a.waiting, a.strangers = map[uuid.UUID]*pendingLookup{}, 0
	return taken
}

// runLoop processes questions until ctx ends.
func (a *projectLookup) runLoop(ctx context.Context) {
	for {
		select {
		case <-a.wake:
		case <-ctx.Done():
			return
		}
		a.resolveLookups(ctx, a.takeLookups())
		if a.wait(ctx, batchInterval) != nil {
			return
		}
	}
}

// refreshProjects keeps the IDs of at most maxKnown existing projects up to date until ctx ends. So made-up
// IDs cannot block the first call for an existing project.
func (a *projectLookup) refreshProjects(ctx context.Context, logger *slog.Logger) {
	for {
		if err := a.readProjectIDs(ctx); err != nil && ctx.Err() == nil {
			logger.Error("reading the IDs of all projects", "error", err)
		}
		if a.wait(ctx, idInterval) != nil {
			return
		}
	}
}

func (a *projectLookup) readProjectIDs(ctx context.Context) error {
	after := uuid.Nil
	for read := 0; read < maxKnown; read += maxIDs {
		page, err := a.projectPage(ctx, after)
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

func (a *projectLookup) projectPage(ctx context.Context, after uuid.UUID) ([]uuid.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return a.store.ProjectIDs(ctx, after, maxIDs)
}

// resolveLookups queries the store and wakes the waiting calls.
func (a *projectLookup) resolveLookups(ctx context.Context, questions map[uuid.UUID]*pendingLookup) {
	there, err := a.requestPolls(ctx, questions)
	for project, q := range questions {
		q.exists, q.err = there[project], err
		switch {
		case err != nil:
		case q.exists:
			a.known.Add(project, struct{}{})
		default:
			a.known.Remove(project)
		}
		close(q.done)
	}
}

// requestPolls requests the polls that are not requested yet, and reports which projects exist.
func (a *projectLookup) requestPolls(ctx context.Context, questions map[uuid.UUID]*pendingLookup) (there map[uuid.UUID]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var missing []uuid.UUID
	projects := slices.Collect(maps.Keys(questions))
	asked, err := a.store.HavePollRequests(ctx, projects)
	if err != nil {
		return nil, fmt.Errorf("reading existing projects: %w", err)
	}
	there = map[uuid.UUID]bool{}
	for project, is := range asked {
		there[project] = true
		if questions[project].requestPoll && !is {
			missing = append(missing, project)
		}
	}
	if len(missing) == 0 {
		return there, nil
	}
	return there, a.store.RequestPolls(ctx, missing)
}
