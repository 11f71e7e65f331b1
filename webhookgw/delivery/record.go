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
	// recordPart is the number of attempts per record after a record that took too long.
	recordPart = 64
	// recordPause and maxRecordPause are the minimum and maximum backoff after a failed record.
	recordPause, maxRecordPause = time.Second, 8 * time.Second
)

// recordAttempts records attempts together with the attempts that end meanwhile. If a record is in progress,
// that record takes the attempts too.
func (s *Sender) recordAttempts(attempts ...store.Attempt) {
	s.mutex.Lock()
	s.done = append(s.done, attempts...)
	if s.recording {
		s.mutex.Unlock()
		notifyLoop(s.recordable)
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
				continue // others first
			}
			batch, left, wait = left, nil, min(2*wait, maxRecordPause)
		}
		unrecorded := s.storeAttempts(batch)
		kept := s.keepRetryable(unrecorded)
		if left = append(left, kept...); len(left) == 0 {
			wait = recordPause
		}
		s.releaseCapacity(withoutAttempts(batch, kept))
	}
}

// retryAfter waits, and reports whether failed attempts are recorded next. It returns false if
// other attempts end.
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

// storeAttempts records attempts and returns the failed ones. After a record that took too long it
// splits the batch.
func (s *Sender) storeAttempts(batch []store.Attempt) (unrecorded []store.Attempt) {
	part := len(batch)
	if s.slow {
		part = recordPart
	}
	for begin := 0; begin < len(batch); begin += part {
		end := min(begin+part, len(batch))
		left, err := s.storeSome(batch[begin:end])
		if err != nil {
			s.opts.Logger.Error("recording delivery attempts", "attempts", end-begin, "left", len(left), "error", err)
		}
		unrecorded = append(unrecorded, left...)
		for _, a := range withoutAttempts(batch[begin:end], left) {
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

// keepRetryable returns the attempts that are worth a retry: until their claims end and their deliveries are
// due again. When the sender stops, the limit is earlier.
func (s *Sender) keepRetryable(unrecorded []store.Attempt) []store.Attempt {
	within, now := recordTimeout, s.opts.Now()
	select {
	case <-s.stopped:
		within = storeTimeout
	default:
	}
	return slices.DeleteFunc(slices.Clone(unrecorded), func(a store.Attempt) bool { return now.Sub(a.At.Add(a.Duration)) >= within })
}

// withoutAttempts returns the attempts of a batch that are not in left.
func withoutAttempts(batch, left []store.Attempt) []store.Attempt {
	among := make(map[store.Key]bool, len(left))
	for _, a := range left {
		among[a.Delivery.Key()] = true
	}
	return slices.DeleteFunc(slices.Clone(batch), func(a store.Attempt) bool { return among[a.Delivery.Key()] })
}

// releaseCapacity removes recorded deliveries, which frees capacity.
func (s *Sender) releaseCapacity(batch []store.Attempt) {
	s.mutex.Lock()
	s.underWay -= len(batch)
	for _, a := range batch {
		project := a.Delivery.ProjectID
		if s.byProject[project]--; s.byProject[project] == 0 {
			delete(s.byProject, project)
		}
		connector := a.Delivery.Connector()
		if l := s.connectors[connector]; l.held == 1 {
			delete(s.connectors, connector)
		} else {
			l.held--
		}
	}
	s.mutex.Unlock()
	notifyLoop(s.claimable)
}
