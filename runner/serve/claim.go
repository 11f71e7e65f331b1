// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

// errLost is the cause of runs whose claim is no longer this runner's.
var errLost = errors.New("claim was lost")

// claim is a run that this runner holds.
type claim struct {
	run dispatchapi.Run
	// ctx ends with the claim, and when runs are cut off.
	ctx context.Context //nolint:containedctx // the claim's own life
	end context.CancelCauseFunc

	arrived time.Time

	mu        sync.Mutex
	test      string        // the A/B variant that executes the run
	until     time.Time     // the lease, by this process's clock
	known     bool          // it was confirmed once
	confirmed chan struct{} // closed and replaced by each confirmation
	ask       func()
}

func newClaim(ctx context.Context, run dispatchapi.Run, askHeartbeat func()) *claim {
	now := time.Now()
	c := &claim{run: run, test: run.TestName, ask: askHeartbeat, arrived: now, confirmed: make(chan struct{}), until: now.Add(seconds(run.LeaseSeconds))}
	c.ctx, c.end = context.WithCancelCause(ctx)
	return c
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (c *claim) lease() dispatchapi.Lease {
	return dispatchapi.Lease{RunID: c.run.ID, Token: c.run.Token}
}

// held is the claim as a heartbeat names it.
func (c *claim) held() dispatchapi.Held {
	return dispatchapi.Held{Lease: c.lease(), TestName: c.testName()}
}

// executedBy notes which A/B variant executes the run.
func (c *claim) executedBy(test string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.test = test
}

// testName is the A/B variant that executes the run, "" while none is chosen.
func (c *claim) testName() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.test
}

// lost says that the claim is another's by now.
func (c *claim) lost() bool { return errors.Is(context.Cause(c.ctx), errLost) }

// confirm extends the lease.
func (c *claim) confirm(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until, c.known = until, true
	close(c.confirmed)
	c.confirmed = make(chan struct{})
}

// fresh says that the claim was not confirmed yet: its lease is short.
func (c *claim) fresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.known
}

// gate waits until the lease is confirmed; an error when the claim ends first.
func (c *claim) gate(ctx context.Context) error {
	for {
		if cause := context.Cause(c.ctx); cause != nil {
			return cause
		}
		c.mu.Lock()
		held, confirmed := time.Now().Before(c.until), c.confirmed
		c.mu.Unlock()
		if held {
			return nil
		}
		c.ask()
		select {
		case <-confirmed:
		case <-c.ctx.Done():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// age is how long ago the run's first attempt began: up to the claim by the database's
// clock, from then on by this process's.
func (c *claim) age() time.Duration {
	since := time.Since(c.arrived)
	if c.run.StartedAt.IsZero() || c.run.Now.IsZero() {
		return since
	}
	return since + max(0, c.run.Now.Sub(c.run.StartedAt))
}
