// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"slices"

	"github.com/google/uuid"
)

// lines are ends that wait, a line a project; projects take turns.
type lines struct {
	order   []uuid.UUID // the projects of waiting, whose turn is next first
	waiting map[uuid.UUID][]*end
}

func newLines() lines { return lines{waiting: map[uuid.UUID][]*end{}} }

// push adds to the end of its project's line.
func (l *lines) push(e *end) {
	project := e.completion.Run.ProjectID
	if len(l.waiting[project]) == 0 {
		l.order = append(l.order, project)
	}
	l.waiting[project] = append(l.waiting[project], e)
}

// first is the first of a project's line; nil where none waits.
func (l *lines) first(project uuid.UUID) *end {
	if line := l.waiting[project]; len(line) > 0 {
		return line[0]
	}
	return nil
}

// pop takes the first of a project's line, and gives the turn to the others.
func (l *lines) pop(project uuid.UUID) *end {
	l.order = slices.DeleteFunc(l.order, func(other uuid.UUID) bool { return other == project })
	line := l.waiting[project]
	first := line[0]
	line[0] = nil // or its data is held for as long as the line
	if line = line[1:]; len(line) == 0 {
		delete(l.waiting, project)
		return first
	}
	l.waiting[project] = line
	l.order = append(l.order, project)
	return first
}

// collect takes a batch of all projects in turn, within the bounds of one.
func (l *lines) collect() (batch []*end) {
	return l.fill(func() uuid.UUID { return l.order[0] })
}

// collectOf takes a batch of one project.
func (l *lines) collectOf(project uuid.UUID) (batch []*end) {
	return l.fill(func() uuid.UUID { return project })
}

func (l *lines) fill(next func() uuid.UUID) (batch []*end) {
	var size int64
	for len(l.order) > 0 && len(batch) < maxEnds {
		project := next()
		e := l.first(project)
		if e == nil || len(batch) > 0 && size+e.size > maxEndBytes {
			break
		}
		size += e.size
		batch = append(batch, l.pop(project))
	}
	return batch
}

// all takes everything.
func (l *lines) all() (ends []*end) {
	for _, project := range slices.Clone(l.order) {
		ends = append(ends, l.waiting[project]...)
	}
	*l = newLines()
	return ends
}
