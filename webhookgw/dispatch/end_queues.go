// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/quota"
)

// endQueues is the queue of completions, round-robin over projects.
type endQueues struct{ quota.FairQueue[*pendingEnd] }

func newEndQueues() endQueues { return endQueues{quota.NewFairQueue[*pendingEnd]()} }

func (l *endQueues) pushEnd(e *pendingEnd) { l.Push(e.completion.Run.ProjectID, e) }

// collect returns a batch of all projects in turn, within the limits of a batch.
func (l *endQueues) collect() []*pendingEnd {
	return l.fillBatch(l.Next)
}

// collectOf returns a batch of one project.
func (l *endQueues) collectOf(project uuid.UUID) []*pendingEnd {
	return l.fillBatch(func() (uuid.UUID, *pendingEnd, bool) {
		first, ok := l.First(project)
		return project, first, ok
	})
}

func (l *endQueues) fillBatch(next func() (uuid.UUID, *pendingEnd, bool)) (batch []*pendingEnd) {
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
