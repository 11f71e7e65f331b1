// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// These flags set the sizes of BenchmarkBacklog. hack/bench.sh passes them on.
var (
	backlogRuns     = flag.Int("backlog.runs", 100_000, "inbound runs that wait while BenchmarkBacklog measures")
	backlogRequests = flag.Int("backlog.requests", 5_000, "sync requests of BenchmarkBacklog with and without them")
)

const (
	// backlogSlots is the number of slots in the pool. A fifth of them is reserved for sync runs. backlogBusy is the number of
	// the other slots, which are all in use.
	backlogSlots, backlogBusy = 10, 8
	// slowAgent takes a second for a run.
	slowAgent = "slow"
	// fullTimeout bounds filling the pool.
	fullTimeout = time.Minute
)

// BenchmarkBacklog measures the 99th percentile of a caller's sync requests while waiting inbound runs of a second each keep
// the pool full. The yardstick is the same requests without waiting runs. The rounds alternate.
func BenchmarkBacklog(b *testing.B) {
	const name = "sync/postgres/backlog/p99"
	beside, alone := besideBacklog(b, *backlogRuns), besideBacklog(b, 0)
	var with, without []time.Duration
	var each []Figure
	for range max(*rounds, 1) {
		without = append(without, alone(b)...)
		with = append(with, beside(b)...)
		n := len(with) - *backlogRequests/max(*rounds, 1)
		each = append(each, Cost(name, "ms", p99(with[n:]), p99(without[n:]), 0))
	}
	f := Cost(name, "ms", p99(with), p99(without), aims[name])
	f.Spread = Over(each).Spread
	print(b, f)
}

// besideBacklog sets up a database with the given number of waiting runs, a gateway and a runner. The returned function makes
// the sync requests of a round sequentially and returns the time of each request.
func besideBacklog(b *testing.B, runs int) func(b *testing.B) []time.Duration {
	b.Helper()
	silence(b)
	db := openPostgres(b)
	scene := storebench.NewScene(b, db.store, 1)
	release(b, db.store, scene, scripted{name: agentName, text: "Hello."}, scripted{name: slowAgent, text: "Hello.", after: time.Second})
	admit(b, db.store, scene)
	hook := connect(b, db.store, scene, "sync", agentName)
	queue(b, db.store, store.Key{ProjectID: scene.Project, ID: connect(b, db.store, scene, "inbound", slowAgent)}, runs)
	gw := gateway(b, db.store)
	runnerOf(b, gw, tokenOf(scene.Project), backlogSlots)
	if runs > 0 {
		require.Eventually(b, func() bool {
			running, err := db.count(b.Context(), `SELECT count(*) FROM open_runs WHERE status = 'running'`)
			return err == nil && running >= backlogBusy
		}, fullTimeout, 20*time.Millisecond, "the pool is not full")
	}
	caller := dial(b, gw.PublicAddr(), "/hooks/"+scene.Project.String()+"/"+hook.String())
	return func(b *testing.B) (took []time.Duration) {
		b.Helper()
		// The gateway closes idle connections. This connection is idle while the round of the other database runs.
		require.NoError(b, caller.connect(gw.PublicAddr()))
		for range *backlogRequests / max(*rounds, 1) {
			begun := time.Now()
			require.NoError(b, caller.call())
			took = append(took, time.Since(begun))
		}
		if runs > 0 {
			waiting, err := db.count(b.Context(), `SELECT count(*) FROM open_runs WHERE status = 'queued'`)
			require.NoError(b, err)
			require.Positive(b, waiting, "nothing waits any more: ask for a larger backlog")
		}
		return took
	}
}

// p99 leaves the durations in their order.
func p99(durations []time.Duration) float64 {
	return Percentile(append([]time.Duration(nil), durations...), 0.99)
}
