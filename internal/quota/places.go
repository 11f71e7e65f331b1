// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"sync"

	"github.com/google/uuid"
)

// Places are taken by who finds them free, and by nobody else: nobody waits.
type Places struct {
	all, part int64
	// sparing says that a project has no more than half of what the others leave.
	sparing bool

	mutex     sync.Mutex
	taken     int64
	byProject map[uuid.UUID]int64
}

// NewPlaces are so many, of which a project has one part.
func NewPlaces(all, parts int64) *Places {
	return &Places{all: all, part: partOf(all, parts), byProject: map[uuid.UUID]int64{}}
}

// NewSparingPlaces are NewPlaces of which a project has no more than half of what the others
// leave: so there are some for the next, however many projects take what they may.
func NewSparingPlaces(all, parts int64) *Places {
	p := NewPlaces(all, parts)
	p.sparing = true
	return p
}

// Take takes n for a project, who gives them back; or ErrPart or ErrAll.
func (p *Places) Take(project uuid.UUID, n int64) error {
	n = min(n, p.part)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	switch {
	case p.byProject[project]+n > p.part:
		return ErrPart
	case p.taken+n > p.all, p.sparing && p.byProject[project]+n > (p.all-p.taken+p.byProject[project]+1)/2:
		return ErrAll
	}
	p.taken += n
	p.byProject[project] += n
	return nil
}

// Give gives back what was taken by the same n.
func (p *Places) Give(project uuid.UUID, n int64) {
	n = min(n, p.part)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.taken -= n
	if p.byProject[project] -= n; p.byProject[project] == 0 {
		delete(p.byProject, project)
	}
}

// Taken is how many are.
func (p *Places) Taken() int64 {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.taken
}
