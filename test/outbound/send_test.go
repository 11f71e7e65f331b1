// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/internal/testenv/scripttest"
	"github.com/agentplatform/agentplatform/internal/testenv/webhooktest"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/features"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/script"
	"github.com/agentplatform/agentplatform/runner/serve"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
	"github.com/agentplatform/agentplatform/webhookgw"
)

func TestMain(m *testing.M) { scripttest.Main(m) }

const runnerToken = "a runner's"

// place is an environment with a gateway and a runner.
type place struct {
	t           *testing.T
	store       *sqlite.Store
	gateway     *webhookgw.Gateway
	project     uuid.UUID
	environment uuid.UUID
	keys        *secrets.Keys
	derivation  string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "store.db"), Logger: slog.New(slog.DiscardHandler), Evaluate: expr.On})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	require.NoError(t, st.Migrate(t.Context()))
	p := &place{t: t, store: st, project: uuid.New(), environment: uuid.New(), keys: &secrets.Keys{}}
	ring, err := secrets.NewRing()
	require.NoError(t, err)
	p.derivation = ring.IDs(secrets.Derivation)[0]
	require.NoError(t, p.keys.Set(ring, []string{p.derivation, ring.IDs(secrets.Sealing)[0]}))
	require.NoError(t, st.PutProject(t.Context(), store.Project{Ref: ref("Project"), ID: p.project}))
	require.NoError(t, st.PutEnvironment(t.Context(), store.Environment{
		Ref: ref("Environment"), ID: p.environment, ProjectID: p.project, DisplayName: "dev", Slug: "dev", Kind: "standard", ObjectCreatedAt: time.Unix(1, 0),
	}))
	require.NoError(t, st.PutToken(t.Context(), store.Token{
		SHA256: secrets.Digest(runnerToken), Kind: store.TokenRunner, ProjectID: p.project, EnvironmentID: p.environment,
	}))
	p.gateway, err = webhookgw.New(webhookgw.Options{
		Store: st, PublicAddr: "127.0.0.1:0", InternalAddr: "127.0.0.1:0", Grace: 10 * time.Second, Logger: slog.New(slog.DiscardHandler), Keys: p.keys,
		Guard: egress.New(egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.Webhook: {netip.MustParsePrefix("127.0.0.0/8")}}}),
	})
	require.NoError(t, err)
	p.until(p.gateway.Run)
	client, err := dispatchapi.NewClient(dispatchapi.Options{URL: "http://" + p.gateway.InternalAddr(), Token: runnerToken})
	require.NoError(t, err)
	scripts, err := script.NewPool(script.Options{})
	require.NoError(t, err)
	t.Cleanup(scripts.Close)
	server, err := serve.New(serve.Options{
		Dispatch: client, RunnerID: "r", Grace: time.Second, Engine: engine.New(engine.Config{Models: &model.Registry{}, Features: features.New(features.Config{Scripts: scripts})}),
	})
	require.NoError(t, err)
	p.until(server.Run)
	return p
}

// until runs something until the test ends.
func (p *place) until(run func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	p.t.Cleanup(func() {
		stop()
		require.NoError(p.t, <-ended)
	})
}

func ref(kind string) store.ObjectRef {
	return store.ObjectRef{Namespace: "team", Kind: kind, Name: uuid.NewString(), ObjectUID: uuid.NewString(), Generation: 1}
}

// deploy makes a project live that has one agent of a script, and more files of names and contents.
func (p *place) deploy(agent, steps string, more ...string) {
	ctx := p.t.Context()
	var packed bytes.Buffer
	files := bundle.Files{
		"agents/" + agent + ".yaml": []byte("name: " + agent + "\nmodel: scripted/" + agent + "\n"), "models/" + agent + ".yaml": []byte(steps),
	}
	for i := 0; i < len(more); i += 2 {
		files[more[i]] = []byte(more[i+1])
	}
	digest, _, err := bundle.Pack(files, &packed)
	require.NoError(p.t, err)
	_, err = p.store.PutBundle(ctx, store.Key{ProjectID: p.project}, digest, &packed, 1<<20)
	require.NoError(p.t, err)
	key := store.Key{ProjectID: p.project, ID: uuid.New()}
	_, err = p.store.BeginDeployment(ctx, store.DeploymentSpec{
		Ref: ref("Deployment"), ID: key.ID, ProjectID: p.project, EnvironmentID: p.environment, Fingerprint: "f", SourceType: "git",
	})
	require.NoError(p.t, err)
	require.NoError(p.t, p.store.StartBuild(ctx, key, ""))
	require.NoError(p.t, p.store.FinishBuild(ctx, key, store.BuildResult{BundleDigest: digest, Agents: []store.Agent{{Name: agent, Type: "llm"}}}))
	_, err = p.store.Activate(ctx, store.Activation{Deployment: key})
	require.NoError(p.t, err)
}

// connect makes a connector that an agent is linked to.
func (p *place) connect(mode, config, agent string, outbound *store.OutboundPolicy) store.Connector {
	c := store.Connector{
		Ref: ref("Connector"), ID: uuid.New(), ProjectID: p.project, EnvironmentID: p.environment, Name: mode + uuid.NewString(), Type: "webhook",
		Mode: mode, Enabled: true, Config: json.RawMessage(config), SecretKey: p.derivation, SecretVersion: 1,
	}
	require.NoError(p.t, p.store.PutConnector(p.t.Context(), c))
	require.NoError(p.t, p.store.PutLink(p.t.Context(), store.Link{
		Ref: ref("ConnectorLink"), ID: uuid.New(), ProjectID: p.project, ConnectorID: c.ID, AgentName: agent, Outbound: outbound, ObjectCreatedAt: time.Unix(1, 0),
	}))
	return c
}

// arrival is what a destination was sent.
type arrival struct {
	headers http.Header
	body    []byte
}

// destination answers each request with a status.
func destination(t *testing.T, status int) (url string, arrived <-chan arrival) {
	t.Helper()
	arrivals := make(chan arrival, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil {
			arrivals <- arrival{r.Header.Clone(), body}
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(receiver.Close)
	return receiver.URL, arrivals
}

// A tool sends a payload. If its destination rejects the payload, another destination gets the failure.
func TestSend_FromToolToDestination(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.deploy("hello", `steps: [{turn: 1, tool_calls: [{name: tell, arguments: {payload: {order: 7}}}, {name: shout, arguments: {payload: [7]}}]}, {text: done}]`)
	in := p.connect("sync", `{"authentication":"none"}`, "hello", nil)
	good, arrived := destination(t, http.StatusNoContent)
	bad, refused := destination(t, http.StatusBadRequest)
	ops, told := destination(t, http.StatusOK)
	out := p.connect("outbound", fmt.Sprintf(`{"url":%q}`, good), "hello", &store.OutboundPolicy{Mode: store.LinkAgentTool, ActionName: "tell"})
	failing := p.connect("outbound", fmt.Sprintf(`{"url":%q}`, bad), "hello", &store.OutboundPolicy{Mode: store.LinkAgentTool, ActionName: "shout"})
	p.connect("outbound", fmt.Sprintf(`{"url":%q}`, ops), "hello", &store.OutboundPolicy{Mode: store.LinkAutomatic, Statuses: []store.RunStatus{store.StatusDeliveryFailed}})

	answer, err := http.Post(fmt.Sprintf("http://%s/hooks/%s/%s", p.gateway.PublicAddr(), p.project, in.ID), "application/json", bytes.NewReader([]byte(`{}`)))
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	var said struct {
		Result struct {
			RunID  uuid.UUID `json:"run_id"`
			Output string    `json:"output"`
		} `json:"result"`
	}
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&said))
	require.Equal(t, "done", said.Result.Output)

	got := <-arrived
	require.JSONEq(t, `{"order":7}`, string(got.body))
	secret, err := p.keys.SigningSecret(p.derivation, secrets.Generated{ProjectID: p.project, ConnectorID: out.ID, Version: 1})
	require.NoError(t, err)
	verify, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	require.NoError(t, verify.Verify(got.body, got.headers))

	shout := <-refused
	require.JSONEq(t, `[7]`, string(shout.body))
	var word store.FailedDelivery
	failure := <-told
	require.NoError(t, json.Unmarshal(failure.body, &word))
	require.EqualValues(t, 1, word.Count)
	require.Equal(t, "payload", got.headers.Get("X-Service-Event"))
	require.Equal(t, "delivery_failed", failure.headers.Get("X-Service-Event"))
	require.Equal(t, shout.headers.Get("X-Service-Delivery"), word.DeliveryID.String())
	require.Equal(t, failing.ID, word.ConnectorID)
	require.Equal(t, said.Result.RunID, word.RunID)
	require.Equal(t, http.StatusBadRequest, word.StatusCode)
	require.Equal(t, "http_status", word.ErrorClass)
	webhooktest.Delivery(t, webhooktest.Payload, got.headers, got.body)
	webhooktest.Delivery(t, webhooktest.Payload, shout.headers, shout.body)
	webhooktest.Delivery(t, webhooktest.DeliveryFailed, failure.headers, failure.body)
}

// Middleware sends a payload over a link in its mode, and learns what it cannot send.
func TestSend_FromMiddlewareToDestination(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	in := p.connect("sync", `{"authentication":"none"}`, "hello", nil)
	url, arrived := destination(t, http.StatusNoContent)
	out := p.connect("outbound", fmt.Sprintf(`{"url":%q}`, url), "hello", &store.OutboundPolicy{Mode: store.LinkMiddleware})
	tool := p.connect("outbound", fmt.Sprintf(`{"url":%q}`, url), "hello", &store.OutboundPolicy{Mode: store.LinkAgentTool, ActionName: "tell"})
	p.deploy("hello", `steps: [{text: done}]`, "middleware/hello.star", fmt.Sprintf(`
def before(content, context):
    if context["payload"]["to"] == "tool":
        send_connector(%q, {"payload": 1})
    return content

def after(response, context):
    send_connector(%q, {"payload": {"text": response["parts"][0]["text"], "order": context["payload"]["order"]}})
    return response
`, tool.Name, out.Name))
	call := func(body string) (result struct{ Status, Output, Error string }) {
		answer, err := http.Post(fmt.Sprintf("http://%s/hooks/%s/%s", p.gateway.PublicAddr(), p.project, in.ID), "application/json", strings.NewReader(body))
		require.NoError(t, err)
		defer func() { _ = answer.Body.Close() }()
		var said struct {
			Result *struct{ Status, Output, Error string } `json:"result"`
		}
		said.Result = &result
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&said))
		return result
	}
	require.Equal(t, "done", call(`{"to":"crm","order":9007199254740993}`).Output)
	got := <-arrived
	require.Equal(t, `{"order":9007199254740993,"text":"done"}`, string(got.body))
	require.Equal(t, "payload", got.headers.Get("X-Service-Event"))
	webhooktest.Delivery(t, webhooktest.Payload, got.headers, got.body)
	failed := call(`{"to":"tool","order":1}`)
	require.Equal(t, "failed", failed.Status)
	require.Contains(t, failed.Error, "before of middleware/hello.star failed: send_connector: Not sent: no link in the mode middleware joins")
}

// An agent whose results go to its own webhook.
func TestSend_LoopEnds(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.deploy("hello", `steps: [{text: again}]`)
	in := p.connect("inbound", `{"authentication":"none"}`, "hello", nil)
	url := fmt.Sprintf("http://%s/hooks/%s/%s", p.gateway.PublicAddr(), p.project, in.ID)
	out := p.connect("outbound", fmt.Sprintf(`{"url":%q}`, url), "hello", &store.OutboundPolicy{Mode: store.LinkAutomatic})
	answer, err := http.Post(url, "application/json", bytes.NewReader([]byte(`{}`)))
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	count := func(c store.Connector, statuses ...store.ConnectorRunStatus) int64 {
		_, total, err := p.store.ListConnectorRuns(t.Context(), store.ConnectorRunQuery{Connector: c.Key(), Statuses: statuses, Limit: 1})
		require.NoError(t, err)
		return total
	}
	require.Eventually(t, func() bool { return count(out, store.ConnectorRunFailed) == 1 }, time.Minute, 10*time.Millisecond)
	require.EqualValues(t, store.MaxHops, count(out, store.ConnectorRunCompleted))
	require.EqualValues(t, store.MaxHops+1, count(in))
}
