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

// How much rest BenchmarkRest has; hack/bench.sh hands these on.
var (
	restEnvironments = flag.Int("rest.environments", 1000, "environments with a runner each that have nothing to do")
	restTime         = flag.Duration("rest.time", 5*time.Minute, "how long they are watched")
)

const (
	// restAim is how many transactions a second all of them together may cost.
	restAim = 50
	// restStart bounds the time until all runners are there.
	restStart = 5 * time.Minute
)

// BenchmarkRest: what environments cost the database that have a runner each and nothing
// to do, by its own count of transactions, against what they may. Of the gateway's
// statements each is a transaction, but for those of a few tasks of housekeeping.
func BenchmarkRest(b *testing.B) {
	silence(b)
	db := openPostgres(b)
	gw := gateway(b, db.store)
	for range *restEnvironments {
		scene := storebench.NewScene(b, db.store, 1)
		release(b, db.store, scene, scripted{name: agentName, text: "Hello."})
		admit(b, db.store, scene)
		runnerOf(b, gw, tokenOf(scene.Project), executedPlaces)
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
