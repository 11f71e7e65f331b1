// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"iter"
	"slices"

	"github.com/google/uuid"
)

// FairQueue is a fair queue: it serves projects round-robin, each in FIFO order. The caller guards it
// with a lock.
type FairQueue[T any] struct {
	order   []uuid.UUID // projects of waiting, the next one first
	waiting map[uuid.UUID][]T
}

// NewFairQueue returns an empty queue.
func NewFairQueue[T any]() FairQueue[T] { return FairQueue[T]{waiting: map[uuid.UUID][]T{}} }

// Push adds an item to the end of a project's queue.
func (t *FairQueue[T]) Push(project uuid.UUID, item T) {
	t.addProject(project)
	t.waiting[project] = append(t.waiting[project], item)
}

// PutBack adds an item to the beginning of a project's queue.
func (t *FairQueue[T]) PutBack(project uuid.UUID, item T) {
	t.addProject(project)
	t.waiting[project] = slices.Insert(t.waiting[project], 0, item)
}

func (t *FairQueue[T]) addProject(project uuid.UUID) {
	if len(t.waiting[project]) == 0 {
		t.order = append(t.order, project)
	}
}

// Projects returns the projects with waiting items, the next one first.
func (t *FairQueue[T]) Projects() iter.Seq[uuid.UUID] { return slices.Values(t.order) }

// Next returns the first item of the next project.
func (t *FairQueue[T]) Next() (project uuid.UUID, item T, ok bool) {
	if len(t.order) == 0 {
		return project, item, false
	}
	project = t.order[0]
	return project, t.waiting[project][0], true
}

// First returns the first item of a project.
func (t *FairQueue[T]) First(project uuid.UUID) (item T, ok bool) {
	items := t.waiting[project]
	if len(items) == 0 {
		return item, false
	}
	return items[0], true
}

// Pop removes the first item of a project, which must exist, and moves the project to the end.
func (t *FairQueue[T]) Pop(project uuid.UUID) T {
	var none T
	items := t.waiting[project]
	first := items[0]
	items[0] = none // otherwise the queue keeps it in memory
	if t.order[0] == project {
		t.order = t.order[1:]
	} else {
		t.order = slices.DeleteFunc(t.order, func(other uuid.UUID) bool { return other == project })
	}
	if len(items) == 1 {
		delete(t.waiting, project)
		return first
	}
	t.waiting[project] = items[1:]
	t.order = append(t.order, project)
	return first
}

// All removes and returns all items.
func (t *FairQueue[T]) All() (items []T) {
	for _, project := range t.order {
		items = append(items, t.waiting[project]...)
	}
	*t = NewFairQueue[T]()
	return items
}
