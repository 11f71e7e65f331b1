// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"net/netip"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
	"github.com/agentplatform/agentplatform/webhookgw"
)

// secret is the secret of all connectors, runnerToken the token of the runners.
const (
	secret      = "whs_clients"
	runnerToken = "runner-token"
)

// platform is a gateway on SQLite with one agent.
type platform struct {
	t                    *testing.T
	store                *sqlite.Store
	url, internalURL     string
	keys                 *secrets.Keys
	derivation           string
	project, environment uuid.UUID
}

func startPlatform(t *testing.T) *platform {
	t.Helper()
	ctx := t.Context()
	st, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(t.TempDir(), "store.db"), Logger: slog.New(slog.DiscardHandler), Evaluate: expr.On})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	require.NoError(t, st.Migrate(ctx))
	ring, err := secrets.NewRing()
	require.NoError(t, err)
	p := &platform{t: t, store: st, keys: &secrets.Keys{}, derivation: ring.IDs(secrets.Derivation)[0], project: uuid.New(), environment: uuid.New()}
	require.NoError(t, p.keys.Set(ring, []string{p.derivation, ring.IDs(secrets.Sealing)[0]}))
	require.NoError(t, st.PutProject(ctx, store.Project{Ref: objectRef("Project", "project"), ID: p.project}))
	require.NoError(t, st.PutEnvironment(ctx, store.Environment{
		Ref: objectRef("Environment", "dev"), ID: p.environment, ProjectID: p.project, DisplayName: "dev", Slug: "dev", Kind: "standard", ObjectCreatedAt: time.Unix(1, 0),
	}))
	require.NoError(t, st.PutToken(ctx, store.Token{
		SHA256: secrets.Digest(runnerToken), Kind: store.TokenRunner, ProjectID: p.project, EnvironmentID: p.environment,
	}))
	p.deployAgent()
	local := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	gateway, err := webhookgw.New(webhookgw.Options{
		Store: st, PublicAddr: "127.0.0.1:0", InternalAddr: "127.0.0.1:0", Grace: 10 * time.Second, Logger: slog.New(slog.DiscardHandler), Keys: p.keys,
		Guard: egress.New(egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.Webhook: local, egress.Telemetry: local}}),
	})
	require.NoError(t, err)
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- gateway.Run(running) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	p.url, p.internalURL = "http://"+gateway.PublicAddr(), "http://"+gateway.InternalAddr()
	return p
}

func objectRef(kind, name string) store.ObjectRef {
	return store.ObjectRef{Namespace: "team", Kind: kind, Name: name, ObjectUID: kind + name, Generation: 1}
}

// deployAgent makes a deployment with the agent hello live.
func (p *platform) deployAgent() {
	ctx, id := p.t.Context(), uuid.New()
	spec := store.DeploymentSpec{Ref: objectRef("Deployment", "v1"), ID: id, ProjectID: p.project, EnvironmentID: p.environment, Fingerprint: "f", SourceType: "git"}
	_, err := p.store.BeginDeployment(ctx, spec)
	require.NoError(p.t, err)
	require.NoError(p.t, p.store.StartBuild(ctx, spec.Key(), ""))
	digest := sha256.Sum256([]byte("bundle"))
	name := "sha256:" + hex.EncodeToString(digest[:])
	_, err = p.store.PutBundle(ctx, spec.Key(), name, bytes.NewReader([]byte("bundle")), 1<<20)
	require.NoError(p.t, err)
	require.NoError(p.t, p.store.FinishBuild(ctx, spec.Key(), store.BuildResult{BundleDigest: name, Agents: []store.Agent{{Name: "hello", Type: "llm"}}}))
	_, err = p.store.Activate(ctx, store.Activation{Deployment: spec.Key()})
	require.NoError(p.t, err)
}

// connector creates a connector with a link to the agent. edit changes it before.
func (p *platform) connector(name string, edit func(*store.Connector)) store.Connector {
	p.t.Helper()
	c := store.Connector{
		Ref: objectRef("Connector", name), ID: uuid.New(), ProjectID: p.project, EnvironmentID: p.environment, Name: name, Type: "webhook", Mode: "inbound",
		Enabled: true, Config: []byte(`{}`), SecretDigest: secrets.Digest(secret), SecretVersion: 1,
	}
	link := store.Link{
		Ref: objectRef("ConnectorLink", name), ID: uuid.New(), ProjectID: p.project, ConnectorID: c.ID, AgentName: "hello", ObjectCreatedAt: time.Unix(1, 0),
	}
	if edit != nil {
		edit(&c)
		link.Outbound = &store.OutboundPolicy{Mode: store.LinkAutomatic}
	}
	require.NoError(p.t, p.store.PutConnector(p.t.Context(), c))
	require.NoError(p.t, p.store.PutLink(p.t.Context(), link))
	return c
}

// webhookURL returns the URL of a connector with its secret.
func (p *platform) webhookURL(c store.Connector) string {
	return v1alpha1.WebhookURL(p.url, p.project, c.ID) + "?secret=" + secret
}

// listRuns returns the events that a connector has accepted.
func (p *platform) listRuns(c store.Connector) (newest []store.ConnectorRun, total int64) {
	p.t.Helper()
	newest, total, err := p.store.ListConnectorRuns(p.t.Context(), store.ConnectorRunQuery{Connector: c.Key(), Limit: 10})
	require.NoError(p.t, err)
	return newest, total
}

// readAll returns the content of a blob.
func readAll(t *testing.T, r io.ReadCloser) []byte {
	t.Helper()
	data, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	return data
}

// run runs a third-party program and returns its output. The test fails if the program is not installed.
func run(t *testing.T, stdin []byte, dir, program string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	command.Dir, command.Stdin = dir, bytes.NewReader(stdin)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	require.NoError(t, err, "%s %v: %s%s", program, args, out, stderr.Bytes())
	return string(out)
}
