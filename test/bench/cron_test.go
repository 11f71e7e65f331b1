// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"flag"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
	"github.com/agentplatform/agentplatform/webhookgw/cron"
)

var cronConnectors = flag.Int("cron.connectors", 10_000, "cron connectors of BenchmarkCron that are due at once")

const (
	// cronInterval is the interval of the connectors' ticks.
	cronInterval = time.Minute
	// cronAim is the fraction of that time within which all connectors must have ticked.
	cronAim = 0.25
	// cronChunk is the number of connectors that one statement makes due.
	cronChunk = 100
)

// BenchmarkCron measures the seconds until all cron connectors have ticked that are due at the same moment. The yardstick is
// the minute after which they are due again.
func BenchmarkCron(b *testing.B) {
	silence(b)
	engines(b, func(b *testing.B, e *database) {
		scene := storebench.NewScene(b, e.store, 1)
		connectors := scene.Crons(b, *cronConnectors)
		ctx, stop := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- cron.New(cron.Options{Store: e.store, Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
		}()
		planned := func() bool {
			n, err := e.count(b.Context(), `SELECT count(*) FROM cron_ticks WHERE NOT planned`)
			return err == nil && n == 0
		}
		require.Eventually(b, planned, executedTimeout, 10*time.Millisecond)
		stop()
		require.NoError(b, <-ended)
		due(b, e.store, connectors)

		ctx, stop = context.WithCancel(b.Context())
		begun := time.Now()
		go func() {
			ended <- cron.New(cron.Options{Store: e.store, Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
		}()
		ticked := func() bool {
			n, err := e.count(b.Context(), `SELECT count(*) FROM open_connector_runs WHERE trigger_type = 'cron'`)
			return err == nil && n >= int64(len(connectors))
		}
		require.Eventually(b, ticked, executedTimeout, 20*time.Millisecond)
		took := time.Since(begun)
		stop()
		require.NoError(b, <-ended)
		print(b, Cost("cron/"+e.name+"/all have ticked", "s", took.Seconds(), cronInterval.Seconds(), cronAim))
	})
}

// due makes connectors due now.
func due(b *testing.B, st store.Store, connectors []store.Connector) {
	b.Helper()
	for some := range slices.Chunk(connectors, cronChunk) {
		moves, ids := make([]store.TickMove, len(some)), make([]uuid.UUID, len(some))
		for i, c := range some {
			ids[i] = c.ID
		}
		times, err := st.TickTimes(b.Context(), some[0].ProjectID, ids)
		require.NoError(b, err)
		for i, c := range some {
			moves[i] = store.TickMove{Connector: c.Key(), From: times[c.ID].Next, To: time.Now().Truncate(time.Second), Planned: true}
		}
		moved, err := st.MoveTicks(b.Context(), moves)
		require.NoError(b, err)
		require.Equal(b, len(some), moved)
	}
}
