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
	// maxLarge limits the large contents in memory. A project gets at most largePart, one of
	// largeParts parts.
	maxLarge   = 16
	largeParts = 4
	largePart  = maxLarge / largeParts
	// maxWaiting limits the large deliveries of a project that wait in this process, in addition to
	// one per connector. The others stay in the store for processes with free slots.
	maxWaiting = 4 * largePart
	// maxLargeWait is how long after its claim a delivery can wait for a slot, so that there is time
	// left to read and send it. After that it returns to the store and is due again after
	// largePause.
	maxLargeWait    = maxSendDelay - storeTimeout
	largeRetryDelay = time.Minute
	// limitedClaimTime is how long the claims of a connector are limited to its free capacity after it had
	// too many large deliveries. Its small deliveries are unknown before a claim. So a full claim is
	// repeated, and its large deliveries return to the store. Small deliveries wait for this time after
	// each claim that is full of large ones.
	limitedClaimTime = platformPause
)

// largeQueue is a queue for deliveries with large contents. Some have a slot in memory, and the others
// wait without their contents. They do not use the slots of their connector. The caller holds the
// sender's mutex.
type largeQueue struct {
	slots    *quota.SlotSet
	projects map[uuid.UUID]*projectQueue // projects with used slots or waiting deliveries
	turns    []uuid.UUID                 // projects with waiting deliveries
	// many has the connectors without capacity, with the request time of their last claim.
	many map[store.Key]time.Time
}

// projectQueue has the large deliveries of one project, by connector.
type projectQueue struct {
	sent, waits int
	sentOf      map[uuid.UUID]int               // used slots of each connector
	waiting     map[uuid.UUID][]claimedDelivery // oldest first
	turns       []uuid.UUID                     // connectors with waiting deliveries
}

func newLargeQueue() *largeQueue {
	return &largeQueue{slots: quota.NewSlotSet(maxLarge, largeParts), projects: map[uuid.UUID]*projectQueue{}, many: map[store.Key]time.Time{}}
}

// isLarge reports whether the contents of a delivery must be read before it is sent.
func (d claimedDelivery) isLarge() bool {
	return d.contentsErr == nil && d.destinationErr == nil && cmp.Or(d.OutputBlob, d.PayloadBlob) != nil
}

// slotResult is the result of reserveSlot.
type slotResult int

// The delivery has a slot, waits for one, or cannot wait.
const (
	slotGranted slotResult = iota
	slotQueued
	slotRefused
)

// reserveSlot gives a delivery a slot, or lets it wait if there is capacity.
func (l *largeQueue) reserveSlot(d claimedDelivery) slotResult {
	project, connector := d.Delivery.ProjectID, d.Delivery.ConnectorID
	p := l.projects[project]
	if p == nil {
		p = &projectQueue{sentOf: map[uuid.UUID]int{}, waiting: map[uuid.UUID][]claimedDelivery{}}
		l.projects[project] = p
	}
	if len(p.waiting[connector]) == 0 && p.canStart(connector) && l.slots.Take(project, 1) == nil {
		p.countStarted(connector)
		return slotGranted
	}
	if p.waitingCapacity(connector) <= 0 {
		if key := d.Delivery.Connector(); len(l.many) < maxUnderWay || !l.many[key].IsZero() {
			l.many[key] = d.since
		}
		return slotRefused
	}
	if p.waits == 0 {
		l.turns = append(l.turns, project)
	}
	p.setWaiting(connector, append(p.waiting[connector], d))
	return slotQueued
}

// releaseSlot frees the slot of a delivery. It returns the deliveries that get a slot now, round-robin over
// projects and their connectors. It also returns the deliveries whose wait was too long. While deliveries
// wait, other deliveries have slots, so releaseSlot is called again.
func (l *largeQueue) releaseSlot(sent claimedDelivery, now time.Time) (next, late []claimedDelivery) {
	project, connector := sent.Delivery.ProjectID, sent.Delivery.ConnectorID
	l.slots.Give(project, 1)
	l.projects[project].countEnded(connector)
	for _, project := range l.turns {
		late = append(late, l.projects[project].removeExpired(now)...)
	}
	for again := true; again; {
		again = false
		for _, project := range slices.Clone(l.turns) {
			if d, ok := l.startNextOf(project); ok {
				next, again = append(next, d), true
				l.turns = append(removeID(l.turns, project), project)
			}
		}
	}
	for _, project := range append(slices.Clone(l.turns), project) {
		l.forgetIdleProject(project)
	}
	return next, late
}

// startNextOf gives a slot to the next delivery of a project, if possible.
func (l *largeQueue) startNextOf(project uuid.UUID) (d claimedDelivery, ok bool) {
	p := l.projects[project]
	turn := slices.IndexFunc(p.turns, p.canStart)
	if turn < 0 || l.slots.Take(project, 1) != nil {
		return d, false
	}
	connector := p.turns[turn]
	d = p.waiting[connector][0]
	p.countStarted(connector)
	p.turns = append(removeID(p.turns, connector), connector)
	p.setWaiting(connector, p.waiting[connector][1:])
	return d, true
}

// forgetIdleProject removes a project without slots and waiting deliveries.
func (l *largeQueue) forgetIdleProject(project uuid.UUID) {
	p := l.projects[project]
	if p == nil || p.waits > 0 {
		return
	}
	l.turns = removeID(l.turns, project)
	if p.sent == 0 {
		delete(l.projects, project)
	}
}

// freeCapacity returns how many deliveries each recently full connector can start, even if all of them are
// large.
func (l *largeQueue) freeCapacity(now time.Time) map[store.Key]int {
	most := make(map[store.Key]int, len(l.many))
	for key, since := range l.many {
		if now.Sub(since) > limitedClaimTime {
			delete(l.many, key)
			continue
		}
		p := l.projects[key.ProjectID]
		if p == nil {
			p = &projectQueue{}
		}
		most[key] = max(p.waitingCapacity(key.ID), 0)
	}
	return most
}

// canStart reports whether a connector can use another slot. It leaves the project's last slot to a
// connector without one. While another connector waits, it uses at most half of the slots.
func (p *projectQueue) canStart(connector uuid.UUID) bool {
	own := p.sentOf[connector]
	alone := !slices.ContainsFunc(p.turns, func(other uuid.UUID) bool { return other != connector })
	return own == 0 || p.sent < largePart-1 && (alone || own < largePart/2)
}

// waitingCapacity returns how many more deliveries of a connector can wait: half of the capacity that the
// project's other connectors leave, at least one.
func (p *projectQueue) waitingCapacity(connector uuid.UUID) int {
	own := len(p.waiting[connector])
	left := maxWaiting - p.waits + own
	return max((left+1)/2, 1) - own
}

func (p *projectQueue) countStarted(connector uuid.UUID) {
	p.sent++
	p.sentOf[connector]++
}

func (p *projectQueue) countEnded(connector uuid.UUID) {
	p.sent--
	if p.sentOf[connector]--; p.sentOf[connector] == 0 {
		delete(p.sentOf, connector)
	}
}

// setWaiting sets the waiting deliveries of a connector.
func (p *projectQueue) setWaiting(connector uuid.UUID, those []claimedDelivery) {
	before := len(p.waiting[connector])
	p.waits += len(those) - before
	p.waiting[connector] = those
	if len(those) == 0 {
		delete(p.waiting, connector)
		p.turns = removeID(p.turns, connector)
	} else if before == 0 {
		p.turns = append(p.turns, connector)
	}
}

// removeExpired removes the deliveries whose wait was too long.
func (p *projectQueue) removeExpired(now time.Time) (late []claimedDelivery) {
	for _, connector := range slices.Clone(p.turns) {
		waiting, n := p.waiting[connector], 0
		for n < len(waiting) && now.Sub(waiting[n].since) > maxLargeWait {
			n++
		}
		late = append(late, waiting[:n]...)
		p.setWaiting(connector, waiting[n:])
	}
	return late
}

func removeID(turns []uuid.UUID, id uuid.UUID) []uuid.UUID {
	return slices.DeleteFunc(turns, func(other uuid.UUID) bool { return other == id })
}

// returnedAttempt returns the outcome for a delivery without a slot or without capacity to wait. It is
// due again soon and does not count as an attempt.
func (s *Sender) returnedAttempt(d claimedDelivery) store.Attempt {
	return s.toAttempt(d, attemptResult{class: classPlatform, message: "too many large results are being sent", at: d.since})
}

// expiredAttempt returns the outcome for a delivery whose wait was too long. It is due again later, in whole
// seconds as in judge, with jitter to separate it from other waiting deliveries.
func (s *Sender) expiredAttempt(d claimedDelivery) store.Attempt {
	a := s.returnedAttempt(d)
	a.Wait = addJitter(largeRetryDelay, s.opts.Random()).Round(time.Second)
	return a
}
