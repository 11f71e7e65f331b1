// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/quota"
)

// lines are ends that wait; projects take turns.
type lines struct{ quota.Turns[*end] }

func newLines() lines { return lines{quota.NewTurns[*end]()} }

func (l *lines) push(e *end) { l.Push(e.completion.Run.ProjectID, e) }

// collect takes a batch of all projects in turn, within the bounds of one.
func (l *lines) collect() []*end {
	return l.fill(l.Next)
}

// collectOf takes a batch of one project.
func (l *lines) collectOf(project uuid.UUID) []*end {
	return l.fill(func() (uuid.UUID, *end, bool) {
		first, ok := l.First(project)
		return project, first, ok
	})
}

func (l *lines) fill(next func() (uuid.UUID, *end, bool)) (batch []*end) {
	var size int64
	for len(batch) < maxEnds {
		project, e, ok := next()
		if !ok || len(batch) > 0 && size+e.size > maxEndBytes {
			break
		}
		size += e.size
		batch = append(batch, l.Pop(project))
	}
	return batch
}
