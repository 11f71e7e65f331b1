// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/store/postgres"
)

const (
	gateways = 2
	// showBroken is how many broken promises are listed.
	showBroken = 10
)

// stage is where a scene is played.
type stage struct {
	scene    scene
	db       *server
	service  *service
	gateways []*gateway
	runners  []*process // each at the gateway of its number
	hooks    hooks
	load     *load
	// lock holds up a consumer; nil when none is held up.
	lock *pgx.Conn
}

// newStage starts all that plays.
func newStage(t *testing.T, sc scene, built map[bool]commands) *stage {
	t.Helper()
	ctx := t.Context()
	s := &stage{scene: sc, db: newServer(t, sc.cast.disk), service: newService(t)}
	require.NoError(t, s.db.start(ctx))
	st, err := postgres.Open(ctx, postgres.Options{DSN: s.db.dsn(s.db.addr()), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, st.Migrate(ctx))
	s.hooks = seed(t, st, sc.cast.special)
	require.NoError(t, st.Close())
	for i := range gateways {
		of := func(name string) commands { return built[slices.Contains(sc.cast.ahead, name)] }
		gatewayName, runnerName := fmt.Sprintf("gateway-%d", i), fmt.Sprintf("runner-%d", i)
		g := newGateway(t, gatewayName, of(gatewayName).gateway, s.db)
		s.gateways = append(s.gateways, g)
		s.runners = append(s.runners, newRunner(t, runnerName, of(runnerName).runner, g, s.service.URL))
	}
	require.NoError(t, s.startAll(ctx))
	s.load = newLoad(s.hooks.ids, s.gateways, sc.cast.pace())
	return s
}

// startAll starts gateways and runners.
func (s *stage) startAll(ctx context.Context) error {
	for i, g := range s.gateways {
		if err := g.start(ctx); err != nil {
			return err
		}
		if err := s.runners[i].launch(); err != nil {
			return err
		}
	}
	return nil
}

// play lets clients post while the steps happen, until there is enough of both; then it
// ends all in order.
func (s *stage) play(t *testing.T, accepted int) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	for i := range clients {
		group.Go(func() error { return s.load.work(ctx, i) })
	}
	group.Go(func() error {
		defer close(s.load.enough) // also after an error: the clients end
		// The steps come when all is under way, and are not the end of it.
		for _, st := range slices.Concat([]step{acceptedInAll(accepted / 4)}, s.scene.steps, []step{acceptedInAll(accepted)}) {
			if err := st.run(ctx, t, s); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, group.Wait())
	require.NoError(t, awaitEnds(t.Context(), s.db))
	for _, p := range s.runners {
		require.NoError(t, p.stop())
	}
	for _, g := range s.gateways {
		g.life.Store(nil)
		require.NoError(t, g.stop())
	}
}

// judge fails the test for each broken promise.
func (s *stage) judge(t *testing.T, took time.Duration) summary {
	t.Helper()
	conn, err := s.db.connect(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	require.NoError(t, awaitAlone(t.Context(), conn))
	b, err := readBook(t.Context(), conn, s.hooks)
	require.NoError(t, err)
	broken := append(s.load.surprises, b.check(s.load.marks)...)
	counted := s.load.summary(b)
	counted.Scene, counted.Promises, counted.Seconds = s.scene.name, len(broken), took.Seconds()
	counted.Rate = float64(counted.Accepted) / took.Seconds()
	t.Log(counted)
	for _, fault := range broken[:min(len(broken), showBroken)] {
		t.Error(fault)
	}
	require.Empty(t, broken[min(len(broken), showBroken):], "and more")
	return counted
}
