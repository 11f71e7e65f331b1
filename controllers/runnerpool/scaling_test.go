// SPDX-License-Identifier: Apache-2.0

package runnerpool

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/agentplatform/agentplatform/store"
)

var atFirst = time.Unix(1_800_000_000, 0)

func waiting(all, lower int) store.Demand {
	return store.Demand{Waiting: store.Runs{All: all, Lower: lower}}
}

func underWay(all, lower int) store.Demand {
	return store.Demand{Running: store.Runs{All: all, Lower: lower}}
}

func TestDesiredReplicas_CoverOpenRuns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bounds
		demand store.Demand
		want   int32
	}{
		"no open run":                                   {bounds{0, 5, 10}, store.Demand{}, 0},
		"no open run, minimum of two":                   {bounds{2, 5, 10}, store.Demand{}, 2},
		"one waiting run":                               {bounds{0, 5, 10}, waiting(1, 1), 1},
		"one waiting sync run":                          {bounds{0, 5, 10}, waiting(1, 0), 1},
		"one running run":                               {bounds{0, 5, 10}, underWay(1, 1), 1},
		"one runner with all slots in use":              {bounds{0, 5, 10}, underWay(10, 0), 1},
		"one run more than a runner has slots":          {bounds{0, 5, 10}, store.Demand{Running: store.Runs{All: 10}, Waiting: store.Runs{All: 1}}, 2},
		"lower classes fill all but the reserved slots": {bounds{0, 5, 10}, waiting(8, 8), 1},
		"lower classes need a reserved slot":            {bounds{0, 5, 10}, waiting(9, 9), 2},
		"a pool of one slot reserves none":              {bounds{0, 5, 1}, waiting(1, 1), 1},
		"a pool of two slots reserves one":              {bounds{0, 5, 1}, waiting(2, 2), 3},
		"more runs than the maximum pool has slots":     {bounds{0, 5, 10}, waiting(1000, 1000), 5},
		"more runs than the minimum pool has slots":     {bounds{2, 5, 10}, waiting(30, 0), 3},
		"minimum equals maximum":                        {bounds{3, 3, 10}, waiting(1000, 0), 3},
		"running and waiting runs are added":            {bounds{0, 9, 10}, store.Demand{Running: store.Runs{All: 15, Lower: 5}, Waiting: store.Runs{All: 6, Lower: 6}}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, c.desiredReplicas(c.demand.Open()))
		})
	}
}

// TestScaling_FollowsDemand checks pools every 30 seconds and after notifications.
func TestScaling_FollowsDemand(t *testing.T) {
	t.Parallel()
	type look struct {
		after  time.Duration
		demand store.Demand
		used   bool
		want   int32
		// blind means that there was no check before.
		blind bool
	}
	busy, idle := waiting(25, 0), store.Demand{}
	for name, c := range map[string]struct {
		bounds
		begins int32
		looks  []look
	}{
		"up at once, down to the most of the window": {bounds{0, 5, 10}, 0, []look{
			{0, waiting(1, 1), false, 1, false}, {time.Second, busy, false, 3, false}, {time.Minute, underWay(15, 0), false, 3, false},
			{4*time.Minute - time.Second, underWay(1, 0), false, 3, false}, {time.Second, idle, false, 2, false}, {time.Minute, idle, false, 1, false},
			{4*time.Minute - 2*time.Second, idle, false, 1, false}, {time.Second, idle, false, 0, false},
		}},
		"to zero after a window without a run": {bounds{0, 5, 10}, 1, []look{
			{0, underWay(1, 1), false, 1, false}, {5*time.Minute - 1, idle, false, 1, false}, {1, idle, false, 0, false},
			{time.Hour, idle, false, 0, false}, {1, waiting(1, 1), false, 1, false},
		}},
		"a new manager keeps the pods for a window": {bounds{0, 5, 10}, 4, []look{
			{5*time.Minute - 1, underWay(1, 1), false, 4, false}, {1, underWay(1, 1), false, 1, false},
		}},
		"an unmeasured time counts as busy": {bounds{0, 5, 10}, 2, []look{
			{0, idle, false, 2, false}, {time.Hour, idle, false, 2, true}, {5*time.Minute - 1, idle, false, 2, false}, {1, idle, false, 0, false},
		}},
		"runs that end between two looks keep a runner": {bounds{0, 5, 10}, 1, []look{
			{4 * time.Minute, idle, true, 1, false}, {4 * time.Minute, idle, true, 1, false}, {5*time.Minute - 1, idle, false, 1, false}, {1, idle, false, 0, false},
		}},
		"never above the maximum": {bounds{1, 2, 10}, 7, []look{{0, busy, false, 2, false}, {time.Second, idle, false, 2, false}}},
		"never below the minimum": {bounds{2, 4, 10}, 0, []look{{0, idle, false, 2, false}}},
	} {
		t.Run(name, func(t *testing.T) {
			now, s := atFirst, newScaling(c.bounds, DefaultStabilizationWindow, c.begins, atFirst)
			for i, l := range c.looks {
				at := now.Add(l.after)
				for now = now.Add(pollingInterval); now.Before(at) && !l.blind; now = now.Add(pollingInterval) {
					s = s.afterCheck(now, l.demand)
				}
				now, s.runEnded = at, l.used
				s = s.afterCheck(now, l.demand)
				require.Equal(t, l.want, s.replicas, "look %d", i)
			}
		})
	}
}

func TestScaling_AppliesNewBoundsAtOnce(t *testing.T) {
	t.Parallel()
	s := newScaling(bounds{0, 9, 10}, DefaultStabilizationWindow, 0, atFirst).afterCheck(atFirst, waiting(50, 0))
	require.EqualValues(t, 5, s.replicas)
	require.EqualValues(t, 2, s.withBounds(bounds{0, 2, 10}).replicas)
	require.EqualValues(t, 7, s.withBounds(bounds{7, 9, 10}).replicas)
	require.False(t, s.isLimited())
	require.True(t, s.withBounds(bounds{0, 2, 10}).isLimited())
}

// Whatever the demand and the times of checks, a pool keeps its bounds and has slots for all open runs.
// It is at zero only after a window without open runs, and never below the maximum of the window.
func TestScaling_KeepsInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := bounds{min: rapid.Int32Range(0, 4).Draw(t, "min"), concurrency: rapid.Int32Range(1, 12).Draw(t, "concurrency")}
		b.max = max(b.min, rapid.Int32Range(1, 8).Draw(t, "max"))
		now := atFirst
		s := newScaling(b, DefaultStabilizationWindow, rapid.Int32Range(0, 10).Draw(t, "replicas"), now)
		type seen struct {
			at     time.Time
			needed int32
		}
		needed := []seen{{now, s.replicas}}
		for range rapid.IntRange(1, 60).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "seconds")) * time.Second)
			all := rapid.SampledFrom([]int{0, 0, 0, 1, 5, 20, 200}).Draw(t, "open")
			lower := rapid.IntRange(0, all).Draw(t, "lower")
			running := rapid.IntRange(0, all).Draw(t, "running")
			d := store.Demand{Running: store.Runs{All: running, Lower: min(lower, running)}}
			d.Waiting = store.Runs{All: all - running, Lower: lower - d.Running.Lower}
			s.runEnded = rapid.Bool().Draw(t, "used")
			was, used := s.replicas, s.runEnded
			s = s.afterCheck(now, d)

			require.GreaterOrEqual(t, s.replicas, b.min)
			require.LessOrEqual(t, s.replicas, b.max)
			if all > 0 || used {
				require.Positive(t, s.replicas, "something is open")
			}
			slots := int(s.replicas * b.concurrency)
			require.True(t, slots >= all || s.replicas == b.max, "the pool has slots for all open runs")
			require.GreaterOrEqual(t, slots, min(running, int(b.max*b.concurrency)), "no running run loses its slot")
			one := int32(0)
			if all > 0 || used {
				one = 1
			}
			needed = append(needed, seen{now, max(one, min(b.max, int32((all+int(b.concurrency)-1)/int(b.concurrency))))})
			for _, n := range needed {
				if now.Sub(n.at) < DefaultStabilizationWindow {
					require.GreaterOrEqual(t, s.replicas, min(n.needed, b.max), "as many were needed a moment ago")
				}
			}
			if s.replicas > was {
				require.Positive(t, all+int(b.min)+int(one), "it grows for a reason")
			}
		}
	})
}

func TestPools_FollowNotifications(t *testing.T) {
	t.Parallel()
	p, key := NewPools(0), store.Key{ProjectID: uuid.New(), ID: uuid.New()}
	name, other := types.NamespacedName{Namespace: "support", Name: "dev"}, store.Key{ProjectID: key.ProjectID, ID: uuid.New()}
	b := bounds{0, 3, 10}
	require.Zero(t, p.replicas(name, key, b, 0, atFirst).replicas)
	require.Len(t, p.dueAdded, 1)
	require.Equal(t, []store.Key{key}, p.takeDue(atFirst), "a new one is looked at")
	require.Equal(t, 31, p.demandLimit(key), "one run more than the maximum pool has slots")
	require.False(t, p.hasDuePool())
	p.handleHint(store.Hint{Topic: store.TopicQueued, Key: key})
	require.True(t, p.hasDuePool())
	require.Empty(t, p.takeDue(atFirst), "somebody looks at it already")
	_, changed := p.recordDemand(atFirst, key, store.Demand{})
	require.False(t, changed)
	require.Equal(t, []store.Key{key}, p.takeDue(atFirst), "something was queued meanwhile")
	_, _ = p.recordDemand(atFirst, key, store.Demand{})

	p.handleHint(store.Hint{Topic: store.TopicQueued, Key: other})
	require.False(t, p.hasDuePool(), "it does not scale")
	p.handleHint(store.Hint{Topic: store.TopicFreed, Key: key})
	require.False(t, p.hasDuePool(), "a run that ends asks for nothing")
	require.True(t, p.pools[name].runEnded)
	p.handleHint(store.Hint{Topic: store.TopicQueued})
	require.Equal(t, []store.Key{key}, p.takeDue(atFirst), "hints may have been lost")
	p.retryCheck(other, atFirst)
	p.retryCheck(key, atFirst)
	require.Empty(t, p.takeDue(atFirst.Add(checkRetryInterval-1)), "it could not be looked at a moment ago")
	later := atFirst.Add(checkRetryInterval)
	require.Equal(t, []store.Key{key}, p.takeDue(later))

	pool, changed := p.recordDemand(later, key, waiting(99, 99))
	require.True(t, changed)
	require.Equal(t, name, pool)
	_, changed = p.recordDemand(later, other, waiting(9, 9))
	require.False(t, changed)
	require.EqualValues(t, 3, p.replicas(name, key, b, 0, later).replicas)
	_, changed = p.recordDemand(later, key, waiting(99, 99))
	require.False(t, changed, "the reconciler knows")
	replicas, limited := p.totals()
	require.Equal(t, [2]int{3, 1}, [2]int{replicas, limited})
	require.EqualValues(t, 2, p.replicas(name, key, bounds{0, 2, 10}, 3, later).replicas)
	require.Equal(t, []store.Key{key}, p.takeDue(later), "its bounds have changed")

	p.forgetPool(name)
	_, changed = p.recordDemand(later, key, store.Demand{})
	require.False(t, changed)
	require.Zero(t, p.demandLimit(key))
	require.Equal(t, [3]int{}, [3]int{len(p.pools), len(p.names), len(p.due)})
	require.Zero(t, p.replicas(name, other, b, 0, later).replicas, "another object of the name")
	p.replicas(name, key, b, 0, later)
	require.Len(t, p.names, 1)
}

// slowStore responds late for some environments.
type slowStore struct {
	slow    map[store.Key]bool
	looked  chan store.Key
	answers chan struct{}
}

// Demand implements store.Demands.
func (s *slowStore) Demand(ctx context.Context, environment store.Key, _ int) (store.Demand, error) {
	if s.slow[environment] {
		select {
		case <-s.answers:
		case <-ctx.Done():
			return store.Demand{}, context.Cause(ctx)
		}
	}
	s.looked <- environment
	return store.Demand{}, nil
}

// noHints sends no notifications.
type noHints struct{}

// Subscribe implements store.Notifier.
func (noHints) Subscribe(store.Topic) (<-chan store.Hint, func()) {
	return make(chan store.Hint), func() {}
}

// FollowRun implements store.Notifier.
func (noHints) FollowRun(store.Key) {}

// Slow queries of one project do not delay the checks of other projects.
func TestScaler_SlowProjectDelaysOnlyItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{slow: map[store.Key]bool{}, looked: make(chan store.Key, 100), answers: make(chan struct{})}
		scaler := &Scaler{Store: s, Hints: noHints{}, Pools: NewPools(0), Clock: clock.RealClock{}, Logger: slog.New(slog.DiscardHandler)}
		add := func(project uuid.UUID, name string) store.Key {
			key := store.Key{ProjectID: project, ID: uuid.New()}
			scaler.Pools.replicas(types.NamespacedName{Namespace: project.String(), Name: name}, key, bounds{0, 3, 10}, 0, time.Now())
			return key
		}
		slow := uuid.New()
		for i := range 2 * maxConcurrentChecks {
			s.slow[add(slow, strconv.Itoa(i))] = true
		}
		var others []store.Key
		for range 10 {
			others = append(others, add(uuid.New(), "production"))
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- scaler.Start(ctx) }()
		seen := func() (keys []store.Key) {
			for len(s.looked) > 0 {
				keys = append(keys, <-s.looked)
			}
			return keys
		}
		time.Sleep(checkInterval)
		synctest.Wait()
		require.ElementsMatch(t, others, seen())
		time.Sleep(pollingInterval)
		synctest.Wait()
		require.ElementsMatch(t, others, seen(), "and again, while no look at the others has come to an end in time")
		close(s.answers)
		time.Sleep(pollingInterval)
		synctest.Wait()
		require.Subset(t, seen(), slices.Collect(maps.Keys(s.slow)), "they are, when they can be")
		stop()
		require.NoError(t, <-ended)
	})
}

func TestScaledEvent_DescribesChange(t *testing.T) {
	t.Parallel()
	of := func(replicas int32, d store.Demand) scaling {
		return scaling{window: 30 * time.Second, replicas: replicas, demand: d}
	}
	d := store.Demand{Running: store.Runs{All: 10}, Waiting: store.Runs{All: 3}, Oldest: 2100 * time.Millisecond}
	for _, c := range []struct {
		from   int32
		to     scaling
		reason string
		note   string
	}{
		{1, of(2, d), "ScaledUp", "scaled from 1 to 2 runners: 3 or more runs wait for a free slot, the oldest for 2s; 10 are running"},
		{0, of(2, store.Demand{}), "ScaledUp", "scaled from 0 to 2 runners: set by spec.runner"},
		{2, of(1, underWay(3, 0)), "ScaledDown", "scaled from 2 to 1 runners: fewer were needed for 30s"},
		{5, scaling{bounds: bounds{0, 2, 10}, recommended: recommendations{{atFirst, 5}}, replicas: 2}, "ScaledDown", "scaled from 5 to 2 runners: the maximum of spec.runner is lower"},
		{1, of(0, store.Demand{}), "ScaledDown", "scaled from 1 to 0 runners: no run for 30s"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			reason, note := scaledEvent(c.from, c.to)
			require.Equal(t, [2]string{c.reason, c.note}, [2]string{reason, note})
		})
	}
}
