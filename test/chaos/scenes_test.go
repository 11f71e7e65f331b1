// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"flag"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
)

// How much is enough. `make chaos` plays every scene with more requests than `make chaos-short`,
// which plays the few that chaos.seed chooses.
var (
	wantScenes   = flag.Int("chaos.scenes", 0, "number of scenes to play; 0 plays all of them")
	wantSeed     = flag.String("chaos.seed", "", "text that chooses the scenes where chaos.scenes limits them, such as a commit")
	wantAccepted = flag.Int("chaos.accepted", 2000, "answers 2xx that all scenes together take at least")
	wantKills    = flag.Int("chaos.kills", 3, "kills that must have broken a request")
	wantOutage   = flag.Duration("chaos.outage", 5*time.Second, "how long there is no database")
	wantPace     = flag.Float64("chaos.pace", 100, "requests that begin in a second, but where gateways are killed in their middle")
)

// scene is one way to break the platform. By default it has two gateways with a runner each, on a new PostgreSQL server, under
// load.
type scene struct {
	name string
	cast cast
	// steps run in order while clients post. Each step waits for its condition.
	steps []step
}

// cast describes the processes and agents of a scene that differ from the default.
type cast struct {
	// special is the agent of one link of one connector.
	special agent
	// embedded is the platform as one process with the store in it, and one runner.
	embedded bool
	// disk is the size of the store's disk in bytes, or 0 for the machine's disk.
	disk int64
	// ahead lists the processes whose clocks are ten minutes ahead.
	ahead []string
	// unpaced clients post as fast as they can.
	unpaced bool
}

// everythingKilled names the scene that every selection contains.
const everythingKilled = "everything is killed at once"

// scenes lists all scenes.
var scenes = []scene{
	{"gateways are killed in the middle of requests", cast{unpaced: true}, []step{
		killInTurn(),
	}},
	{"a model hangs", cast{special: hanging}, []step{
		hang(8), endsGoOn(200), hang(8),
	}},
	{"a gateway without its database beside a healthy one", cast{}, []step{
		cut(first), refuses(first), staysReady(first), accepts(second), endsGoOn(200), restore(first), accepts(first),
	}},
	{"a failover without a notification", cast{special: stepping}, []step{
		holds(firstRunner, 1), silence(first, second), accepts(first), accepts(second),
	}},
	{"no database for a while", cast{special: stepping}, []step{
		holds(firstRunner, 1), crashDatabase(), refuses(first), refuses(second), lasts(), staysReady(first), staysReady(second),
		startDatabase(), accepts(first), accepts(second),
	}},
	{"a full disk", cast{disk: 160 << 20}, []step{
		fillDisk(), refuses(first), refuses(second), freeDisk(), startDatabase(), accepts(first), accepts(second),
	}},
	{"a full disk under the embedded store", cast{embedded: true, disk: 320 << 20, special: stepping}, []step{
		holds(firstRunner, 4), fillDisk(), refuses(first), lasts(), refuses(first), staysReady(first), freeDisk(), accepts(first), endsGoOn(200),
	}},
	{everythingKilled, cast{special: stepping}, []step{
		holds(firstRunner, 4), killEverything(), startEverything(), accepts(first), accepts(second),
	}},
	{"a runner is drained", cast{special: stepping}, []step{
		holds(firstRunner, 4), drain(firstRunner), endsGoOn(200), start(firstRunner), holds(firstRunner, 1),
	}},
	{"clocks are ten minutes apart", cast{special: stepping, ahead: []string{"gateway-1", "runner-0"}}, []step{
		clocksDiffer(), accepts(first), accepts(second), holds(secondRunner, 4), kill(secondRunner), loses(secondRunner), start(secondRunner), endsGoOn(200),
	}},
	{"a destination hangs, and a gateway is killed with what it was sending", cast{}, []step{
		sendsOn(100), freezes(64), killGateway(first), endsGoOn(200), thaws(), sendsOn(100),
	}},
	{"a consumer of the outbox hangs", cast{special: stepping}, []step{
		blockConsumer(), endsGoOn(500), outboxFills(), holds(secondRunner, 4), kill(secondRunner), loses(secondRunner), start(secondRunner), unblockConsumer(),
	}},
}

// TestScenes_KeepAllPromises requires in each scene that every request with a 2xx response is stored exactly once, is complete
// and ends exactly once. The store holds nothing else except requests whose response the client did not receive. The test plays as many scenes
// in parallel as there are processors, because a scene mostly waits for leases.
func TestScenes_KeepAllPromises(t *testing.T) {
	played := scenes
	if *wantScenes > 0 {
		played = selectScenes(scenes, *wantScenes, *wantSeed)
	}
	share := (*wantAccepted + len(played) - 1) / len(played)
	built := map[bool]commands{false: buildCommands(t, "webhookgw", "runner", "agentplatform"), true: buildAhead(t)}
	var all atomic.Int64
	for _, sc := range played {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, sc, built)
			began := time.Now()
			s.play(t, share)
			counted := s.judge(t, time.Since(began))
			require.GreaterOrEqual(t, counted.Accepted, share)
			all.Add(int64(counted.Accepted))
		})
	}
	t.Cleanup(func() {
		t.Logf("%d requests were answered 2xx in the scenes that were played to their end", all.Load())
	})
}

// gateways returns the number of gateways.
func (c cast) gateways() int {
	if c.embedded {
		return 1
	}
	return 2
}

// pace returns the rate limit of a scene's clients.
func (c cast) pace() rate.Limit {
	if c.unpaced {
		return rate.Inf
	}
	return rate.Limit(*wantPace)
}
