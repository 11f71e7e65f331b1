// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// These flags set the sizes of BenchmarkExecuted. hack/bench.sh passes them on.
var (
	executedRuns   = flag.Int("executed.runs", 20_000, "queued runs that a round of BenchmarkExecuted executes")
	executedStored = flag.Int("executed.stored", 200_000, "ended runs that are stored meanwhile; 0 for none")
)

const (
	// executedSlots is the number of the runner's slots.
	executedSlots = 64
	// acceptedAtOnce is the number of events that one call queues.
	acceptedAtOnce = 250
	// executedTimeout bounds a round.
	executedTimeout = 10 * time.Minute
)

// BenchmarkExecuted measures queued runs of one agent with a single answer, while many runs are stored. A runner claims the
// runs through the gateway's dispatch port and executes them. The yardstick accepts, claims and completes runs by SQL alone.
// The other figures are the processor time of all processes per run, and its parts. The rounds of both sides alternate, each in
// a new database.
func BenchmarkExecuted(b *testing.B) {
	for name, open := range databases {
		b.Run(name, func(b *testing.B) {
			title := fmt.Sprintf("executed/%s/%d stored", name, *executedStored)
			alternate(b, func() (figures []Figure) {
				b.Run("round", func(b *testing.B) { // closes the round's resources at its end
					db := open(b)
					sql := paceOfYardstick(b, db.yardstick(b))
					platform := paceOfRuns(b, db, *executedStored, *executedRuns)
					figures = []Figure{
						Rate(title, "runs/s", platform.rate, sql.rate, aims["executed/"+name]),
						Cost(title+"/cpu a run", "ms", platform.cpu(), sql.cpu(), 0),
						Cost(title+"/cpu a run/of that to queue it", "ms", platform.queued, sql.cpu(), 0),
						Cost(title+"/cpu a run/of that gateway and runner", "ms", platform.own, sql.cpu(), 0),
					}
					if db.dsn != "" {
						figures = append(figures, Cost(title+"/cpu a run/of that the database server", "ms", platform.server, sql.cpu(), 0))
					}
				})
				require.NotEmpty(b, figures, "the round has said why")
				return figures
			})
		})
	}
}

// pace holds the number of runs executed per second and the processor time of each run in milliseconds: the total to queue it,
// then the time of this process and of the database server to execute it.
type pace struct{ rate, queued, own, server float64 }

func (p pace) cpu() float64 { return p.queued + p.own + p.server }

// paceOfYardstick measures a yardstick.
func paceOfYardstick(b *testing.B, y *yardstick) pace {
	b.Helper()
	m := newMeter(b, y.dsn)
	var runs atomic.Int64
	before := m.spent(b)
	_, rate := load(b, y.clients, func(int) error {
		runs.Add(1)
		return y.run(b.Context())
	})
	spent := m.spent(b).since(before)
	return pace{rate: rate, own: perRun(spent.own, int(runs.Load())), server: perRun(spent.server, int(runs.Load()))}
}

// perRun returns the milliseconds per run.
func perRun(spent time.Duration, runs int) float64 {
	return float64(spent.Microseconds()) / 1000 / float64(runs)
}

// paceOfRuns measures the platform on an empty database after storing the given number of runs there.
func paceOfRuns(tb testing.TB, db *database, stored, runs int) pace {
	tb.Helper()
	return paceBeside(tb, db, runs, func(s scene) { db.remember(tb, s, stored) })
}

// paceBeside measures the platform with the runs of a new project, next to the data that is stored already. remember stores
// more data once the runs are queued.
func paceBeside(tb testing.TB, db *database, runs int, remember func(s scene)) pace {
	tb.Helper()
	silence(tb)
	queued := storebench.NewScene(tb, db.store, 1)
	hook := deploy(tb, db.store, queued, agentName, output)
	m := newMeter(tb, db.dsn)
	before := m.spent(tb)
	s := queue(tb, db.store, store.Key{ProjectID: queued.Project, ID: hook}, runs)
	queueing := m.spent(tb).since(before)
	remember(s)
	completed := `SELECT count(*) FROM ended_runs WHERE project_id = '` + s.project.String() + `' AND status = 'completed' AND output = '` + output + `'`
	stored, err := db.count(tb.Context(), completed)
	require.NoError(tb, err)
	pace := paceOfRunner(tb, db, s.project, newEngine(), runs, executedSlots)
	ends, err := db.count(tb.Context(), completed)
	require.NoError(tb, err)
	require.EqualValues(tb, runs, ends-stored, "not all runs ended as they should")
	pace.queued = perRun(queueing.own+queueing.server, runs)
	return pace
}

// queue accepts n events of a connector with one link.
func queue(tb testing.TB, st store.Store, connector store.Key, n int) scene {
	tb.Helper()
	route, err := st.Route(tb.Context(), connector)
	require.NoError(tb, err)
	require.Len(tb, route.Links, 1)
	for accepted := 0; accepted < n; accepted += acceptedAtOnce {
		events := make([]store.Event, min(acceptedAtOnce, n-accepted))
		for i := range events {
			events[i] = store.Event{
				ConnectorRunID: newID(), ProjectID: connector.ProjectID, EnvironmentID: route.Connector.EnvironmentID, ConnectorID: connector.ID,
				ConnectorVersion: route.Connector.Version, Trigger: store.TriggerWebhook, Class: store.ClassInbound,
				Input: input, ContentType: "application/json",
				Runs: []store.EventRun{{ID: newID(), LinkID: route.Links[0].ID, AgentName: route.Links[0].AgentName}},
			}
		}
		admissions, err := st.Accept(tb.Context(), events)
		require.NoError(tb, err)
		for _, a := range admissions {
			require.NoError(tb, a.Err)
			require.Equal(tb, store.Accepted, a.Verdict)
		}
	}
	return scene{
		project: connector.ProjectID, environment: route.Connector.EnvironmentID, connector: connector.ID,
		link: route.Links[0].ID, deployment: uuid.New(),
	}
}

// countdown closes over after the given number of runs have been reported as ended.
type countdown struct {
	*dispatchapi.Client
	left atomic.Int64
	over chan struct{}
}

// Complete implements serve.Dispatch.
func (c *countdown) Complete(ctx context.Context, run uuid.UUID, req dispatchapi.CompleteRequest) error {
	err := c.Client.Complete(ctx, run, req)
	if err == nil && c.left.Add(-1) == 0 {
		close(c.over)
	}
	return err
}

// silence discards the logs of this process until the benchmark ends. The process still formats them.
func silence(tb testing.TB) {
	tb.Helper()
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewJSONHandler(io.Discard, nil)))
	tb.Cleanup(func() { slog.SetDefault(before) })
}

// The benchmark's rows must fit the store: the store reads the stored runs, and the queued runs end.
func TestExecuted_FitsStore(t *testing.T) {
	for name, open := range databases {
		t.Run(name+"/round#01", func(t *testing.T) { // as the benchmark names its second one
			const stored, runs = 10, 20
			db := open(t)
			pace := paceOfRuns(t, db, stored, runs)
			require.Positive(t, pace.rate)
			require.Positive(t, pace.cpu())
			for table, rows := range map[string]int64{
				"open_runs": 0, "open_connector_runs": 0, "inputs": stored + runs, "ended_connector_runs": stored + runs,
				"ended_runs": stored + runs, "journal": stored + runs,
			} {
				t.Run(table, func(t *testing.T) {
					n, err := db.count(t.Context(), `SELECT count(*) FROM `+table)
					require.NoError(t, err)
					require.Equal(t, rows, n)
				})
			}
			read(t, db)
		})
	}
}

// read reads all runs of a database as REST does. For the first stored run it also reads the input, the journal and the
// connector run.
func read(t *testing.T, db *database) {
	t.Helper()
	var project, run, event uuid.UUID
	require.NoError(t, db.row(t.Context(), `SELECT project_id, id, connector_run_id FROM ended_runs ORDER BY id LIMIT 1`, &project, &run, &event))
	listed, _, err := db.store.ListRuns(t.Context(), store.RunQuery{ProjectID: project, Limit: 100})
	require.NoError(t, err)
	all, err := db.count(t.Context(), `SELECT count(*) FROM ended_runs`)
	require.NoError(t, err)
	require.Len(t, listed, int(all))
	key := store.Key{ProjectID: project, ID: run}
	first, err := db.store.Run(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, output, first.Output)
	entries, err := db.store.Journal(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	ended, err := db.store.ConnectorRun(t.Context(), store.Key{ProjectID: project, ID: event})
	require.NoError(t, err)
	require.Equal(t, []uuid.UUID{run}, ended.RunIDs)
	_, body, err := db.store.RunInput(t.Context(), key)
	require.NoError(t, err)
	defer body.Close()
	raw, err := io.ReadAll(body)
	require.NoError(t, err)
	require.Equal(t, input, raw)
}
