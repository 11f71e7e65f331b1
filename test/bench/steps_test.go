// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"flag"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// stepRuns is the load of BenchmarkSteps. hack/bench.sh passes it on.
var stepRuns = flag.Int("steps.runs", 5000, "queued runs that a round of BenchmarkSteps executes, of each agent")

// stepSlots is the number of slots of the demo's runner.
const stepSlots = 10

// twoSteps is a repository with an agent of one step, and an agent that runs two such agents one after the other.
var twoSteps = fstest.MapFS{
	"agents/one.yaml":    &fstest.MapFile{Data: []byte("name: one\nmodel: scripted/step\nsystem_prompt: Greet.\n")},
	"agents/second.yaml": &fstest.MapFile{Data: []byte("name: second\nmodel: scripted/step\nsystem_prompt: Greet.\n")},
	"agents/two.yaml":    &fstest.MapFile{Data: []byte("name: two\ntype: sequential\nagents: [one, second]\n")},
	"models/step.yaml":   &fstest.MapFile{Data: []byte("steps: [{text: " + output + "}]\n")},
}

// BenchmarkSteps measures queued runs of an agent with two steps, on SQLite and with the ten slots of the demo. The yardstick is
// an agent with one step.
func BenchmarkSteps(b *testing.B) {
	silence(b)
	alternate(b, func() (figures []Figure) {
		b.Run("round", func(b *testing.B) {
			one, two := paceOfAgent(b, "one"), paceOfAgent(b, "two")
			figures = []Figure{
				Cost("steps/sqlite/two/cpu a run", "ms", two.cpu(), one.cpu(), 1.5),
				Rate("steps/sqlite/two", "runs/s", two.rate, one.rate, 0),
			}
		})
		require.NotEmpty(b, figures, "the round has said why")
		return figures
	})
}

// paceOfAgent measures runs of an agent of twoSteps in a new database.
func paceOfAgent(b *testing.B, agent string) pace {
	b.Helper()
	db := openSQLite(b)
	s := storebench.NewScene(b, db.store, 1)
	releaseFiles(b, db.store, s, twoSteps, "one", "second", "two")
	admit(b, db.store, s)
	queue(b, db.store, store.Key{ProjectID: s.Project, ID: connect(b, db.store, s, "inbound", agent)}, *stepRuns)
	return paceOfRunner(b, db, s.Project, newEngine(), *stepRuns, stepSlots)
}

// paceOfRunner measures a runner that executes all queued runs of a project. Gateway and runner are this process.
func paceOfRunner(tb testing.TB, db *database, project uuid.UUID, engine *engine.Engine, runs, slots int) pace {
	tb.Helper()
	gw := gateway(tb, db.store)
	client, err := dispatchapi.NewClient(dispatchapi.Options{URL: "http://" + gw.InternalAddr(), Token: tokenOf(project)})
	require.NoError(tb, err)
	m, ended := newMeter(tb, db.dsn), &countdown{Client: client, over: make(chan struct{})}
	ended.left.Store(int64(runs))
	before, begun := m.spent(tb), time.Now()
	runner(tb, ended, engine, slots)
	select {
	case <-ended.over:
	case <-time.After(executedTimeout):
		tb.Fatalf("after %v %d of %d runs have not ended", executedTimeout, ended.left.Load(), runs)
	}
	took, spent := time.Since(begun), m.spent(tb).since(before)
	return pace{rate: float64(runs) / took.Seconds(), own: perRun(spent.own, runs), server: perRun(spent.server, runs)}
}
