// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/outbound"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// maxLarge is how many outputs that do not fit in a row are in memory, largeParts the
	// parts of these of which a project has one.
	maxLarge   = 16
	largeParts = 4
	// largeWait is how long a delivery waits for a place in memory: so long that its lease is
	// enough for reading it, sending it, and recording that after another record. One that has
	// waited for longer is given back, and due again after largePause.
	largeWait  = lease - outbound.MaxTimeout - 3*storeTimeout
	largePause = time.Minute
)

// larges is a lane for deliveries whose contents do not fit in a row: some have a place in
// memory, the others wait for one without their contents. They take none of the places of
// those that their connector sends at once. Whoever uses it holds the sender's mutex.
type larges struct {
	places  *quota.Places
	waiting map[uuid.UUID][]claimed // by project, oldest first
	turns   []uuid.UUID             // projects of which some wait
}

func newLarges() *larges {
	return &larges{places: quota.NewPlaces(maxLarge, largeParts), waiting: map[uuid.UUID][]claimed{}}
}

// large says whether a delivery's contents are read before it is sent.
func (d claimed) large() bool {
	return d.unread == nil && d.unsent == nil && cmp.Or(d.OutputBlob, d.PayloadBlob) != nil
}

// enter says whether a delivery has a place; otherwise it waits for one.
func (l *larges) enter(d claimed) bool {
	project := d.Delivery.ProjectID
	if len(l.waiting[project]) == 0 {
		if l.places.Take(project, 1) == nil {
			return true
		}
		l.turns = append(l.turns, project)
	}
	l.waiting[project] = append(l.waiting[project], d)
	return false
}

// leave gives back the place of a delivery. It returns those which have one now, projects in
// turns, and those which have waited for too long. As long as some wait others have places,
// whose ends let them go on.
func (l *larges) leave(project uuid.UUID, now time.Time) (next, late []claimed) {
	l.places.Give(project, 1)
	for project, waiting := range l.waiting {
		n := 0
		for n < len(waiting) && now.Sub(waiting[n].since) > largeWait {
			n++
		}
		late = append(late, waiting[:n]...)
		l.waiting[project] = waiting[n:]
	}
	for again := true; again; {
		again = false
		for _, project := range slices.Clone(l.turns) {
			waiting := l.waiting[project]
			if len(waiting) > 0 && l.places.Take(project, 1) == nil {
				next, again = append(next, waiting[0]), true
				l.waiting[project] = waiting[1:]
				l.turns = append(slices.DeleteFunc(l.turns, func(id uuid.UUID) bool { return id == project }), project)
			}
		}
	}
	l.turns = slices.DeleteFunc(l.turns, func(project uuid.UUID) bool {
		none := len(l.waiting[project]) == 0
		if none {
			delete(l.waiting, project)
		}
		return none
	})
	return next, late
}

// givenBack is what comes of a delivery that has waited for too long.
func (s *Sender) givenBack(d claimed) store.Attempt {
	a := s.judged(d, seen{class: classPlatform, message: "too many large results were being sent", at: d.since})
	a.Wait = largePause
	return a
}
