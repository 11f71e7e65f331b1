// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"testing"
)

// warm is how many 2xx a gateway must have given since its start before it is
// killed, so that each life counts.
const warm = 16

// kill kills the gateways in turn, in the middle of requests, and brings them
// back, until enough was accepted and enough kills broke a request.
func (l *load) kill(ctx context.Context, t *testing.T, accepted, kills int) error {
	for l.accepted() < accepted || l.killsHit < kills {
		if l.kills-l.killsHit > 10*(kills+1) {
			return fmt.Errorf("only %d of %d kills broke a request", l.killsHit, l.kills)
		}
		g := l.targets[l.kills%len(l.targets)]
		err := poll(ctx, pollEvery, func() (bool, error) {
			return g.life.Load().accepted.Load() >= warm && g.inFlight.Load() > 0, nil
		})
		if err != nil {
			return fmt.Errorf("waiting for requests at %s: %w", g.name, err)
		}
		// In this order: what breaks off in a life that is over was killed.
		life := g.life.Swap(nil)
		g.sigkill()
		if err := l.settled(ctx, g); err != nil {
			return err
		}
		l.kills++
		cut := int(life.cut.Load())
		if cut > 0 {
			l.killsHit++
		}
		l.cut += cut
		t.Logf("kill %d: %s, %d requests broke off; %d accepted so far", l.kills, g.name, cut, l.accepted())
		if err := g.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// settled returns once no client waits for a gateway that is gone.
func (l *load) settled(ctx context.Context, g *gateway) error {
	if err := poll(ctx, pollEvery, func() (bool, error) { return g.inFlight.Load() == 0, nil }); err != nil {
		return fmt.Errorf("waiting for the requests that %s left: %w", g.name, err)
	}
	return nil
}
