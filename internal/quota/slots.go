// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"sync"

	"github.com/google/uuid"
)

const (
	// reservedParts and reservedSlots are the slots for projects that have none: one of reservedParts parts of all slots, or
	// reservedSlots if these are more, but at most one of maxReservedParts parts.
	reservedParts, reservedSlots, maxReservedParts = 8, 8, 4
	// leftParts is the part that a project gets of the slots that the other projects leave.
	leftParts = 2
)

// SlotSet has slots that a caller takes if they are free, without waiting.
type SlotSet struct {
	all, part int64
	// reserved are slots for projects that have none.
	reserved int64

	mutex     sync.Mutex
	taken     int64
	byProject map[uuid.UUID]int64
}

// NewSlotSet returns a set of all slots. A project has at most one of parts equal parts, and at most half of
// the slots that the others leave. A project that has a slot gets none of the last eighth, or of
// the last eight if these are more, but at most a quarter. So each of that many projects, and three
// more, gets at least one slot, regardless of the others.
func NewSlotSet(all, parts int64) *SlotSet {
	reserved := max(all/reservedParts, min(all/maxReservedParts, reservedSlots))
	return &SlotSet{all: all, part: projectPart(all, parts), reserved: reserved, byProject: map[uuid.UUID]int64{}}
}

// Take takes n slots for a project, or returns ErrProjectLimit or ErrTotalLimit. The caller gives them back.
func (p *SlotSet) Take(project uuid.UUID, n int64) error {
	n = min(n, p.part)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	switch own := p.byProject[project]; {
	case own+n > p.part:
		return ErrProjectLimit
	case p.taken+n > p.all, !p.leavesEnough(own, n):
		return ErrTotalLimit
	}
	p.taken += n
	p.byProject[project] += n
	return nil
}

// leavesEnough reports whether enough slots remain for others if a project that has own takes n more.
func (p *SlotSet) leavesEnough(own, n int64) bool {
	left := p.all - p.taken + own // slots that others leave
	return own+n <= (left+leftParts-1)/leftParts && (own == 0 || p.taken+n <= p.all-p.reserved)
}

// Give gives n slots back.
func (p *SlotSet) Give(project uuid.UUID, n int64) {
	n = min(n, p.part)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.taken -= n
	if p.byProject[project] -= n; p.byProject[project] == 0 {
		delete(p.byProject, project)
	}
}

// Taken returns the number of taken slots.
func (p *SlotSet) Taken() int64 {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.taken
}
