// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
	"github.com/agentplatform/agentplatform/runner/serve"
)

// single configures a server with one slot and the default heartbeats.
func single(o *serve.Options) { o.Concurrency, o.Heartbeat = 1, 0 }

// last returns the latest claim request.
func (p *port) last() dispatchapi.ClaimRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[len(p.asked)-1]
}

// A full runner polls without claiming, and cancelled runs end immediately.
func TestClaims_FullRunnerEndsCancelledRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPort(t, repo())
		ended := make(chan error, 1)
		one := started(t, p, "one", func(ctx context.Context) error { <-ctx.Done(); ended <- context.Cause(ctx); return ctx.Err() }, single)
		run := p.queue("charger", "text/plain", "x")
		time.Sleep(time.Second)
		req := p.last()
		require.Zero(t, req.Limit)
		require.Equal(t, 1, req.Slots)
		require.Equal(t, 20, req.WaitSeconds)
		require.Equal(t, dispatchapi.Leases{{RunID: run, Token: 1}}, req.Holding)

		began := time.Now()
		p.set(func() { p.runs[run].status = "cancelled" })
		require.ErrorContains(t, <-ended, "claim was lost")
		synctest.Wait()
		require.Zero(t, time.Since(began))
		require.Equal(t, 1, p.last().Limit, "its slot is free")
		require.Empty(t, p.last().Holding)
		require.NoError(t, one.end(t))
		require.Zero(t, p.released)
	})
}

// The next run begins immediately, and the cancelled request is no failure.
func TestClaims_FreeSlotEndsRequestOfFullRunner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		registry := metrics.NewRegistry()
		p, finish := newPort(t, repo()), make(chan struct{})
		one := started(t, p, "one", func(context.Context) error { <-finish; return nil }, func(o *serve.Options) {
			single(o)
			o.Metrics = metrics.NewRunner(registry, nil, nil)
		})
		first, second := p.queue("charger", "text/plain", "x"), p.queue("charger", "text/plain", "x")
		time.Sleep(time.Second)
		require.Zero(t, p.last().Limit)
		began := time.Now()
		finish <- struct{}{}
		finish <- struct{}{}
		require.Equal(t, "charged", p.await(t, first).Output)
		require.Equal(t, "charged", p.await(t, second).Output)
		require.Zero(t, time.Since(began))
		require.NoError(t, one.end(t))
		require.Zero(t, metrictest.Of(t, registry).Value(t, "agentplatform_runner_polls_total", "outcome", "error"))
	})
}

// A full runner first waits for a slot to become free.
func TestClaims_FullRunnerWaitsForShortRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPort(t, repo())
		one := started(t, p, "one", func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }, single)
		for range 5 {
			p.await(t, p.queue("charger", "text/plain", "x"))
		}
		require.NoError(t, one.end(t))
		for _, req := range p.asked {
			require.True(t, req.Limit > 0 || req.Draining)
		}
		require.Empty(t, p.beats, "and is over before it is confirmed")
	})
}

// A busy runner asks again when a quarter of its slots is free, or after 10 ms with fewer. Then its runs take long, and it
// asks for each slot for a while.
func TestClaims_GatherFreeSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, finish := newPort(t, repo()), make(chan struct{})
		one := started(t, p, "one", func(context.Context) error { <-finish; return nil }, func(o *serve.Options) { o.Concurrency, o.Heartbeat = 8, 0 })
		synctest.Wait()
		end := func(runs int) (asked int) {
			before := look(p, func() int { return len(p.asked) })
			for range runs {
				finish <- struct{}{}
			}
			synctest.Wait()
			return look(p, func() int { return len(p.asked) }) - before
		}
		for range 20 {
			p.queue("charger", "text/plain", "x")
		}
		synctest.Wait()
		require.Zero(t, end(1))
		time.Sleep(serve.GatherTime - time.Millisecond)
		require.Zero(t, end(0))
		asked := look(p, func() int { return len(p.asked) })
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Equal(t, asked+1, look(p, func() int { return len(p.asked) }))
		require.Equal(t, 1, p.last().Limit)
		for range 3 {
			require.Equal(t, 1, end(1), "at once")
			require.Equal(t, 1, p.last().Limit)
		}
		time.Sleep(serve.GatherPause)
		require.Zero(t, end(1))
		require.Equal(t, 1, end(1), "at once")
		require.Equal(t, 2, p.last().Limit)
		close(finish)
		p.until(t, func() bool { return len(p.ends) == 20 })
		require.NoError(t, one.end(t))
	})
}

// Fresh claims are confirmed together within a quarter of a second, and then regularly.
func TestHeartbeat_ConfirmsFreshClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, finish := newPort(t, repo()), make(chan struct{})
		p.lease = 5
		one := started(t, p, "one", func(context.Context) error { <-finish; return nil }, func(o *serve.Options) { o.Heartbeat = 0 })
		synctest.Wait()
		beats := func() []dispatchapi.HeartbeatRequest {
			return look(p, func() []dispatchapi.HeartbeatRequest { return p.beats })
		}
		first := p.queue("charger", "text/plain", "x")
		time.Sleep(100 * time.Millisecond)
		second := p.queue("charger", "text/plain", "x")
		time.Sleep(149 * time.Millisecond)
		synctest.Wait()
		require.Empty(t, beats())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Len(t, beats(), 1)
		require.ElementsMatch(t, dispatchapi.HeldLeases{
			{Lease: dispatchapi.Lease{RunID: first, Token: 1}}, {Lease: dispatchapi.Lease{RunID: second, Token: 1}},
		}, beats()[0].Leases)
		time.Sleep(9999 * time.Millisecond)
		synctest.Wait()
		require.Len(t, beats(), 1)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Len(t, beats(), 2)
		close(finish)
		p.await(t, first)
		p.await(t, second)
		require.NoError(t, one.end(t))
	})
}

// The run begins once, with the same claim. The request after the lost response, and no other one
// during the run, reports the loss.
func TestClaims_StartRunAfterLostResponse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPort(t, repo())
		p.loseAnswers = 1
		one := started(t, p, "one", nil, single)
		run := p.queue("charger", "text/plain", "x")
		require.Equal(t, "charged", p.await(t, run).Output)
		require.Equal(t, 1, p.attempts(run))
		require.NoError(t, one.end(t))
		said := 0
		for i, req := range p.asked {
			if req.Unanswered && !req.Draining {
				said++
				require.NotZero(t, i)
			}
		}
		require.Equal(t, 1, said)
	})
}

// The runner knows its claims and does not loop because of a repeated response.
func TestClaims_StartRepeatedRunOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, finish := newPort(t, repo()), make(chan struct{})
		p.repeat = true
		var calls atomic.Int32
		one := started(t, p, "one", func(context.Context) error { calls.Add(1); <-finish; return nil }, func(o *serve.Options) { o.Heartbeat = 0 })
		run := p.queue("charger", "text/plain", "x")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 1, calls.Load())
		require.Less(t, look(p, func() int { return p.claims["one"] }), 15)
		close(finish)
		require.Equal(t, "charged", p.await(t, run).Output)
		require.NoError(t, one.end(t))
		require.EqualValues(t, 1, calls.Load())
	})
}

// Runs beyond the slots wait for a free slot. Runs beyond the claims in a heartbeat wait for the
// end of their lease.
func TestClaims_QueueRunsBeyondSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPort(t, repo())
		for range dispatchapi.MaxLeases + 5 {
			id := p.queue("charger", "text/plain", "x")
			p.set(func() {
				r := p.runs[id]
				r.status, r.runner, r.run.Token, r.run.BundleDigest = "running", "one", 7, p.digest
			})
		}
		var at, most atomic.Int32
		one := started(t, p, "one", func(ctx context.Context) error {
			most.Store(max(most.Load(), at.Add(1)))
			defer at.Add(-1)
			<-ctx.Done()
			return ctx.Err()
		}, func(o *serve.Options) { o.Concurrency, o.Heartbeat = 2, 0 })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		holding := len(p.last().Holding)
		require.Equal(t, dispatchapi.MaxLeases, holding)
		require.NoError(t, one.end(t))
		named := 0
		for _, beat := range p.beats {
			named = max(named, len(beat.Leases))
		}
		require.Equal(t, dispatchapi.MaxLeases, named)
		require.EqualValues(t, 2, most.Load())
	})
}

// A run that the cancelled request leased is released immediately. Open runs continue.
func TestDrain_ReleasesLostClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, finish := newPort(t, repo()), make(chan struct{})
		one := started(t, p, "one", func(context.Context) error { <-finish; return nil }, nil)
		working := p.queue("charger", "text/plain", "x")
		time.Sleep(time.Second)
		stranded := uuid.New()
		p.mu.Lock() // Without a wake-up: the response never arrives.
		p.runs[stranded] = &portRun{status: "running", runner: "one", run: dispatchapi.Run{ID: stranded, Token: 9}}
		p.mu.Unlock()
		one.stop()
		synctest.Wait()
		require.Equal(t, "queued", p.status(stranded))
		require.Equal(t, "running", p.status(working))
		req := p.last()
		require.True(t, req.Draining)
		require.Equal(t, dispatchapi.Leases{{RunID: working, Token: 1}}, req.Holding)
		require.Zero(t, req.Limit+req.Slots+req.WaitSeconds)
		close(finish)
		require.NoError(t, <-one.done)
	})
}

// deafPort never responds to a runner that drains.
type deafPort struct {
	*runnerPort
	farewells atomic.Int32
}

func (d *deafPort) Claim(ctx context.Context, req dispatchapi.ClaimRequest) (dispatchapi.ClaimResponse, error) {
	if req.Draining {
		d.farewells.Add(1)
		<-ctx.Done()
		return dispatchapi.ClaimResponse{}, ctx.Err()
	}
	return d.runnerPort.Claim(ctx, req)
}

// The runner tries three times for a second each and then ends.
func TestDrain_EndsWithoutResponse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deaf := &deafPort{runnerPort: newPort(t, repo()).as("one")}
		one := started(t, deaf.port, "one", nil, func(o *serve.Options) { o.Dispatch = deaf })
		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(t, one.end(t))
		require.EqualValues(t, 3, deaf.farewells.Load())
		require.Less(t, time.Since(began), 4*time.Second)
	})
}
