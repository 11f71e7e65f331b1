// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

// showBroken is the maximum number of broken promises in a report.
const showBroken = 10

// stage holds the processes and clients of a scene.
type stage struct {
	scene   scene
	db      *server // nil where the store is embedded
	records records
	ballast ballast
	service *service
	// receiver is the destination of results. keys is the folder of their signing keys.
	receiver *receiver
	keys     string
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
	s := &stage{scene: sc, service: newService(t), receiver: newReceiver(t)}
	st := s.newStore(t)
	require.NoError(t, st.Migrate(ctx))
	s.hooks = seed(t, st, sc.cast.special)
	s.sendResults(t, st)
	require.NoError(t, st.Close())
	for i := range sc.cast.gateways() {
		of := func(name string) commands { return built[slices.Contains(sc.cast.ahead, name)] }
		name, runner := fmt.Sprintf("gateway-%d", i), fmt.Sprintf("runner-%d", i)
		g := s.newGateway(t, name, of(name))
		s.gateways = append(s.gateways, g)
		s.runners = append(s.runners, newRunner(t, runner, of(runner).runner, g.internal, manySlots, s.service.URL))
	}
	require.NoError(t, s.startAll(ctx))
	s.load = newLoad(s.hooks.ids, s.gateways, sc.cast.pace())
	return s
}

// newStore makes the scene's store, which the platform opens after the test.
func (s *stage) newStore(t *testing.T) (opened store.Store) {
	t.Helper()
	ctx, quiet := t.Context(), slog.New(slog.DiscardHandler)
	var err error
	if s.scene.cast.embedded {
		f := newFile(t, s.scene.cast.disk)
		s.records, s.ballast.path = f, filepath.Join(filepath.Dir(f.path), "ballast")
		opened, err = sqlite.Open(ctx, sqlite.Options{Path: f.path, Logger: quiet})
	} else {
		s.db = newServer(t, s.scene.cast.disk)
		s.records, s.ballast.path = s.db, s.db.ballast
		require.NoError(t, s.db.start(ctx))
		opened, err = postgres.Open(ctx, postgres.Options{DSN: s.db.dsn(s.db.addr()), Logger: quiet})
	}
	require.NoError(t, err)
	t.Cleanup(s.ballast.release) // before the disk's unmounting
	return opened
}

// newGateway describes a gateway at the scene's store.
func (s *stage) newGateway(t *testing.T, name string, built commands) *gateway {
	t.Helper()
	if f, embedded := s.records.(*file); embedded {
		return newWhole(t, name, built.whole, f, s.keys)
	}
	return newGateway(t, name, built.gateway, s.db, s.keys)
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

// play lets clients post while the steps run, until the steps are done and enough requests are accepted. Then it stops all
// processes in order.
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
	require.NoError(t, awaitEnds(t.Context(), s.records))
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
	db, err := s.records.open()
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	require.NoError(t, s.records.alone(t.Context(), conn))
	b, err := readBook(t.Context(), conn, s.hooks)
	require.NoError(t, err)
	sent, unsent, err := s.checkDeliveries(t.Context(), conn)
	require.NoError(t, err)
	broken := slices.Concat(s.load.surprises, b.check(s.load.marks), unsent)
	counted := s.load.summary(b)
	counted.Scene, counted.Promises, counted.Seconds = s.scene.name, len(broken), took.Seconds()
	counted.Delivered, counted.GivenUp = sent.delivered, sent.givenUp
	counted.Rate = float64(counted.Accepted) / took.Seconds()
	t.Log(counted)
	for _, fault := range broken[:min(len(broken), showBroken)] {
		t.Error(fault)
	}
	require.Empty(t, broken[min(len(broken), showBroken):], "and more")
	return counted
}
