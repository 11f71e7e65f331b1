// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// These flags set the size of BenchmarkRest. hack/bench.sh passes them on.
var (
	restEnvironments = flag.Int("rest.environments", 1000, "environments with a runner each that have nothing to do")
	restTime         = flag.Duration("rest.time", 5*time.Minute, "how long they are watched")
)

const (
	// restAim is the limit for all environments together, in transactions per second.
	restAim = 50
	// restStart bounds the time until all runners are there.
	restStart = 5 * time.Minute
)

// BenchmarkRest measures the database transactions that idle environments with one runner each cost, and compares them with the
// limit. The database counts the transactions. Each statement of the gateway is a transaction, except for a few housekeeping
// tasks.
func BenchmarkRest(b *testing.B) {
	silence(b)
	db := openPostgres(b)
	gw := gateway(b, db.store)
	for range *restEnvironments {
		scene := storebench.NewScene(b, db.store, 1)
		release(b, db.store, scene, scripted{name: agentName, text: "Hello."})
		admit(b, db.store, scene)
		runnerOf(b, gw, tokenOf(scene.Project), executedSlots)
	}
	require.Eventually(b, func() bool {
		there, err := db.count(b.Context(), `SELECT count(*) FROM runners`)
		return err == nil && there >= int64(*restEnvironments)
	}, restStart, 100*time.Millisecond, "not all runners came")
	<-time.After(*restTime / 10) // runners have just begun
	const counted = `SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`
	before, err := db.count(b.Context(), counted)
	require.NoError(b, err)
	<-time.After(*restTime)
	after, err := db.count(b.Context(), counted)
	require.NoError(b, err)
	print(b, Cost(fmt.Sprintf("rest/postgres/%d environments", *restEnvironments), "transactions/s", float64(after-before)/restTime.Seconds(), restAim, 1))
}
