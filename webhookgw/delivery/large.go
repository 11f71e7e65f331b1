// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// maxLarge is how many outputs that do not fit in a row are in memory, largeParts the
	// parts of these of which a project has one, largePart.
	maxLarge   = 16
	largeParts = 4
	largePart  = maxLarge / largeParts
	// maxWaiting is how many of a project's wait for a place in this process, beside one of
	// each connector: the others are left to processes that have places.
	maxWaiting = 4 * largePart
	// largeWait is until when, from when its claim was asked for, a delivery waits for a place
	// in memory: then there is time left for it to be read. One that has waited for longer is
	// given back, and due again after largePause.
	largeWait  = sendWithin - storeTimeout
	largePause = time.Minute
	// manyFor is for how long no more is claimed of a connector than there is room for, once it
	// had more large ones than that. Then it may have small ones that are due, which nobody knows
	// before they are claimed: so a full claim is made again, whose large ones are given back, and
	// small ones wait for that long with each claim that is full of large ones due before them.
	manyFor = platformPause
)

// larges is a lane for deliveries whose contents do not fit in a row: some have a place in
// memory, some wait for one without their contents. They take none of the places of those
// that their connector sends at once. Whoever uses it holds the sender's mutex.
type larges struct {
	places   *quota.Places
	projects map[uuid.UUID]*largesOf // those that have places, or of which some wait
	turns    []uuid.UUID             // projects of which some wait
	// many are connectors for which there was no room, by when the last claim of these was asked
	// for.
	many map[store.Key]time.Time
}

// largesOf are those of a project, by connector.
type largesOf struct {
	sent, waits int
	sentOf      map[uuid.UUID]int       // of each, how many have a place
	waiting     map[uuid.UUID][]claimed // oldest first
	turns       []uuid.UUID             // connectors of which some wait
}

func newLarges() *larges {
	return &larges{places: quota.NewPlaces(maxLarge, largeParts), projects: map[uuid.UUID]*largesOf{}, many: map[store.Key]time.Time{}}
}

// large says whether a delivery's contents are read before it is sent.
func (d claimed) large() bool {
	return d.unread == nil && d.unsent == nil && cmp.Or(d.OutputBlob, d.PayloadBlob) != nil
}

// entry is what becomes of a delivery that needs a place.
type entry int

// It has one, or waits for it, or there is no room to wait.
const (
	begins entry = iota
	waits
	beyond
)

// enter lets a delivery have a place, or wait for one, if there is room for that.
func (l *larges) enter(d claimed) entry {
	project, connector := d.Delivery.ProjectID, d.Delivery.ConnectorID
	p := l.projects[project]
	if p == nil {
		p = &largesOf{sentOf: map[uuid.UUID]int{}, waiting: map[uuid.UUID][]claimed{}}
		l.projects[project] = p
	}
	if len(p.waiting[connector]) == 0 && p.may(connector) && l.places.Take(project, 1) == nil {
		p.begin(connector)
		return begins
	}
	if p.room(connector) <= 0 {
		if key := d.Delivery.Connector(); len(l.many) < maxUnderWay || !l.many[key].IsZero() {
			l.many[key] = d.since
		}
		return beyond
	}
	if p.waits == 0 {
		l.turns = append(l.turns, project)
	}
	p.wait(connector, append(p.waiting[connector], d))
	return waits
}

// leave gives back the place of a delivery. It returns those which have one now, projects in
// turns and in each its connectors, and those which have waited for too long. As long as some
// wait others have places, whose ends let them go on.
func (l *larges) leave(sent claimed, now time.Time) (next, late []claimed) {
	project, connector := sent.Delivery.ProjectID, sent.Delivery.ConnectorID
	l.places.Give(project, 1)
	l.projects[project].end(connector)
	for _, project := range l.turns {
		late = append(late, l.projects[project].late(now)...)
	}
	for again := true; again; {
		again = false
		for _, project := range slices.Clone(l.turns) {
			if d, ok := l.next(project); ok {
				next, again = append(next, d), true
				l.turns = append(without(l.turns, project), project)
			}
		}
	}
	for _, project := range append(slices.Clone(l.turns), project) {
		l.tidy(project)
	}
	return next, late
}

// next lets the next of a project's begin, if one may.
func (l *larges) next(project uuid.UUID) (d claimed, ok bool) {
	p := l.projects[project]
	turn := slices.IndexFunc(p.turns, p.may)
	if turn < 0 || l.places.Take(project, 1) != nil {
		return d, false
	}
	connector := p.turns[turn]
	d = p.waiting[connector][0]
	p.begin(connector)
	p.turns = append(without(p.turns, connector), connector)
	p.wait(connector, p.waiting[connector][1:])
	return d, true
}

// tidy forgets what is known of a project of which none wait, or have a place either.
func (l *larges) tidy(project uuid.UUID) {
	p := l.projects[project]
	if p == nil || p.waits > 0 {
		return
	}
	l.turns = without(l.turns, project)
	if p.sent == 0 {
		delete(l.projects, project)
	}
}

// most is how many more may begin of connectors for which there was no room of late: there is
// for as many, however large they are.
func (l *larges) most(now time.Time) map[store.Key]int {
	most := make(map[store.Key]int, len(l.many))
	for key, since := range l.many {
		if now.Sub(since) > manyFor {
			delete(l.many, key)
			continue
		}
		p := l.projects[key.ProjectID]
		if p == nil {
			p = &largesOf{}
		}
		most[key] = max(p.room(key.ID), 0)
	}
	return most
}

// may says whether a connector may have a place more: it leaves the last one of its project's
// to one that has none, and while another one waits it has no more than half of them.
func (p *largesOf) may(connector uuid.UUID) bool {
	own := p.sentOf[connector]
	alone := !slices.ContainsFunc(p.turns, func(other uuid.UUID) bool { return other != connector })
	return own == 0 || p.sent < largePart-1 && (alone || own < largePart/2)
}

// room is how many more of a connector may wait: half of what the others of its project leave,
// but one at least.
func (p *largesOf) room(connector uuid.UUID) int {
	own := len(p.waiting[connector])
	left := maxWaiting - p.waits + own
	return max((left+1)/2, 1) - own
}

func (p *largesOf) begin(connector uuid.UUID) {
	p.sent++
	p.sentOf[connector]++
}

func (p *largesOf) end(connector uuid.UUID) {
	p.sent--
	if p.sentOf[connector]--; p.sentOf[connector] == 0 {
		delete(p.sentOf, connector)
	}
}

// wait sets which of a connector wait.
func (p *largesOf) wait(connector uuid.UUID, those []claimed) {
	before := len(p.waiting[connector])
	p.waits += len(those) - before
	p.waiting[connector] = those
	if len(those) == 0 {
		delete(p.waiting, connector)
		p.turns = without(p.turns, connector)
	} else if before == 0 {
		p.turns = append(p.turns, connector)
	}
}

// late takes away those that have waited for too long.
func (p *largesOf) late(now time.Time) (late []claimed) {
	for _, connector := range slices.Clone(p.turns) {
		waiting, n := p.waiting[connector], 0
		for n < len(waiting) && now.Sub(waiting[n].since) > largeWait {
			n++
		}
		late = append(late, waiting[:n]...)
		p.wait(connector, waiting[n:])
	}
	return late
}

func without(turns []uuid.UUID, id uuid.UUID) []uuid.UUID {
	return slices.DeleteFunc(turns, func(other uuid.UUID) bool { return other == id })
}

// givenBack is what comes of a delivery for which there was no place, or room to wait for one:
// it is due again before long, and does not count as an attempt.
func (s *Sender) givenBack(d claimed) store.Attempt {
	return s.judged(d, seen{class: classPlatform, message: "too many large results were being sent", at: d.since})
}

// late is what comes of a delivery that has waited for too long: it is due again after a
// longer while, in whole seconds as judge has it, and not with all those that waited with it.
func (s *Sender) late(d claimed) store.Attempt {
	a := s.givenBack(d)
	a.Wait = jittered(largePause, s.opts.Random()).Round(time.Second)
	return a
}
