// SPDX-License-Identifier: Apache-2.0

package runnerpool

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
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// checkInterval is the minimum time between two checks of a pool after notifications.
	checkInterval = 200 * time.Millisecond
	// checkRetryInterval is the retry interval of a failed check.
	checkRetryInterval = 2 * time.Second
	// maxConcurrentChecks is the number of concurrent checks. checkShares is the number of shares of it. A
	// project has one share, so that a large queue delays only its own project.
	maxConcurrentChecks, checkShares = 8, 4
	// checkTimeout is the timeout of a check.
	checkTimeout = 5 * time.Second
)

// Scaler checks the demand of pools after notifications, and queues the environments whose desired
// replicas changed. It checks each pool separately.
type Scaler struct {
	Store store.Demands
	Hints store.Notifier
	Pools *Pools
	Clock clock.Clock
	// Changed receives the environments whose desired replicas changed.
	Changed chan<- event.GenericEvent
	// Metrics receives the totals. If nil, nothing is recorded.
	Metrics *metrics.Manager
	Logger  *slog.Logger
}

// NeedLeaderElection reports true: only the leader scales.
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
	budget := quota.NewBudget(maxConcurrentChecks, checkShares, math.MaxInt, 0)
	resting := true
	for ctx.Err() == nil {
		if !resting && s.Pools.hasDuePool() {
			for _, key := range s.Pools.takeDue(s.Clock.Now()) {
				looks.Go(func() { s.awaitAndCheck(ctx, budget, key) })
			}
			rested.Reset(checkInterval)
			resting = true
		}
		select {
		case <-ctx.Done():
		case <-rested.C():
			resting = false
		case <-s.Pools.dueAdded:
		case hint, ok := <-queued:
			if !ok {
				queued = nil // the store is closed, and freed will be closed too
			}
			s.Pools.handleHint(hint)
		case hint, ok := <-freed:
			if !ok {
				freed = nil
			}
			s.Pools.handleHint(hint)
		case <-polled.C():
			s.Pools.handleHint(store.Hint{Topic: store.TopicQueued})
			polled.Reset(pollingInterval)
		}
	}
	return nil
}

// awaitAndCheck checks a pool when its project has a slot.
func (s *Scaler) awaitAndCheck(ctx context.Context, budget *quota.Budget, key store.Key) {
	grant, err := budget.Wait(ctx, key.ProjectID, 1)
	if err != nil {
		return // the process ends
	}
	defer grant.End()
	if err := s.checkPool(ctx, key); err != nil && ctx.Err() == nil {
		s.Logger.ErrorContext(ctx, "reading the demand of a runner pool; its size stays unchanged", "environment", key, "error", err)
	}
}

// checkPool checks the pool of an environment that takeDue returned.
func (s *Scaler) checkPool(ctx context.Context, key store.Key) error {
	within, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	demand, err := s.Store.Demand(within, key, s.Pools.demandLimit(key))
	if err != nil {
		s.Pools.retryCheck(key, s.Clock.Now())
		return err
	}
	name, changed := s.Pools.recordDemand(s.Clock.Now(), key, demand)
	if s.Metrics != nil {
		s.Metrics.PoolsScaled(s.Pools.totals())
	}
	if !changed {
		return nil
	}
	return base.Queue(ctx, s.Changed, &v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}})
}
