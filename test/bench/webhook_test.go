// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/serve"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
	"github.com/agentplatform/agentplatform/webhookgw"
)

// aims are the least that a ratio should be (rates), or the most (times).
var aims = map[string]float64{
	"inbound/postgres/bare": 0.28, "inbound/postgres/inserts": 3, "inbound/sqlite/inserts": 0.5,
	"sync/postgres/1/p50": 3.2, "sync/sqlite/1/p50": 3.8, "sync/postgres/64/rate": 0.6, "executed/postgres": 1, "executed/sqlite": 3.5, "sync/postgres/backlog/p99": 3, "deliveries": 0.3, "deliveries/hanging": 0.95,
}

func print(b *testing.B, figures ...Figure) { //nolint:predeclared // what it does
	b.Helper()
	require.NoError(b, Write(os.Stdout, figures...))
}

// gateway serves a store until the benchmark ends.
func gateway(tb testing.TB, st store.Store) *webhookgw.Gateway {
	tb.Helper()
	gw, err := webhookgw.New(webhookgw.Options{
		Store: st, PublicAddr: "127.0.0.1:0", InternalAddr: "127.0.0.1:0", Grace: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(tb, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- gw.Run(ctx) }()
	tb.Cleanup(func() {
		stop()
		tb.Log("gateway:", <-ended) // connections that are kept open are cut off
	})
	return gw
}

// bare decodes a body and answers: the least that a gateway does.
func bare(w http.ResponseWriter, r *http.Request) {
	var decoded any
	if err := json.NewDecoder(r.Body).Decode(&decoded); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	httpserver.WriteJSON(w, http.StatusOK, map[string]any{"status": "ok", "dispatched_to": 1, "run_ids": []uuid.UUID{uuid.Nil}})
}

// BenchmarkInbound measures accepted webhooks with 64 clients. It has two yardsticks: a handler that only decodes the body, and
// inserting the same rows without HTTP, with one transaction per event and 64 connections.
func BenchmarkInbound(b *testing.B) {
	const clients = 64
	server := httptest.NewServer(http.HandlerFunc(bare))
	defer server.Close()
	engines(b, func(b *testing.B, e *database) {
		scene := storebench.NewScene(b, e.store, 1)
		yardstick, addr, name := e.yardstick(b), gateway(b, e.store).PublicAddr(), "inbound/"+e.name
		alternate(b, func() []Figure {
			_, decoded := post(b, clients, server.Listener.Addr().String(), "/")
			_, inserted := load(b, clients, func(int) error { return yardstick.insert(context.Background()) })
			_, accepted := post(b, clients, addr, "/hooks/"+scene.Project.String()+"/"+scene.Connector.String())
			return []Figure{
				Rate(name+"/bare", "requests/s", accepted, decoded, aims[name+"/bare"]),
				Rate(name+"/inserts", "requests/s", accepted, inserted, aims[name+"/inserts"]),
			}
		})
	})
}

// BenchmarkSync measures sequential round trips of a sync webhook with the scripted model. It has two yardsticks: three
// transactions of the same store with one INSERT each, and the store calls of a round trip without HTTP and a runner.
func BenchmarkSync(b *testing.B) {
	engines(b, func(b *testing.B, e *database) {
		scene := storebench.NewScene(b, e.store, 1)
		three := func(int) error {
			for range 3 {
				if err := e.commit(context.Background()); err != nil {
					return err
				}
			}
			return nil
		}
		// Before there is a runner, which would claim the runs.
		asked, _ := load(b, 1, func(int) error {
			scene.Trip(context.Background(), b)
			return nil
		})
		hook := greeter(b, e.store, scene)
		gw := gateway(b, e.store)
		runnerOf(b, gw, tokenOf(scene.Project), 32)
		name := "sync/" + e.name + "/1/p50"
		alternate(b, func() []Figure {
			inserted, _ := load(b, 1, three)
			trips, _ := post(b, 1, gw.PublicAddr(), "/hooks/"+scene.Project.String()+"/"+hook.String())
			return []Figure{
				Cost(name, "ms", Percentile(trips, 0.5), Percentile(inserted, 0.5), aims[name]),
				Cost(name+"/store", "ms", Percentile(trips, 0.5), Percentile(asked, 0.5), 0),
			}
		})
	})
}

// BenchmarkSyncRate measures sync webhooks with the scripted model and 64 clients. The yardstick accepts, claims and completes
// runs by SQL alone.
func BenchmarkSyncRate(b *testing.B) {
	db := openPostgres(b)
	scene := storebench.NewScene(b, db.store, 1)
	hook, yardstick, gw := greeter(b, db.store, scene), db.yardstick(b), gateway(b, db.store)
	runnerOf(b, gw, tokenOf(scene.Project), executedSlots)
	const name = "sync/postgres/64/rate"
	alternate(b, func() []Figure {
		_, sql := load(b, yardstick.clients, func(int) error { return yardstick.run(context.Background()) })
		_, trips := post(b, postgresClients, gw.PublicAddr(), "/hooks/"+scene.Project.String()+"/"+hook.String())
		return []Figure{Rate(name, "requests/s", trips, sql, aims[name])}
	})
}

// greeter makes a deployment with a scripted agent live and returns a sync
// connector that is linked to it.
func greeter(tb testing.TB, st store.Store, scene *storebench.Scene) uuid.UUID {
	tb.Helper()
	return deploy(tb, st, scene, agentName, "Hello.")
}

// deploy makes a deployment live. Its only agent answers with the given text. deploy returns a sync connector that is linked to
// the agent.
func deploy(tb testing.TB, st store.Store, scene *storebench.Scene, agent, text string) uuid.UUID {
	tb.Helper()
	release(tb, st, scene, scripted{name: agent, text: text})
	admit(tb, st, scene)
	return connect(tb, st, scene, "sync", agent)
}

// runnerOf executes runs of a gateway with the given number of slots until the benchmark ends.
func runnerOf(tb testing.TB, gw *webhookgw.Gateway, token string, slots int) {
	tb.Helper()
	client, err := dispatchapi.NewClient(dispatchapi.Options{URL: "http://" + gw.InternalAddr(), Token: token})
	require.NoError(tb, err)
	runner(tb, client, newEngine(), slots)
}

// newEngine returns an engine for agents with scripted models.
func newEngine() *engine.Engine {
	return engine.New(engine.Config{Models: &model.Registry{
		HTTP: http.DefaultClient, Providers: func() (runnerconfig.Providers, error) { return runnerconfig.Providers{}, nil },
	}})
}

// runner executes runs with the given number of slots until the benchmark ends.
func runner(tb testing.TB, dispatch serve.Dispatch, engine *engine.Engine, slots int) {
	tb.Helper()
	server, err := serve.New(serve.Options{Dispatch: dispatch, RunnerID: "bench", Concurrency: slots, Grace: time.Second, Engine: engine})
	require.NoError(tb, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	tb.Cleanup(func() {
		stop()
		tb.Log("runner:", <-ended)
	})
}
