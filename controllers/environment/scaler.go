// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// looksEvery is the least time between two looks at the queues of hinted pools, however
	// many hints come: of all of them, not of each.
	looksEvery = 200 * time.Millisecond
	// looksAgain is when a look that failed is repeated.
	looksAgain = 2 * time.Second
)

// Scaler looks at what pools are asked for, as hints say, and hands environments to their
// reconciler whose pools are to have other replicas. All pools together cost a statement a look.
type Scaler struct {
	Store interface {
		Demands(ctx context.Context, environments []store.Key) (map[store.Key]store.Demand, error)
	}
	Hints store.Notifier
	Pools *Pools
	Clock clock.Clock
	// Metrics are told of the figures; nil tells nobody.
	Metrics *metrics.Manager
	Logger  *slog.Logger
}

// NeedLeaderElection says that only the leader scales.
func (s *Scaler) NeedLeaderElection() bool { return true }

// Start scales until ctx ends.
func (s *Scaler) Start(ctx context.Context) error {
	queued, stopQueued := s.Hints.Subscribe(store.TopicQueued)
	defer stopQueued()
	freed, stopFreed := s.Hints.Subscribe(store.TopicFreed)
	defer stopFreed()
	polled := s.Clock.NewTimer(pollingInterval)
	defer polled.Stop()
	rested := s.Clock.NewTimer(0)
	defer rested.Stop()
	resting := true
	for ctx.Err() == nil {
		if !resting {
			if keys := s.Pools.take(); len(keys) > 0 {
				rested.Reset(s.look(ctx, keys))
				resting = true
			}
		}
		select {
		case <-ctx.Done():
		case <-rested.C():
			resting = false
		case <-s.Pools.fresh:
		case hint, ok := <-queued:
			if !ok {
				queued = nil // the store is closed, and so will this be
			}
			s.Pools.hinted(hint)
		case hint, ok := <-freed:
			if !ok {
				freed = nil
			}
			s.Pools.hinted(hint)
		case <-polled.C():
			s.Pools.hinted(store.Hint{Topic: store.TopicQueued})
			polled.Reset(pollingInterval)
		}
	}
	return nil
}

// look looks at the pools of these environments, and returns how long none is looked at
// after it.
func (s *Scaler) look(ctx context.Context, keys []store.Key) time.Duration {
	if err := s.Look(ctx, keys); err != nil {
		if ctx.Err() == nil {
			s.Logger.ErrorContext(ctx, "looking at the queues of runner pools; they stay as they are", "error", err)
		}
		s.Pools.again(keys)
		return looksAgain
	}
	return looksEvery
}

// Look looks at the pools of these environments.
func (s *Scaler) Look(ctx context.Context, keys []store.Key) error {
	demands, err := s.Store.Demands(ctx, keys)
	if err != nil {
		return err
	}
	changed := s.Pools.looked(s.Clock.Now(), keys, demands)
	if s.Metrics != nil {
		s.Metrics.PoolsScaled(s.Pools.figures())
	}
	for _, name := range changed {
		e := &v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
		select {
		case s.Pools.changed <- event.GenericEvent{Object: e}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
