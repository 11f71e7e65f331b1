// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// looksEvery is the least time between two looks at a hinted pool, however many hints
	// come.
	looksEvery = 200 * time.Millisecond
	// looksAgain is when a look that failed is repeated.
	looksAgain = 2 * time.Second
	// queuesAtOnce is how many pools are looked at at a time, and queuesParts how many parts of
	// that there are, of which a project has one: who has much to count waits for itself.
	queuesAtOnce, queuesParts = 8, 4
	// lookTime bounds one look.
	lookTime = 5 * time.Second
)

// Scaler looks at what pools are asked for, as hints say, and hands environments to their
// reconciler whose pools are to have other replicas. Each is looked at by itself.
type Scaler struct {
	Store store.Demands
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
	var looks sync.WaitGroup
	defer looks.Wait()
	places := quota.NewBudget(queuesAtOnce, queuesParts, math.MaxInt, 0)
	resting := true
	for ctx.Err() == nil {
		if !resting && s.Pools.waits() {
			for _, key := range s.Pools.take(s.Clock.Now()) {
				looks.Go(func() { s.lookInTurn(ctx, places, key) })
			}
			rested.Reset(looksEvery)
			resting = true
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

// lookInTurn looks at a pool when there is a place for its project.
func (s *Scaler) lookInTurn(ctx context.Context, places *quota.Budget, key store.Key) {
	place, err := places.Wait(ctx, key.ProjectID, 1)
	if err != nil {
		return // the process ends
	}
	defer place.End()
	if err := s.Look(ctx, key); err != nil && ctx.Err() == nil {
		s.Logger.ErrorContext(ctx, "looking at the queue of a runner pool; it stays as it is", "environment", key, "error", err)
	}
}

// Look looks at the pool of an environment that was taken.
func (s *Scaler) Look(ctx context.Context, key store.Key) error {
	within, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	demand, err := s.Store.Demand(within, key, s.Pools.enough(key))
	if err != nil {
		s.Pools.again(key, s.Clock.Now())
		return err
	}
	name, changed := s.Pools.looked(s.Clock.Now(), key, demand)
	if s.Metrics != nil {
		s.Metrics.PoolsScaled(s.Pools.figures())
	}
	if !changed {
		return nil
	}
	e := &v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	select {
	case s.Pools.changed <- event.GenericEvent{Object: e}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
