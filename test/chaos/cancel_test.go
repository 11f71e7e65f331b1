// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
)

// A run that is cancelled through the API ends at its runner within two seconds, because the gateway responds to the runner's
// open claim request. The test uses no stopwatch, because a machine under load may be late. A claim request that times out
// after 20 s reports no loss. A response that reports the loss was therefore triggered by the hint of the cancellation.
// Heartbeats would report the loss within 10 s, so the test drops them. The platform itself adds only a fraction of a second.
//
// The test plays the role of the REST facade: a process with the store open that neither accepted the run nor handed it out.
func TestCancel_ReachesRunner(t *testing.T) {
	t.Parallel()
	built := buildCommands(t, "webhookgw", "runner")
	for name, slots := range map[string]string{"with free slots": manySlots, "without a free slot": "1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
			defer cancel()
			c := newCancellation(t, built, slots)
			run := c.hangs(t)
			var open int
			require.NoError(t, poll(ctx, pollEvery, func() (waits bool, _ error) {
				open, waits = c.port.waitsWith(run)
				return waits, nil
			}), "the runner asks for more")

			require.NoError(t, c.facade.Cancel(ctx, store.Key{ProjectID: project, ID: run}, runerror.Cancelled, "cancelled by a test"))
			require.NoError(t, poll(ctx, pollEvery, func() (bool, error) {
				_, told := c.port.lost(run)
				return told && c.service.hanging.Load() == 0, nil
			}), "the runner learns of the cancellation and ends its request to the model")
			told, _ := c.port.lost(run)
			require.Equal(t, open, told.request, "by the request that was open when the run was cancelled")
			c.ends(t, run)
		})
	}
}

// cancellation holds a gateway, its runner and a facade.
type cancellation struct {
	db      *server
	facade  store.Store
	hooks   hooks
	service *service
	gateway *gateway
	port    *tap
	runner  *process
}

func newCancellation(t *testing.T, built commands, slots string) *cancellation {
	t.Helper()
	ctx := t.Context()
	c := &cancellation{db: newServer(t, 0), service: newService(t)}
	require.NoError(t, c.db.start(ctx))
	var err error
	c.facade, err = postgres.Open(ctx, postgres.Options{DSN: c.db.dsn(c.db.addr()), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.facade.Close()) })
	require.NoError(t, c.facade.Migrate(ctx))
	// Its runs would last a quarter of an hour.
	c.hooks = seed(t, c.facade, agent{name: hanging.name, model: hanging.model})
	c.gateway = newGateway(t, "gateway", built.gateway, c.db, "")
	require.NoError(t, c.gateway.start(ctx))
	c.port = newTap(t, c.gateway.internal)
	c.runner = newRunner(t, "runner", built.runner, c.port.addr(), slots, c.service.URL)
	require.NoError(t, c.runner.launch())
	return c
}

// hangs starts a run and waits until its model hangs.
func (c *cancellation) hangs(t *testing.T) (run uuid.UUID) {
	t.Helper()
	l := newLoad(c.hooks.ids, []*gateway{c.gateway}, rate.Inf)
	require.True(t, l.send(t.Context(), c.gateway, c.gateway.life.Load(), &mark{text: "m", connector: c.hooks.ids[0]}))
	require.Empty(t, l.surprises)
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	require.NoError(t, poll(ctx, pollEvery, func() (bool, error) { return c.service.hanging.Load() == 1, nil }), "the model is asked")
	require.NoError(t, ask(ctx, c.db, `SELECT id FROM open_runs WHERE status = 'running' AND agent_name = '`+hanging.name+`'`, &run))
	return run
}

// ends waits until all runs have ended. It logs how long the runner needed to release the run, from the end of the run in the
// database to the entry in the runner's log.
func (c *cancellation) ends(t *testing.T, run uuid.UUID) {
	t.Helper()
	require.NoError(t, awaitEnds(t.Context(), c.db), "the other run had a slot, too")
	var status, code string
	var attempt, others int
	var ended int64
	require.NoError(t, ask(t.Context(), c.db, `SELECT status, error_code, attempt, ended_at, (SELECT count(*) FROM ended_runs WHERE status = 'completed')
		FROM ended_runs WHERE id = '`+run.String()+`'`, &status, &code, &attempt, &ended, &others))
	require.Equal(t, []any{"cancelled", "cancelled", 1, links - 1}, []any{status, code, attempt, others})
	t.Logf("the runner let the run go %s after its end", c.letGo(t, run).Sub(time.UnixMicro(ended)))
	require.NoError(t, c.runner.stop())
	require.NoError(t, c.gateway.stop())
}

// letGo returns the time when the runner logged the loss of a run.
func (c *cancellation) letGo(t *testing.T, run uuid.UUID) time.Time {
	t.Helper()
	log, err := os.ReadFile(c.runner.log)
	require.NoError(t, err)
	for lines := bufio.NewScanner(bytes.NewReader(log)); lines.Scan(); {
		var line struct {
			Time time.Time
			Msg  string
			Run  uuid.UUID
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "claim was lost" && line.Run == run {
			return line.Time
		}
	}
	t.Fatalf("the runner says nothing of run %s", run)
	return time.Time{}
}
