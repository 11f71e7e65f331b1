// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/serve"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
	"github.com/agentplatform/agentplatform/webhookgw"
)

// aims are the least that a ratio should be (rates), or the most (times).
var aims = map[string]float64{
	"inbound/postgres/bare": 0.35, "inbound/postgres/inserts": 1.5, "inbound/sqlite/inserts": 0.5,
	"sync/postgres/1/p50": 2, "sync/sqlite/1/p50": 2,
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

// BenchmarkInbound: accepted webhooks at 64 clients against a handler that only
// decodes the body, and against the same rows inserted without HTTP, one
// transaction an event, at 64 connections.
func BenchmarkInbound(b *testing.B) {
	const clients = 64
	server := httptest.NewServer(http.HandlerFunc(bare))
	defer server.Close()
	_, decoded := post(b, clients, server.Listener.Addr().String(), "/")
	engines(b, func(b *testing.B, e *database) {
		scene := storebench.NewScene(b, e.store, 1)
		yardstick := e.yardstick(b)
		_, inserted := load(b, clients, func(int) error {
			return yardstick.insert(context.Background())
		})
		_, accepted := post(b, clients, gateway(b, e.store).PublicAddr(), "/hooks/"+scene.Project.String()+"/"+scene.Connector.String())
		name := "inbound/" + e.name
		print(b, Rate(name+"/bare", "requests/s", accepted, decoded, aims[name+"/bare"]),
			Rate(name+"/inserts", "requests/s", accepted, inserted, aims[name+"/inserts"]))
	})
}

// BenchmarkSync: round trips of a sync webhook with the scripted model against
// three transactions of the same store that insert one row each; with one client
// also against what a round trip asks of the store, without HTTP and a runner.
func BenchmarkSync(b *testing.B) {
	engines(b, func(b *testing.B, e *database) {
		scene := storebench.NewScene(b, e.store, 1)
		asked, _ := load(b, 1, func(int) error {
			scene.Trip(context.Background(), b)
			return nil
		})
		hook := greeter(b, e.store, scene)
		gw := gateway(b, e.store)
		client, err := dispatchapi.NewClient(dispatchapi.Options{URL: "http://" + gw.InternalAddr(), Token: runnerToken})
		require.NoError(b, err)
		runner(b, client, 32)
		for _, clients := range []int{1, 16} {
			three, _ := load(b, clients, func(int) error {
				for range 3 {
					if err := e.commit(context.Background()); err != nil {
						return err
					}
				}
				return nil
			})
			trips, _ := post(b, clients, gw.PublicAddr(), "/hooks/"+scene.Project.String()+"/"+hook.String())
			for percentile, share := range map[string]float64{"p50": 0.5, "p99": 0.99} {
				name := "sync/" + e.name + "/" + strconv.Itoa(clients) + "/" + percentile
				print(b, Cost(name, "ms", Percentile(trips, share), Percentile(three, share), aims[name]))
				if clients == 1 {
					print(b, Cost(name+"/store", "ms", Percentile(trips, share), Percentile(asked, share), 0))
				}
			}
		}
	})
}

const runnerToken = "bench-runner"

// greeter makes a deployment with a scripted agent live and returns a sync
// connector that is linked to it.
func greeter(tb testing.TB, st store.Store, scene *storebench.Scene) uuid.UUID {
	tb.Helper()
	return deploy(tb, st, scene, agentName, "Hello.")
}

// deploy makes a deployment live whose one agent answers with a text, and returns a sync
// connector that is linked to it.
func deploy(tb testing.TB, st store.Store, scene *storebench.Scene, agent, text string) uuid.UUID {
	tb.Helper()
	ctx := tb.Context()
	files, err := bundle.ReadFiles(fstest.MapFS{
		"agents/" + agent + ".yaml": {Data: []byte("version: \"1.0\"\nname: " + agent + "\ntype: llm\nmodel: scripted/" + agent + "\nsystem_prompt: Greet.\n")},
		"models/" + agent + ".yaml": {Data: []byte("steps:\n  - text: " + text + "\n")},
	})
	require.NoError(tb, err)
	var packed bytes.Buffer
	digest, _, err := bundle.Pack(files, &packed)
	require.NoError(tb, err)
	_, err = st.PutBundle(ctx, scene.Project, digest, &packed, 1<<20)
	require.NoError(tb, err)
	ref := func(kind string) store.ObjectRef {
		return store.ObjectRef{Namespace: "bench", Kind: kind, Name: uuid.NewString(), ObjectUID: uuid.NewString(), Generation: 1}
	}
	deployment, connector := store.Key{ProjectID: scene.Project, ID: uuid.New()}, uuid.New()
	_, err = st.BeginDeployment(ctx, store.DeploymentSpec{
		Ref: ref(store.KindDeployment), ID: deployment.ID, ProjectID: scene.Project, EnvironmentID: scene.Environment, Fingerprint: "g", SourceType: "git",
	})
	require.NoError(tb, err)
	require.NoError(tb, st.StartBuild(ctx, deployment))
	require.NoError(tb, st.FinishBuild(ctx, deployment, store.BuildResult{BundleDigest: digest, Agents: []store.Agent{{Name: agent, Type: "llm"}}}))
	_, err = st.Activate(ctx, store.Activation{Deployment: deployment})
	require.NoError(tb, err)
	require.NoError(tb, st.PutConnector(ctx, store.Connector{
		Ref: ref(store.KindConnector), ID: connector, ProjectID: scene.Project, EnvironmentID: scene.Environment,
		Name: "ask", Type: "webhook", Mode: "sync", Enabled: true, Config: []byte(`{}`), TimeoutSeconds: 30,
	}))
	require.NoError(tb, st.PutLink(ctx, store.Link{
		Ref: ref(store.KindConnectorLink), ID: uuid.New(), ProjectID: scene.Project, ConnectorID: connector, AgentName: agent, ObjectCreatedAt: time.Unix(1, 0),
	}))
	require.NoError(tb, st.PutToken(ctx, store.Token{
		SHA256: seal.Digest(runnerToken), Kind: store.TokenRunner, ProjectID: scene.Project, EnvironmentID: scene.Environment,
	}))
	return connector
}

// runner executes runs, so many at a time, until the benchmark ends.
func runner(tb testing.TB, dispatch serve.Dispatch, places int) {
	tb.Helper()
	server, err := serve.New(serve.Options{
		Dispatch: dispatch, RunnerID: "bench", Concurrency: places, Grace: time.Second,
		Engine: engine.New(engine.Config{Models: &model.Registry{
			HTTP: http.DefaultClient, Providers: func() (runnerconfig.Providers, error) { return runnerconfig.Providers{}, nil },
		}}),
	})
	require.NoError(tb, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	tb.Cleanup(func() {
		stop()
		tb.Log("runner:", <-ended)
	})
}
