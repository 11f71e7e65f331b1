// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// connectorQueue has the deliveries of one connector in this process: being sent, waiting, being recorded, or
// large.
type connectorQueue struct {
	held, sent int
	waiting    []claimedDelivery
}

// claimedDelivery is a claimed delivery with its destination. If the destination or the contents could not
// be read, it has the reason.
type claimedDelivery struct {
	store.ClaimedDelivery
	to                          destination
	destinationErr, contentsErr error
	// since is the time at which the claim was requested, so it is before the start of the claim.
	since time.Time
}

// addDestinations adds the destinations to deliveries. It reads each connector once.
func (s *Sender) addDestinations(deliveries []store.ClaimedDelivery, since time.Time, unread error) []claimedDelivery {
	all, of := make([]claimedDelivery, len(deliveries)), map[store.Key]int{}
	for i, d := range deliveries {
		all[i] = claimedDelivery{ClaimedDelivery: d, contentsErr: unread, since: since}
		first, known := of[d.Delivery.Connector()]
		if !known {
			all[i].to, all[i].destinationErr = destinationOf(d.Connector, s.opts.Keys)
			of[d.Delivery.Connector()] = i
			continue
		}
		all[i].to, all[i].destinationErr = all[first].to, all[first].destinationErr
	}
	return all
}

// beginAll starts attempts. It returns large deliveries to the store if there is no capacity for
// them.
func (s *Sender) beginAll(ctx context.Context, all []claimedDelivery) {
	var back []store.Attempt
	for _, d := range all {
		if !s.startAttempt(ctx, d) {
			back = append(back, s.returnedAttempt(d))
		}
	}
	if len(back) > 0 {
		s.attempts.Go(func() { s.recordAttempts(back...) })
	}
}

// startAttempt starts an attempt if its connector runs fewer than the maximum, or if a large delivery has a
// slot. It reports whether the delivery could start or wait.
func (s *Sender) startAttempt(ctx context.Context, d claimedDelivery) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.underWay++
	s.byProject[d.Delivery.ProjectID]++
	key := d.Delivery.Connector()
	l := s.connectors[key]
	if l == nil {
		l = &connectorQueue{}
		s.connectors[key] = l
	}
	l.held++
	switch {
	case d.isLarge():
		if became := s.large.reserveSlot(d); became != slotGranted {
			return became == slotQueued
		}
	case l.sent == maxConcurrentRequests:
		l.waiting = append(l.waiting, d)
		return true
	default:
		l.sent++
	}
	s.attempts.Go(func() { s.deliver(ctx, d) })
	return true
}

// deliver makes an attempt and records it. The next delivery of the connector, or the next large
// one, starts before the record.
func (s *Sender) deliver(ctx context.Context, d claimedDelivery) {
	a := s.attempt(ctx, d)
	done := []store.Attempt{a}
	if d.isLarge() {
		for _, late := range s.passSlotOn(ctx, d) {
			done = append(done, s.expiredAttempt(late))
		}
	} else {
		s.startNextOfConnector(ctx, d.Delivery.Connector())
	}
	s.opts.Metrics.DeliveryAttempt(a.ErrorClass, a.Duration)
	s.recordAttempts(done...)
}

// passSlotOn starts the next large deliveries after one was sent, and returns the deliveries that
// waited too long.
func (s *Sender) passSlotOn(ctx context.Context, sent claimedDelivery) (late []claimedDelivery) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	next, late := s.large.releaseSlot(sent, s.opts.Now())
	for _, d := range next {
		s.attempts.Go(func() { s.deliver(ctx, d) })
	}
	return late
}

// startNextOfConnector starts the next delivery of a connector after one was sent.
func (s *Sender) startNextOfConnector(ctx context.Context, connector store.Key) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	l := s.connectors[connector]
	if len(l.waiting) > 0 {
		d := l.waiting[0]
		l.waiting = l.waiting[1:]
		s.attempts.Go(func() { s.deliver(ctx, d) })
		return
	}
	l.sent--
}
