// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"
)

const (
	// fastSlots limits the projects whose traces a gateway exports at the same time while their collectors respond quickly.
	// slowSlots limits the projects with slow collectors, which use no fast slots.
	fastSlots = 12
	slowSlots = 4
	// slotsPerDestination limits the fast slots of projects with the same destination.
	slotsPerDestination = 4
	// slowAfter is the time after which a request makes its project slow.
	slowAfter = 2 * time.Second
	// firstPause is the pause of a project after a failed request. It doubles up to lastPause.
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute
)

// slot is the kind of slot that a project uses.
type slot int

const (
	noSlot slot = iota
	fastSlot
	slowSlot
)

// project is the state of the export of a project.
type project struct {
	uses slot
	// isSlow means that the project gets slow slots only. wasSlow means that a request of the present turn was slow.
	isSlow, wasSlow bool
	// destination is the host of the collector. isHeld means that it had no slot for the project.
	destination string
	isHeld      bool
	// turn orders the turns of slow projects.
	turn     int
	failures int
	until    time.Time // the end of its pause
	ended    time.Time // the end of its last turn
}

// slots decides which projects can begin. A project holds at most one slot, so a slow or dead collector holds a fast slot for
// slowAfter, once. Its caller holds a lock.
type slots struct {
	projects map[uuid.UUID]*project
	turns    int
}

// countProjects returns the number of projects that use a slot, and that match.
func (s *slots) countProjects(kind slot, matches func(*project) bool) (n int) {
	for _, p := range s.projects {
		if p.uses == kind && matches(p) {
			n++
		}
	}
	return n
}

func anyProject(*project) bool { return true }

// claimable returns how many further projects can begin, without some that cannot, and the slow projects that can begin.
func (s *slots) claimable(now time.Time) (fast int, without, slow []uuid.UUID) {
	s.forgetProjects(now)
	room := map[string]int{}
	for id, p := range s.projects {
		waits := p.uses == noSlot && !now.Before(p.until)
		switch {
		case waits && p.isSlow:
			slow = append(slow, id)
		case waits && p.isHeld:
			left, known := room[p.destination]
			if !known {
				left = s.roomAt(p.destination)
			}
			if room[p.destination] = left - 1; left > 0 {
				continue
			}
		case waits:
			continue
		}
		without = append(without, id)
	}
	slices.SortFunc(slow, func(a, b uuid.UUID) int { return cmp.Compare(s.projects[a].turn, s.projects[b].turn) })
	return fastSlots - s.countProjects(fastSlot, anyProject), without, slow[:min(len(slow), max(0, slowSlots-s.countProjects(slowSlot, anyProject)))]
}

// roomAt returns the free fast slots of a destination.
func (s *slots) roomAt(destination string) int {
	return slotsPerDestination - s.countProjects(fastSlot, func(p *project) bool { return p.destination == destination })
}

// forgetProjects drops the state of projects that adds nothing.
func (s *slots) forgetProjects(now time.Time) {
	for id, p := range s.projects {
		isOld := now.Sub(p.ended) > maxAge
		if p.uses == noSlot && (isOld || !p.isSlow && !p.isHeld && (p.failures == 0 || now.Sub(p.until) > lastPause)) {
			delete(s.projects, id)
		}
	}
}

// beginTurn takes a slot for a project. It reports false if the destination has none, or if fast projects that became slow
// have taken the last slow slot meanwhile.
func (s *slots) beginTurn(id uuid.UUID, kind slot, destination string, now time.Time) bool {
	if kind == slowSlot && s.countProjects(slowSlot, anyProject) >= slowSlots {
		return false
	}
	p := s.projects[id]
	if p == nil {
		p = &project{ended: now}
		s.projects[id] = p
	}
	p.destination = destination
	if p.isHeld = kind == fastSlot && s.roomAt(destination) <= 0; p.isHeld {
		p.ended = now
		return false
	}
	s.turns++
	p.uses, p.turn, p.wasSlow = kind, s.turns, false
	return true
}

// makeSlow moves a project with a slow request to a slow slot. It reports false if none is free: the request must end.
func (s *slots) makeSlow(id uuid.UUID) bool {
	p := s.projects[id]
	if p == nil || p.uses == noSlot { // the request has just ended
		return true
	}
	p.isSlow, p.wasSlow = true, true
	if p.uses == fastSlot {
		if s.countProjects(slowSlot, anyProject) >= slowSlots {
			return false
		}
		p.uses = slowSlot
	}
	return true
}

// endTurn returns the slot of a project, which then pauses if it failed. A project without a slow request is not slow any more.
func (s *slots) endTurn(id uuid.UUID, hasFailed bool, now time.Time) {
	p := s.projects[id]
	p.uses, p.ended = noSlot, now
	if hasFailed {
		p.until = now.Add(pauseAfter(p.failures))
		p.failures++
		return
	}
	p.isSlow, p.failures = p.isSlow && p.wasSlow, 0
}

// pauseAfter returns the pause after so many failures before this one.
func pauseAfter(failures int) time.Duration {
	return min(firstPause<<min(failures, 10), lastPause)
}
