// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"iter"
	"slices"

	"github.com/google/uuid"
)

// Turns is a queue in which projects take turns (round-robin; fair queueing): of each,
// what came first. It is guarded by who has it.
type Turns[T any] struct {
	order   []uuid.UUID // the projects of waiting, whose turn is next first
	waiting map[uuid.UUID][]T
}

// NewTurns returns an empty one.
func NewTurns[T any]() Turns[T] { return Turns[T]{waiting: map[uuid.UUID][]T{}} }

// Push adds to the end of a project's line.
func (t *Turns[T]) Push(project uuid.UUID, item T) {
	t.join(project)
	t.waiting[project] = append(t.waiting[project], item)
}

// PutBack adds to the beginning of a project's line.
func (t *Turns[T]) PutBack(project uuid.UUID, item T) {
	t.join(project)
	t.waiting[project] = slices.Insert(t.waiting[project], 0, item)
}

func (t *Turns[T]) join(project uuid.UUID) {
	if len(t.waiting[project]) == 0 {
		t.order = append(t.order, project)
	}
}

// Projects are those of which something waits, whose turn is next first.
func (t *Turns[T]) Projects() iter.Seq[uuid.UUID] { return slices.Values(t.order) }

// Next is what is first of the project whose turn it is.
func (t *Turns[T]) Next() (project uuid.UUID, item T, ok bool) {
	if len(t.order) == 0 {
		return project, item, false
	}
	project = t.order[0]
	return project, t.waiting[project][0], true
}

// First is what is first of a project's line.
func (t *Turns[T]) First(project uuid.UUID) (item T, ok bool) {
	line := t.waiting[project]
	if len(line) == 0 {
		return item, false
	}
	return line[0], true
}

// Pop takes what is first of a project's line, in which there must be something, and
// gives the turn to the others.
func (t *Turns[T]) Pop(project uuid.UUID) T {
	var none T
	line := t.waiting[project]
	first := line[0]
	line[0] = none // or it is held for as long as the line
	if t.order[0] == project {
		t.order = t.order[1:]
	} else {
		t.order = slices.DeleteFunc(t.order, func(other uuid.UUID) bool { return other == project })
	}
	if len(line) == 1 {
		delete(t.waiting, project)
		return first
	}
	t.waiting[project] = line[1:]
	t.order = append(t.order, project)
	return first
}

// All takes everything.
func (t *Turns[T]) All() (items []T) {
	for _, project := range t.order {
		items = append(items, t.waiting[project]...)
	}
	*t = NewTurns[T]()
	return items
}
