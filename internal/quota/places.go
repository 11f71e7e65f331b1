// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"sync"

	"github.com/google/uuid"
)

// Places are taken by who finds them free, and by nobody else: nobody waits.
type Places struct {
	all, part int64
	// kept are for projects alone that have none.
	kept int64

	mutex     sync.Mutex
	taken     int64
	byProject map[uuid.UUID]int64
}

// NewPlaces are so many, of which a project has one part at most, no more than half of what
// the others leave, and once it has some nothing of the last eighth, or of the last eight where
// these are more but no more than a quarter. So there is one at least for each of as many
// projects as that is, and for three more, however much the others ask for.
func NewPlaces(all, parts int64) *Places {
	return &Places{all: all, part: partOf(all, parts), kept: max(all/8, min(all/4, 8)), byProject: map[uuid.UUID]int64{}}
}

// Take takes n for a project, who gives them back; or ErrPart or ErrAll.
func (p *Places) Take(project uuid.UUID, n int64) error {
	n = min(n, p.part)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	switch own := p.byProject[project]; {
	case own+n > p.part:
		return ErrPart
	case p.taken+n > p.all, !p.spares(own, n):
		return ErrAll
	}
	p.taken += n
	p.byProject[project] += n
	return nil
}

// spares says that enough is left for others when a project that has own takes n more.
func (p *Places) spares(own, n int64) bool {
	left := p.all - p.taken + own // by the others
	return own+n <= (left+1)/2 && (own == 0 || p.taken+n <= p.all-p.kept)
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
