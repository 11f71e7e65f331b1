// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
	"github.com/agentplatform/agentplatform/internal/testenv/webhooktest"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

const secret, runnerToken = "s3cret", "runner-token"

// bundle is a gateway with a real store. The store has one environment with a live deployment of
// the agent `hello`.
type bundle struct {
	t           *testing.T
	store       *sqlite.Store
	gateway     *Gateway
	project     uuid.UUID
	environment uuid.UUID
}

func setup(t *testing.T) *bundle {
	t.Helper()
	return setupWith(t, func(*Options) {})
}

// setupWith is setup with changed options.
func setupWith(t *testing.T, edit func(*Options)) *bundle {
	t.Helper()
	ctx := t.Context()
	st, err := sqlite.Open(ctx, sqlite.Options{Path: sqlitetest.Migrated(t), Logger: slog.New(slog.DiscardHandler), Evaluate: expr.On})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	b := &bundle{t: t, store: st, project: uuid.New(), environment: uuid.New()}
	b.gateway = b.serveWith(st, edit)

	require.NoError(t, st.PutProject(ctx, store.Project{Ref: ref("Project", "project", 1), ID: b.project}))
	require.NoError(t, st.PutEnvironment(ctx, store.Environment{
		Ref: ref("Environment", "dev", 1), ID: b.environment, ProjectID: b.project, DisplayName: "dev", Slug: "dev", Kind: "standard",
		ObjectCreatedAt: time.Unix(1, 0),
	}))
	require.NoError(t, st.PutToken(ctx, store.Token{
		SHA256: secrets.Digest(runnerToken), Kind: store.TokenRunner, ProjectID: b.project, EnvironmentID: b.environment,
	}))
	b.deploy("hello")
	return b
}

// serve runs a gateway with a store until the test ends.
func (b *bundle) serve(st store.Store) *Gateway { return b.serveWith(st, func(*Options) {}) }

func (b *bundle) serveWith(st store.Store, edit func(*Options)) *Gateway {
	opts := Options{
		Store: st, PublicAddr: "127.0.0.1:0", InternalAddr: "127.0.0.1:0", Grace: 10 * time.Second, Logger: slog.New(slog.DiscardHandler),
	}
	edit(&opts)
	gateway, err := New(opts)
	require.NoError(b.t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- gateway.Run(ctx) }()
	b.t.Cleanup(func() {
		stop()
		require.NoError(b.t, <-ended)
	})
	return gateway
}

func ref(kind, name string, generation int64) store.ObjectRef {
	return store.ObjectRef{Namespace: "team", Kind: kind, Name: name, ObjectUID: kind + name, Generation: generation}
}

// deploy activates a deployment with the given agents.
func (b *bundle) deploy(agents ...string) {
	of := make([]store.Agent, len(agents))
	for i, name := range agents {
		of[i] = store.Agent{Name: name, Type: "llm"}
	}
	b.deployAgents(of...)
}

// deployAgents is deploy for agents with more than a name.
func (b *bundle) deployAgents(agents ...store.Agent) {
	ctx, id := b.t.Context(), uuid.New()
	spec := store.DeploymentSpec{
		Ref: ref("Deployment", id.String(), 1), ID: id, ProjectID: b.project, EnvironmentID: b.environment,
		Fingerprint: "f", SourceType: "git",
	}
	_, err := b.store.BeginDeployment(ctx, spec)
	require.NoError(b.t, err)
	require.NoError(b.t, b.store.StartBuild(ctx, spec.Key(), ""))
	data := []byte("bundle " + id.String())
	digest := "sha256:" + hexDigest(data)
	_, err = b.store.PutBundle(ctx, spec.Key(), digest, bytes.NewReader(data), 1<<20)
	require.NoError(b.t, err)
	result := store.BuildResult{BundleDigest: digest, Agents: agents}
	require.NoError(b.t, b.store.FinishBuild(ctx, spec.Key(), result))
	_, err = b.store.Activate(ctx, store.Activation{Deployment: spec.Key()})
	require.NoError(b.t, err)
}

func hexDigest(data []byte) string {
	const digits = "0123456789abcdef"
	var out strings.Builder
	for _, c := range secrets.Digest(string(data)) {
		out.WriteByte(digits[c>>4])
		out.WriteByte(digits[c&15])
	}
	return out.String()
}

// connector projects a connector with links to agents. edit can change it.
func (b *bundle) connector(mode string, edit func(*store.Connector), agents ...string) store.Connector {
	name := "c" + uuid.NewString()
	c := store.Connector{
		Ref: ref("Connector", name, 1), ID: uuid.New(), ProjectID: b.project, EnvironmentID: b.environment,
		Name: name, Type: "webhook", Mode: mode, Enabled: true, Config: json.RawMessage(`{"timeout_seconds":30}`),
		SecretDigest: secrets.Digest(secret),
	}
	if edit != nil {
		edit(&c)
	}
	require.NoError(b.t, b.store.PutConnector(b.t.Context(), c))
	for i, agent := range agents {
		b.link(c, agent, i)
	}
	return c
}

func (b *bundle) link(c store.Connector, agent string, age int) {
	require.NoError(b.t, b.store.PutLink(b.t.Context(), store.Link{
		Ref: ref("ConnectorLink", uuid.NewString(), 1), ID: uuid.New(), ProjectID: b.project, ConnectorID: c.ID,
		AgentName: agent, ObjectCreatedAt: time.Unix(int64(age), 0),
	}))
}

// hook returns the path of a connector's webhook.
func (b *bundle) hook(id string) string { return "/hooks/" + b.project.String() + "/" + id }

type reply struct {
	status int
	header http.Header
	body   map[string]any
}

// post sends a JSON POST with the right secret. edit can change it.
func (b *bundle) post(gateway *Gateway, id, body string, edit func(*http.Request)) reply {
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, "http://"+gateway.PublicAddr()+b.hook(id), strings.NewReader(body))
	require.NoError(b.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Service-Secret", secret)
	if edit != nil {
		edit(req)
	}
	resp, err := (&http.Client{}).Do(req)
	require.NoError(b.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	webhooktest.Answer(b.t, req.Method, resp.StatusCode, resp.Header, data)
	out := reply{status: resp.StatusCode, header: resp.Header}
	require.NoError(b.t, json.Unmarshal(data, &out.body), string(data))
	return out
}

// runner completes each run with the result of play, until the test ends.
func (b *bundle) runner(play func(dispatchapi.Run) dispatchapi.CompleteRequest) {
	client, err := dispatchapi.NewClient(dispatchapi.Options{URL: "http://" + b.gateway.InternalAddr(), Token: runnerToken})
	require.NoError(b.t, err)
	b.runnerBy(client, play)
}

// runnerBy is runner with another client.
func (b *bundle) runnerBy(client *dispatchapi.Client, play func(dispatchapi.Run) dispatchapi.CompleteRequest) {
	ctx, stop := context.WithCancel(context.Background())
	ended, id := make(chan error, 1), uuid.NewString()
	go func() {
		live, err := b.store.Environment(ctx, store.Key{ProjectID: b.project, ID: b.environment})
		if err != nil {
			ended <- err
			return
		}
		for ctx.Err() == nil {
			resp, err := client.Claim(ctx, dispatchapi.ClaimRequest{RunnerID: id, Digests: []string{live.LiveBundleDigest}, Limit: 8, WaitSeconds: 30})
			for _, run := range resp.Runs {
				err = errors.Join(err, client.Complete(ctx, run.ID, play(run)))
			}
			if err != nil && ctx.Err() == nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	b.t.Cleanup(func() {
		stop()
		require.NoError(b.t, <-ended)
	})
}

// waits reports sync webhooks that start to wait. The test ends their time limit.
type waits chan wait

type wait struct {
	after time.Duration
	end   context.CancelFunc
}

func (w waits) withTimeout(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancel(ctx)
	w <- wait{after, end}
	return ctx, end
}

// TestRetention_Minimum: with less than two days, open runs would be deleted.
func TestRetention_Minimum(t *testing.T) {
	t.Parallel()
	for _, retention := range []time.Duration{-time.Hour, time.Hour, store.MinRetention - 1} {
		_, err := New(Options{Retention: retention})
		require.ErrorContains(t, err, "is below the minimum of 48h0m0s")
	}
}

// A gateway without keys exports traces too, so their outbox does not grow.
func TestTraces_NeedNoKeys(t *testing.T) {
	t.Parallel()
	paths := make(chan string, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { paths <- r.URL.Path }))
	t.Cleanup(collector.Close)
	b := setupWith(t, func(o *Options) {
		o.Guard = egress.New(egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.Telemetry: {netip.MustParsePrefix("127.0.0.0/8")}}})
	})
	require.NoError(t, b.store.PutProject(t.Context(), store.Project{
		Ref: ref("Project", "project", 2), ID: b.project, Telemetry: &store.Telemetry{Endpoint: collector.URL, SamplePercent: 100},
	}))
	in := b.connector("sync", nil, "hello")
	b.runner(func(run dispatchapi.Run) dispatchapi.CompleteRequest {
		return dispatchapi.CompleteRequest{Token: run.Token, Status: string(store.RunCompleted), Output: "42"}
	})
	require.Equal(t, http.StatusOK, b.post(b.gateway, in.ID.String(), `{}`, nil).status)
	require.Equal(t, "/v1/traces", <-paths)
}
