// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// cut closes a gateway's connections to the database. The gateway notices.
func cut(gateway int) step {
	return step{what: fmt.Sprintf("gateway %d loses its database", gateway), do: func(_ context.Context, s *stage) error {
		s.gateways[gateway].link.cut()
		return nil
	}}
}

// restore opens it again.
func restore(gateway int) step {
	return step{what: fmt.Sprintf("gateway %d may reach its database again", gateway), do: func(_ context.Context, s *stage) error {
		s.gateways[gateway].link.restore()
		return nil
	}}
}

// silence drops all packets of the connections that gateways have to the database.
func silence(gateways ...int) step {
	return step{what: "the connections to the database fall silent", do: func(_ context.Context, s *stage) error {
		for _, gateway := range gateways {
			n, err := s.gateways[gateway].link.silence()
			if err == nil && n == 0 {
				err = fmt.Errorf("gateway %d has none", gateway)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}}
}

// crashDatabase kills the server with all its processes.
func crashDatabase() step {
	return step{what: "the database crashes", do: func(ctx context.Context, s *stage) error { return s.db.crash(ctx) }}
}

// startDatabase starts the server unless it lives.
func startDatabase() step {
	return step{what: "the database is there", do: func(ctx context.Context, s *stage) error {
		if s.db.cmd != nil && s.db.ended() == nil {
			return s.db.await(ctx, s.db.answers)
		}
		if err := s.db.crash(ctx); err != nil { // remains of the crashed server
			return err
		}
		return s.db.start(ctx)
	}}
}

// killEverything kills gateways, runners and the database at once, in the middle of
// requests.
func killEverything() step {
	return step{what: "everything is killed", do: func(ctx context.Context, s *stage) error {
		err := poll(ctx, pollEvery, func() (bool, error) {
			return !slices.ContainsFunc(s.gateways, func(g *gateway) bool { return g.inFlight.Load() == 0 }), nil
		})
		if err != nil {
			return err
		}
		var lives []*life
		for _, g := range s.gateways {
			lives = append(lives, g.life.Swap(nil))
			_ = g.cmd.Process.Kill() // sigkill waits for it
		}
		for _, r := range s.runners {
			_ = r.cmd.Process.Kill()
		}
		err = s.db.crash(ctx)
		for i, g := range s.gateways {
			g.sigkill()
			s.runners[i].sigkill()
			err = errors.Join(err, g.settled(ctx))
			s.load.cut += int(lives[i].cut.Load())
		}
		return err
	}}
}

// startEverything starts it again.
func startEverything() step {
	return step{what: "everything starts", do: func(ctx context.Context, s *stage) error {
		if err := s.db.start(ctx); err != nil {
			return err
		}
		return s.startAll(ctx)
	}}
}

// killInTurn kills the gateways in turn, in the middle of requests, and brings them
// back, until enough kills broke a request.
func killInTurn() step {
	return step{what: "gateways are killed", unbounded: true, do: func(ctx context.Context, s *stage) error {
		l := s.load
		for l.killsHit < *wantKills {
			if l.kills-l.killsHit > 10*(*wantKills+1) {
				return fmt.Errorf("only %d of %d kills broke a request", l.killsHit, l.kills)
			}
			if err := l.kill(ctx, s.gateways[l.kills%len(s.gateways)]); err != nil {
				return err
			}
		}
		return nil
	}}
}

// killGateway kills one in the middle of requests, and brings it back.
func killGateway(gateway int) step {
	return step{what: fmt.Sprintf("gateway %d is killed", gateway), do: func(ctx context.Context, s *stage) error {
		return s.load.kill(ctx, s.gateways[gateway])
	}}
}

// kill kills a gateway once it has accepted something and has requests, and starts it.
func (l *load) kill(ctx context.Context, g *gateway) error {
	err := poll(ctx, pollEvery, func() (bool, error) {
		accepted, _, err := g.seen()
		return accepted >= warm && g.inFlight.Load() > 0, err
	})
	if err != nil {
		return fmt.Errorf("waiting for requests at %s: %w", g.name, err)
	}
	// The order matters: a request that breaks off after the end of the life counts as killed.
	life := g.life.Swap(nil)
	g.sigkill()
	if err := g.settled(ctx); err != nil {
		return err
	}
	l.kills++
	cut := int(life.cut.Load())
	if cut > 0 {
		l.killsHit++
	}
	l.cut += cut
	return g.start(ctx)
}

// blockConsumer locks the table that the consumer of stored bytes writes.
func blockConsumer() step {
	return step{what: "the consumer of stored bytes is held up", do: func(ctx context.Context, s *stage) (err error) {
		if s.lock, err = s.db.connect(ctx); err != nil {
			return err
		}
		_, err = s.lock.Exec(ctx, `BEGIN; LOCK TABLE stored_bytes IN SHARE ROW EXCLUSIVE MODE`) // allows reads
		return err
	}}
}

// outboxFills waits for outbox rows without a consumer.
func outboxFills() step {
	return step{what: "the outbox fills up", do: func(ctx context.Context, s *stage) error {
		return poll(ctx, askEvery, func() (filled bool, err error) {
			err = ask(ctx, s.records, `SELECT count(*) > 100 FROM outbox`, &filled)
			return filled, err
		})
	}}
}

// unblockConsumer releases the lock of blockConsumer.
func unblockConsumer() step {
	return step{what: "the consumer goes on", do: func(ctx context.Context, s *stage) error {
		lock := s.lock
		s.lock = nil
		return lock.Close(ctx)
	}}
}
