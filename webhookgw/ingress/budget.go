// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"
)

// budget are bytes that are counted out to projects, of which one has at most a
// part. Who finds too few waits: first for its own project, and then, in the order
// in which they came, for all, so that a project stands there with its part alone.
type budget struct {
	share int64
	all   *semaphore.Weighted

	mutex    sync.Mutex
	projects map[uuid.UUID]*purse
}

// purse is a project's part.
type purse struct {
	left  *semaphore.Weighted
	users int // who wait or have something
}

// grant is what was counted out.
type grant struct {
	budget  *budget
	project uuid.UUID
	purse   *purse
	bytes   int64
}

// newBudget shares bytes out; a project has a fourth of them.
func newBudget(all int64) *budget {
	return &budget{share: all / projectShare, all: semaphore.NewWeighted(all), projects: map[uuid.UUID]*purse{}}
}

// wait returns so many bytes, at most a project's part, once they are there. The
// caller ends the grant.
func (b *budget) wait(ctx context.Context, project uuid.UUID, bytes int64) (*grant, error) {
	g := &grant{budget: b, project: project, purse: b.enter(project)}
	if err := g.purse.left.Acquire(ctx, bytes); err != nil {
		b.leave(project)
		return nil, context.Cause(ctx)
	}
	if err := b.all.Acquire(ctx, bytes); err != nil {
		g.purse.left.Release(bytes)
		b.leave(project)
		return nil, context.Cause(ctx)
	}
	g.bytes = bytes
	return g, nil
}

func (b *budget) enter(project uuid.UUID) *purse {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	p := b.projects[project]
	if p == nil {
		p = &purse{left: semaphore.NewWeighted(b.share)}
		b.projects[project] = p
	}
	p.users++
	return p
}

func (b *budget) leave(project uuid.UUID) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.projects[project].users--; b.projects[project].users == 0 {
		delete(b.projects, project)
	}
}

// keep gives back all but so many bytes.
func (g *grant) keep(bytes int64) {
	if spare := g.bytes - bytes; spare > 0 {
		g.budget.all.Release(spare)
		g.purse.left.Release(spare)
		g.bytes = bytes
	}
}

// end gives all back.
func (g *grant) end() {
	g.keep(0)
	g.budget.leave(g.project)
}
