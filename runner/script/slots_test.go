// SPDX-License-Identifier: Apache-2.0

package script

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// isGranted reports whether a script got a slot since the last call.
func (s *slot) isGranted() bool {
	select {
	case <-s.granted:
		return true
	default:
		return false
	}
}

// testLimits are limits of a pool with two slots.
var testLimits = slotLimits{computing: 2, children: 8, memory: 200, each: 100}

// grantedRuns returns the runs of the scripts that got a slot, in their order. Each script ends at once.
func grantedRuns(q *slotQueue, scripts ...*slot) string {
	var order []string
	for {
		at := slices.IndexFunc(scripts, (*slot).isGranted)
		if at < 0 {
			return strings.Join(order, " ")
		}
		s := scripts[at]
		order = append(order, s.run.id)
		scripts = slices.Delete(scripts, at, at+1)
		q.releaseSlot(s)
	}
}

// Runs take turns, so a run with many scripts does not delay a run with one.
func TestSlotQueue_TakesTurns(t *testing.T) {
	t.Parallel()
	q := newSlotQueue(slotLimits{computing: 1, children: 8, memory: 100, each: 100})
	var scripts []*slot
	for _, run := range []string{"a", "a", "a", "a", "b", "c", "b"} {
		scripts = append(scripts, q.requestSlot(run))
	}
	require.Equal(t, "a a b c a b a", grantedRuns(q, scripts...))
	require.Empty(t, q.runs)
	require.Zero(t, q.held)
}

// A run leaves a slot for other runs, and half of the children.
func TestSlotQueue_LimitsRuns(t *testing.T) {
	t.Parallel()
	limits := testLimits
	limits.memory = 400
	q := newSlotQueue(limits)
	first, second := q.requestSlot("a"), q.requestSlot("a")
	require.True(t, first.isGranted())
	require.False(t, second.isGranted(), "the run has a slot")
	other := q.requestSlot("b")
	require.True(t, other.isGranted())

	q.pauseScript(first, 1)
	require.True(t, second.isGranted(), "a script that waits needs no slot")
	q.pauseScript(second, 1)
	third, fourth := q.requestSlot("a"), q.requestSlot("a")
	require.True(t, third.isGranted())
	q.pauseScript(third, 1)
	require.True(t, fourth.isGranted())
	q.pauseScript(fourth, 1)
	fifth := q.requestSlot("a")
	require.False(t, fifth.isGranted(), "the run has half of the children")
	q.releaseSlot(other)
	last := q.requestSlot("c")
	require.True(t, last.isGranted())
	q.releaseSlot(third)
	require.True(t, fifth.isGranted())
}

// Scripts that wait count with the memory that they have, and a script that computes with the most that it can use.
func TestSlotQueue_BoundsMemory(t *testing.T) {
	t.Parallel()
	q := newSlotQueue(testLimits)
	large, small := q.requestSlot("a"), q.requestSlot("b")
	require.True(t, large.isGranted() && small.isGranted())
	q.pauseScript(large, 90)
	q.pauseScript(small, 20)
	require.Equal(t, uint64(90), q.spareMemory())
	begun := q.requestSlot("c")
	require.False(t, begun.isGranted(), "110 of 200 are used")
	q.resumeScript(small)
	require.True(t, small.isGranted(), "no script computes, and it is the next that fits")
	require.Equal(t, uint64(190), q.held)
	q.resumeScript(large)
	require.False(t, large.isGranted())
	q.releaseSlot(small)
	require.True(t, large.isGranted())
	q.releaseSlot(large)
	require.True(t, begun.isGranted())
	q.pauseScript(begun, 1000)
	require.Equal(t, uint64(100), q.held, "a script has no more than its limit")
}

// A new script does not wait for scripts that keep computing for short times.
func TestSlotQueue_KeepsTurnOfNewScripts(t *testing.T) {
	t.Parallel()
	q := newSlotQueue(testLimits)
	busy := []*slot{q.requestSlot("a"), q.requestSlot("b")}
	for _, s := range busy {
		require.True(t, s.isGranted())
		q.pauseScript(s, 40)
	}
	q.resumeScript(busy[0])
	require.True(t, busy[0].isGranted())
	begun := q.requestSlot("c")
	q.resumeScript(busy[1])
	require.False(t, busy[1].isGranted(), "it would fit, but it is the other run's turn")
	q.pauseScript(busy[0], 40)
	require.True(t, begun.isGranted())
}

// Whatever scripts do, limits hold and each script ends.
func TestSlotQueue_NeverBlocks(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		limits := slotLimits{children: 1 + random.IntN(12), each: 100}
		limits.computing = 1 + random.IntN(min(3, limits.children))
		limits.memory = limits.each*uint64(limits.computing) + uint64(random.IntN(100))
		q, left := newSlotQueue(limits), map[*slot]int{}
		for range 40 {
			left[q.requestSlot(string(rune('a'+random.IntN(4))))] = random.IntN(6)
		}
		for steps := 0; len(left) > 0; steps++ {
			require.Less(t, steps, 10_000, "seed %d: no progress", seed)
			stepScripts(q, left, random)
			requireLimits(t, q)
		}
		require.Empty(t, q.runs)
		require.Zero(t, q.held)
	}
}

// stepScripts lets each script take its next step with some probability. left has the requests that scripts still send.
func stepScripts(q *slotQueue, left map[*slot]int, random *rand.Rand) {
	for s, requests := range left {
		s.isGranted()
		switch {
		case random.IntN(2) == 0:
		case s.state == slotWaiting:
			q.resumeScript(s)
		case s.state == slotComputing && requests > 0:
			left[s]--
			q.pauseScript(s, uint64(random.IntN(130)))
		case s.state == slotComputing || random.IntN(50) == 0: // It ends, or its context does.
			q.releaseSlot(s)
			delete(left, s)
		}
	}
}

func requireLimits(t *testing.T, q *slotQueue) {
	require.LessOrEqual(t, q.computing, q.limits.computing)
	require.LessOrEqual(t, q.children, q.limits.children)
	require.LessOrEqual(t, q.held, q.limits.memory)
	for _, run := range q.runs {
		require.LessOrEqual(t, run.computing, q.limits.computingOfRun())
		require.LessOrEqual(t, run.children, q.limits.childrenOfRun())
	}
}

// poolWithSlot returns a pool with one slot.
func poolWithSlot(t *testing.T) *Pool {
	pool := newPool(t, Options{MaxChildren: 8})
	pool.measure = func(int) uint64 { return 1 }
	pool.slots = newSlotQueue(slotLimits{computing: 1, children: 8, memory: 100, each: 50})
	return pool
}

// A script that waits for its host leaves its slot to other scripts.
func TestPool_ReleasesSlotsOfWaitingScripts(t *testing.T) {
	t.Parallel()
	const calls = 4
	pool := poolWithSlot(t)
	var all, group sync.WaitGroup // All scripts wait at the same time.
	all.Add(calls)
	host := hostFunc(func(context.Context, Request) (json.RawMessage, error) {
		all.Done()
		all.Wait()
		return json.RawMessage(`1`), nil
	})
	for range calls {
		group.Go(func() {
			result, err := pool.Run(t.Context(), callOn(body("sleep(1)", "return 7"), ""), host)
			require.NoError(t, err)
			require.Equal(t, "7", string(result.Value))
		})
	}
	group.Wait()
	require.Zero(t, pool.slots.held)
}

// The wait for a slot is not part of the limits of a script. A script gives up its request with its context.
func TestPool_DoesNotCountTimeInQueue(t *testing.T) {
	t.Parallel()
	pool, clock := poolWithSlot(t), new(manualClock)
	pool.clock.now, pool.clock.after = clock.now, clock.after
	call := callOn(body("sleep(1)", "return 1"), "")
	call.Limits = LimitsOf(bundle.OwnerTool)
	call.Limits.TotalTime = time.Second
	var other *slot
	host := hostFunc(func(context.Context, Request) (json.RawMessage, error) {
		pool.mu.Lock()
		other = pool.slots.requestSlot("other")
		pool.mu.Unlock()
		go func() {
			for { // until the script waits for its slot
				pool.mu.Lock()
				waits := len(pool.slots.turns) > 0
				pool.mu.Unlock()
				if waits {
					break
				}
			}
			clock.advance(time.Hour)
			pool.releaseSlot(other)
		}()
		return json.RawMessage(`1`), nil
	})
	_, err := pool.Run(t.Context(), call, host)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	_, err = pool.Run(ctx, callOn(body("sleep(1)"), ""), hostFunc(func(context.Context, Request) (json.RawMessage, error) {
		pool.mu.Lock()
		other = pool.slots.requestSlot("other")
		pool.mu.Unlock()
		cancel()
		return json.RawMessage(`1`), nil
	}))
	require.ErrorIs(t, err, context.Canceled)
	pool.releaseSlot(other)
	require.Zero(t, pool.slots.held)
}

// Idle children end if scripts need their memory.
func TestPool_EndsIdleChildrenForMemory(t *testing.T) {
	t.Parallel()
	pool := poolWithSlot(t)
	pool.measure = func(int) uint64 { return 40 }
	_, err := pool.Run(t.Context(), callOn(body("return 1"), ""), nil)
	require.NoError(t, err)
	require.Len(t, pool.pids(), 1)
	pool.mu.Lock()
	pool.trimIdle()
	require.Len(t, pool.idle, 1, "40 of 100 fit")
	pool.slots.held = 61
	pool.trimIdle()
	require.Empty(t, pool.idle)
	pool.slots.held = 0
	pool.mu.Unlock()
}
