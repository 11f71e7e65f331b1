// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/store"
)

// record has attempts recorded, with those that end meanwhile: who comes while others
// are being recorded leaves its own to these.
func (s *Sender) record(attempts ...store.Attempt) {
	s.mutex.Lock()
	s.done = append(s.done, attempts...)
	if s.recording {
		s.mutex.Unlock()
		return
	}
	s.recording = true
	s.mutex.Unlock()
	for {
		s.mutex.Lock()
		batch := s.done
		s.done = nil
		if len(batch) == 0 {
			s.recording = false
			s.mutex.Unlock()
			return
		}
		s.mutex.Unlock()
		s.store(batch)
		s.leave(batch)
	}
}

// store records attempts. What cannot be recorded is lost: its deliveries are due again
// when their claims end.
func (s *Sender) store(batch []store.Attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	for try := range 3 {
		err := s.opts.Store.RecordAttempts(ctx, batch)
		if err == nil {
			for _, a := range batch {
				s.opts.Metrics.DeliveryEnded(a.Outcome.String())
			}
			return
		}
		s.opts.Logger.Error("recording attempts to deliver", "attempts", len(batch), "error", err)
		if errors.Is(err, context.DeadlineExceeded) || pause.For(ctx, time.Second<<try) != nil {
			return
		}
	}
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
