// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

// errLost is the cause for runs whose claim this runner has lost.
var errLost = errors.New("claim was lost")

// claim is a run that this runner has claimed.
type claim struct {
	run dispatchapi.Run
	// ctx ends with the claim, and when runs are cut off.
	ctx context.Context //nolint:containedctx // the claim's own life
	end context.CancelCauseFunc

	arrived time.Time

	mu        sync.Mutex
	test      string        // the A/B variant that executes the run
	until     time.Time     // end of the lease, by the clock of this process
	known     bool          // confirmed at least once
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

func (c *claim) leaseOf() dispatchapi.Lease {
	return dispatchapi.Lease{RunID: c.run.ID, Token: c.run.Token}
}

// heldRun returns the claim for a heartbeat.
func (c *claim) heldRun() dispatchapi.Held {
	return dispatchapi.Held{Lease: c.leaseOf(), TestName: c.testName()}
}

// executedBy records the A/B variant that executes the run.
func (c *claim) executedBy(test string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.test = test
}

// testName returns the A/B variant that executes the run, or "" before the choice.
func (c *claim) testName() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.test
}

// isLost reports whether another runner has the claim.
func (c *claim) isLost() bool { return errors.Is(context.Cause(c.ctx), errLost) }

// confirm extends the lease.
func (c *claim) confirm(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until, c.known = until, true
	close(c.confirmed)
	c.confirmed = make(chan struct{})
}

// isUnconfirmed reports whether the claim has not been confirmed yet. Its lease is then short.
func (c *claim) isUnconfirmed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.known
}

// awaitLease waits until the lease is confirmed. It returns an error if the claim ends before.
func (c *claim) awaitLease(ctx context.Context) error {
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

// runAge returns the time since the run's first attempt began, by the database's clock until the claim
// and by this process's clock after it.
func (c *claim) runAge() time.Duration {
	since := time.Since(c.arrived)
	if c.run.StartedAt.IsZero() || c.run.Now.IsZero() {
		return since
	}
	return since + max(0, c.run.Now.Sub(c.run.StartedAt))
}
