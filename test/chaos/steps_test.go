// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/agentplatform/agentplatform/internal/pause"
)

const (
	// stepTimeout bounds a step. It is longer than a lease, than the grace before the sweep of leases and than the detection of
	// a dead connection.
	stepTimeout = 3 * time.Minute
	// warm is the number of responses that show that a gateway serves requests.
	warm = 16
)

// These constants name the gateways and runners of the steps.
const (
	first, second             = 0, 1
	firstRunner, secondRunner = 0, 1
)

// step is something that happens in a scene, or that is waited for.
type step struct {
	what string
	do   func(ctx context.Context, s *stage) error
	// unbounded exempts a step from stepTimeout. The step takes as long as its definition says.
	unbounded bool
}

// run runs the step and logs how long it took.
func (st step) run(ctx context.Context, t *testing.T, s *stage) error {
	if !st.unbounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, stepTimeout, fmt.Errorf("not within %s", stepTimeout))
		defer cancel()
	}
	began := time.Now()
	if err := st.do(ctx, s); err != nil {
		return fmt.Errorf("%s: %w", st.what, err)
	}
	t.Logf("%6.2f s  %s; %d accepted so far", time.Since(began).Seconds(), st.what, s.load.accepted())
	return nil
}

// acceptedInAll waits for n 2xx responses since the start of the scene.
func acceptedInAll(n int) step {
	return step{what: fmt.Sprintf("%d requests are accepted", n), do: func(ctx context.Context, s *stage) error {
		return poll(ctx, pollEvery, func() (bool, error) { return s.load.accepted() >= n, nil })
	}}
}

// accepts waits for answers 2xx of a gateway.
func accepts(gateway int) step {
	return step{what: fmt.Sprintf("gateway %d accepts", gateway), do: func(ctx context.Context, s *stage) error {
		return s.answers(ctx, gateway, func(accepted, _ int64) int64 { return accepted })
	}}
}

// refuses waits for answers 503 of a gateway.
func refuses(gateway int) step {
	return step{what: fmt.Sprintf("gateway %d answers 503", gateway), do: func(ctx context.Context, s *stage) error {
		return s.answers(ctx, gateway, func(_, refused int64) int64 { return refused })
	}}
}

// answers waits until a gateway has returned some more of the responses that the function of selects.
func (s *stage) answers(ctx context.Context, gateway int, of func(accepted, refused int64) int64) error {
	accepted, refused, err := s.gateways[gateway].seen()
	if err != nil {
		return err
	}
	before := of(accepted, refused)
	return poll(ctx, pollEvery, func() (bool, error) {
		accepted, refused, err := s.gateways[gateway].seen()
		return of(accepted, refused) >= before+warm, err
	})
}

// staysReady checks that a gateway without its database stays ready: its requests fail, but its readiness probe succeeds.
func staysReady(gateway int) step {
	return step{what: fmt.Sprintf("gateway %d is ready", gateway), do: func(ctx context.Context, s *stage) error {
		if g := s.gateways[gateway]; !g.ready(ctx) {
			return errors.New("it says that it is not")
		}
		return nil
	}}
}

// endsGoOn waits until n more runs have ended.
func endsGoOn(n int) step {
	return step{what: fmt.Sprintf("%d runs end", n), do: func(ctx context.Context, s *stage) error {
		before := -1
		return poll(ctx, askEvery, func() (bool, error) {
			var ended int
			err := ask(ctx, s.records, `SELECT count(*) FROM ended_runs WHERE status = 'completed'`, &ended)
			if before < 0 {
				before = ended
			}
			return ended >= before+n, err
		})
	}}
}

// holds waits until a runner holds n runs of the special agent at once. These runs do not end in the next moment.
func holds(runner, n int) step {
	return step{what: fmt.Sprintf("runner %d holds %d runs", runner, n), do: func(ctx context.Context, s *stage) error {
		return poll(ctx, askEvery, func() (bool, error) {
			held, err := s.leased(ctx, s.runners[runner], s.scene.cast.special.name)
			return held >= n, err
		})
	}}
}

// drain stops a runner gracefully while the others continue. The runner hands its runs back at once, before the leases end.
func drain(runner int) step {
	return step{what: fmt.Sprintf("runner %d hands back what it holds", runner), do: func(ctx context.Context, s *stage) error {
		p := s.runners[runner]
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeoutCause(ctx, handBackTimeout, fmt.Errorf("not within %s", handBackTimeout))
		defer cancel()
		return errors.Join(s.released(ctx, p), p.stop())
	}}
}

// handBackTimeout is shorter than a lease. It is longer than a second, because a machine under load may be late. The step
// reports the actual time.
const handBackTimeout = 15 * time.Second

// kill ends a runner as a crash does.
func kill(runner int) step {
	return step{what: fmt.Sprintf("runner %d is killed", runner), do: func(_ context.Context, s *stage) error {
		s.runners[runner].sigkill()
		return nil
	}}
}

// loses waits until the leases of a runner have ended that no longer lives.
func loses(runner int) step {
	return step{what: fmt.Sprintf("what runner %d had is others'", runner), do: func(ctx context.Context, s *stage) error {
		return s.released(ctx, s.runners[runner])
	}}
}

// start restarts a runner.
func start(runner int) step {
	return step{what: fmt.Sprintf("runner %d starts", runner), do: func(_ context.Context, s *stage) error {
		return s.runners[runner].launch()
	}}
}

// hang waits until n requests wait for a model that never responds.
func hang(n int64) step {
	return step{what: fmt.Sprintf("%d model requests hang", n), do: func(ctx context.Context, s *stage) error {
		return poll(ctx, pollEvery, func() (bool, error) { return s.service.hanging.Load() >= n, nil })
	}}
}

// lasts waits for the length of the outage.
func lasts() step {
	return step{what: "time passes", unbounded: true, do: func(ctx context.Context, _ *stage) error { return pause.For(ctx, *wantOutage) }}
}

// fillDisk leaves no byte of the store's disk free, until freeDisk.
func fillDisk() step {
	return step{what: "the disk fills up", do: func(ctx context.Context, s *stage) error { return s.ballast.fill(ctx) }}
}

// freeDisk deletes the file that filled the disk.
func freeDisk() step {
	return step{what: "the disk has room again", do: func(_ context.Context, s *stage) error { return s.ballast.remove() }}
}
