// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

const (
	// recordPart is how many attempts are recorded at once after a record that took too long.
	recordPart = 64
	// recordPause is the least, maxRecordPause the longest time after which attempts are recorded again
	// that could not be.
	recordPause, maxRecordPause = time.Second, 8 * time.Second
)

// record has attempts recorded, with those that end meanwhile: a caller that comes while
// others are being recorded leaves its own to these.
func (s *Sender) record(attempts ...store.Attempt) {
	s.mutex.Lock()
	s.done = append(s.done, attempts...)
	if s.recording {
		s.mutex.Unlock()
		signal(s.recordable)
		return
	}
	s.recording = true
	s.mutex.Unlock()
	var left []store.Attempt
	for wait := recordPause; ; {
		s.mutex.Lock()
		batch := s.done
		s.done = nil
		if len(batch)+len(left) == 0 {
			s.recording = false
			s.mutex.Unlock()
			return
		}
		s.mutex.Unlock()
		if len(batch) == 0 {
			if !s.retryAfter(wait) {
				continue // others come first
			}
			batch, left, wait = left, nil, min(2*wait, maxRecordPause)
		}
		unrecorded := s.store(batch)
		kept := s.keep(unrecorded)
		if left = append(left, kept...); len(left) == 0 {
			wait = recordPause
		}
		s.leave(minus(batch, kept))
	}
}

// retryAfter waits, and says whether attempts that could not be recorded are next; false if others end.
func (s *Sender) retryAfter(wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.recordable:
		return false
	}
}

// store records attempts, in parts once that took too long, and returns those that it could not record.
func (s *Sender) store(batch []store.Attempt) (unrecorded []store.Attempt) {
	part := len(batch)
	if s.slow {
		part = recordPart
	}
	for begin := 0; begin < len(batch); begin += part {
		end := min(begin+part, len(batch))
		left, err := s.storeSome(batch[begin:end])
		if err != nil {
			s.opts.Logger.Error("recording attempts to deliver", "attempts", end-begin, "left", len(left), "error", err)
		}
		unrecorded = append(unrecorded, left...)
		for _, a := range minus(batch[begin:end], left) {
			s.opts.Metrics.DeliveryEnded(a.Outcome.String())
		}
		if s.slow = errors.Is(err, context.DeadlineExceeded); s.slow {
			return append(unrecorded, batch[end:]...)
		}
	}
	return unrecorded
}

// storeSome records attempts with one call.
func (s *Sender) storeSome(some []store.Attempt) (left []store.Attempt, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	err = s.opts.Store.RecordAttempts(ctx, some)
	var unrecorded *store.UnrecordedError
	switch {
	case err == nil:
		return nil, nil
	case errors.As(err, &unrecorded):
		return unrecorded.Left, err
	}
	return some, err
}

// keep returns the attempts that are worth another try: until their claims end, from when on their
// deliveries are due again. Once the sender stops, that is sooner.
func (s *Sender) keep(unrecorded []store.Attempt) []store.Attempt {
	within, now := recordWithin, s.opts.Now()
	select {
	case <-s.stopped:
		within = storeTimeout
	default:
	}
	return slices.DeleteFunc(slices.Clone(unrecorded), func(a store.Attempt) bool { return now.Sub(a.At.Add(a.Duration)) >= within })
}

// minus returns the attempts of a batch that are not among those left.
func minus(batch, left []store.Attempt) []store.Attempt {
	among := make(map[store.Key]bool, len(left))
	for _, a := range left {
		among[a.Delivery.Key()] = true
	}
	return slices.DeleteFunc(slices.Clone(batch), func(a store.Attempt) bool { return among[a.Delivery.Key()] })
}

// leave makes room.
func (s *Sender) leave(batch []store.Attempt) {
	s.mutex.Lock()
	s.underWay -= len(batch)
	for _, a := range batch {
		project := a.Delivery.ProjectID
		if s.byProject[project]--; s.byProject[project] == 0 {
			delete(s.byProject, project)
		}
		connector := a.Delivery.Connector()
		if l := s.lanes[connector]; l.held == 1 {
			delete(s.lanes, connector)
		} else {
			l.held--
		}
	}
	s.mutex.Unlock()
	signal(s.claimable)
}
