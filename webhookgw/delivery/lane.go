// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// lane is what a process holds for a connector: so many are sent, some wait, the others are
// being recorded, or large.
type lane struct {
	held, sent int
	waiting    []claimed
}

// claimed is a delivery whose attempt is to be made, and where it goes, or why that, or what
// it would send, is not known.
type claimed struct {
	store.ClaimedDelivery
	to             destination
	unsent, unread error
	// since is when its claim was asked for, which is before it began.
	since time.Time
}

// claimedOf reads where deliveries go, once for those of a connector.
func (s *Sender) claimedOf(deliveries []store.ClaimedDelivery, since time.Time, unread error) []claimed {
	all, of := make([]claimed, len(deliveries)), map[store.Key]int{}
	for i, d := range deliveries {
		all[i] = claimed{ClaimedDelivery: d, unread: unread, since: since}
		first, known := of[d.Delivery.Connector()]
		if !known {
			all[i].to, all[i].unsent = destinationOf(d.Connector, s.opts.Keys)
			of[d.Delivery.Connector()] = i
			continue
		}
		all[i].to, all[i].unsent = all[first].to, all[first].unsent
	}
	return all
}

// beginAll makes attempts, and gives back what is large and for which there is no room.
func (s *Sender) beginAll(ctx context.Context, all []claimed) {
	var back []store.Attempt
	for _, d := range all {
		if !s.begin(ctx, d) {
			back = append(back, s.givenBack(d))
		}
	}
	if len(back) > 0 {
		s.attempts.Go(func() { s.record(back...) })
	}
}

// begin makes an attempt, once there are fewer than atOnce of its connector, or there is a
// place for what is large. It says whether there is room for it until then.
func (s *Sender) begin(ctx context.Context, d claimed) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.underWay++
	s.byProject[d.Delivery.ProjectID]++
	key := d.Delivery.Connector()
	l := s.lanes[key]
	if l == nil {
		l = &lane{}
		s.lanes[key] = l
	}
	l.held++
	switch {
	case d.large():
		if became := s.larges.enter(d); became != begins {
			return became == waits
		}
	case l.sent == atOnce:
		l.waiting = append(l.waiting, d)
		return true
	default:
		l.sent++
	}
	s.attempts.Go(func() { s.deliver(ctx, d) })
	return true
}

// deliver makes an attempt and has it recorded; the next of its connector, or of those that
// are large, begins before.
func (s *Sender) deliver(ctx context.Context, d claimed) {
	a := s.attempt(ctx, d)
	done := []store.Attempt{a}
	if d.large() {
		for _, late := range s.passPlaceOn(ctx, d) {
			done = append(done, s.late(late))
		}
	} else {
		s.passOn(ctx, d.Delivery.Connector())
	}
	s.opts.Metrics.DeliveryAttempt(a.ErrorClass, a.Duration)
	s.record(done...)
}

// passPlaceOn lets those begin for which there is room once a large one was sent, and returns
// those that have waited for too long.
func (s *Sender) passPlaceOn(ctx context.Context, sent claimed) (late []claimed) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	next, late := s.larges.leave(sent, s.opts.Now())
	for _, d := range next {
		s.attempts.Go(func() { s.deliver(ctx, d) })
	}
	return late
}

// passOn lets the next of a connector's take the place of one that was sent.
func (s *Sender) passOn(ctx context.Context, connector store.Key) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	l := s.lanes[connector]
	if len(l.waiting) > 0 {
		d := l.waiting[0]
		l.waiting = l.waiting[1:]
		s.attempts.Go(func() { s.deliver(ctx, d) })
		return
	}
	l.sent--
}
