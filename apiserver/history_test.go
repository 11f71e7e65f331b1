// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// pastStore is a store with one of everything.
type pastStore struct {
	emptyStore
	run          store.Run
	connectorRun store.ConnectorRun
	deployment   store.Deployment
}

func (p *pastStore) Run(_ context.Context, key store.Key) (store.Run, error) {
	if key != p.run.Key() {
		return store.Run{}, store.ErrNotFound
	}
	return p.run, nil
}

func (p *pastStore) RunInput(context.Context, store.Key) (string, io.ReadCloser, error) {
	return "application/json; charset=utf-8", io.NopCloser(strings.NewReader(`{"name":"Ada"}`)), nil
}

func (p *pastStore) ListRuns(_ context.Context, q store.RunQuery) ([]store.Run, error) {
	if q.ProjectID != p.run.ProjectID {
		return nil, nil
	}
	return []store.Run{p.run}, nil
}

func (p *pastStore) ConnectorRun(_ context.Context, key store.Key) (store.ConnectorRun, error) {
	if key != p.connectorRun.Key() {
		return store.ConnectorRun{}, store.ErrNotFound
	}
	return p.connectorRun, nil
}

func (p *pastStore) Outcome(context.Context, store.Key) (store.Outcome, error) {
	return store.Outcome{Status: store.ConnectorRunCompleted, Runs: []store.Run{p.run}}, nil
}

func (p *pastStore) ListConnectorRuns(_ context.Context, q store.ConnectorRunQuery) ([]store.ConnectorRun, int64, error) {
	if q.Connector.ID != p.connectorRun.ConnectorID || q.Since != 7*24*time.Hour || q.Limit != 25 {
		return nil, 0, nil
	}
	return []store.ConnectorRun{p.connectorRun}, 1, nil
}

func (p *pastStore) Deployment(_ context.Context, key store.Key) (store.Deployment, error) {
	if key != p.deployment.Key() {
		return store.Deployment{}, store.ErrNotFound
	}
	return p.deployment, nil
}

func (p *pastStore) ListDeployments(context.Context, store.Key) ([]store.Deployment, error) {
	return []store.Deployment{p.deployment}, nil
}

func (p *pastStore) BuildLog(context.Context, store.Key) (string, error) {
	return "packed 1 agent\n", nil
}

func (p *pastStore) Environment(context.Context, store.Key) (store.Environment, error) {
	return store.Environment{LiveDeploymentID: &p.deployment.ID}, nil
}

func (p *pastStore) Agents(context.Context, store.Key) ([]store.AgentSummary, error) {
	return []store.AgentSummary{
		{Agent: &p.deployment.Agents[0], Name: "hello", RunCount: 1, LastActivityAt: &p.run.QueuedAt, HasInboundConnector: true},
		{Agent: &store.Agent{Name: "hello-b", Type: "llm", SourcePath: "agents/hello-test-b.yaml", VariantOf: "hello"}, Name: "hello-b"},
		{Name: "gone", RunCount: 3},
	}, nil
}

func (p *pastStore) AgentConfig(_ context.Context, _ store.Key, name string) (json.RawMessage, error) {
	if name != "hello" {
		return nil, store.ErrNotFound
	}
	return json.RawMessage(`{"name":"hello"}`), nil
}

// newPast makes a world in which one webhook was answered.
func newPast(t *testing.T) (*world, *pastStore, *v1alpha1.Connector) {
	t.Helper()
	past := &pastStore{}
	w := newWorld(t, past)
	conn := &v1alpha1.Connector{ObjectMeta: w.meta("tickets"), Spec: v1alpha1.ConnectorSpec{
		Environment: "production", Mode: v1alpha1.ModeSync, Webhook: &v1alpha1.WebhookConnector{},
	}}
	w.create(t, conn)
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	ended := began.Add(1500 * time.Millisecond)
	environment, connector := uuid.MustParse(w.environmentID("production")), uuid.MustParse(conn.Status.ID)
	past.deployment = store.Deployment{
		DeploymentSpec: store.DeploymentSpec{ID: uuid.New(), ProjectID: w.projectID, EnvironmentID: environment, SourceType: "git", Branch: "main"},
		Status:         store.DeploymentDeployed, ResolvedCommit: strings.Repeat("a", 40), CreatedAt: began, EndedAt: &ended,
		Agents:          []store.Agent{{Name: "hello", Type: "llm", SourcePath: "agents/hello.yaml"}},
		FailedTestCount: 1, TestResults: json.RawMessage(`[{"passed":true},{"passed":false}]`),
	}
	past.connectorRun = store.ConnectorRun{
		ID: uuid.New(), ProjectID: w.projectID, EnvironmentID: environment, ConnectorID: connector,
		Status: store.ConnectorRunCompleted, Trigger: store.TriggerWebhook, StartedAt: began, EndedAt: &ended,
	}
	past.run = store.Run{
		ID: uuid.New(), ProjectID: w.projectID, EnvironmentID: environment, AgentName: "hello", ConnectorID: &connector,
		ConnectorRunID: &past.connectorRun.ID, DeploymentID: &past.deployment.ID, Status: store.RunCompleted,
		Output: "Hello, Ada", Attempt: 1, QueuedAt: began, StartedAt: &began, EndedAt: &ended,
	}
	past.connectorRun.RunIDs = []uuid.UUID{past.run.ID}
	return w, past, conn
}

func TestRunsAreShown(t *testing.T) {
	t.Parallel()
	w, past, conn := newPast(t)
	key := w.key(t, nil)
	status, body := w.call(t, key, http.MethodGet, "/runs/"+past.run.ID.String(), "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	run := decode[Run](t, body)
	require.Equal(t, "Hello, Ada", *run.Output)
	require.Equal(t, map[string]any{"name": "Ada"}, run.Input)
	require.EqualValues(t, 1500, *run.DurationMS)
	require.Contains(t, string(body), `"queued_at":"2026-01-02T02:04:05Z"`)
	require.Len(t, decode[map[string]any](t, body), 24, "all fields, null or not")
	_, body = w.call(t, key, http.MethodGet, "/runs", "")
	runs := decode[[]Run](t, body)
	require.Len(t, runs, 1)
	require.Nil(t, runs[0].Output, "lists carry no outputs")

	path := "/connectors/" + conn.Status.ID + "/runs"
	_, body = w.call(t, key, http.MethodGet, path, "")
	page := decode[ConnectorRunList](t, body)
	require.EqualValues(t, 1, page.Total)
	require.Equal(t, 25, page.Limit)
	require.Equal(t, 1, page.Items[0].DispatchedTo)
	_, body = w.call(t, key, http.MethodGet, path+"/"+page.Items[0].ID, "")
	require.Equal(t, "Hello, Ada", *decode[ConnectorRun](t, body).Output)
	status, _ = w.call(t, key, http.MethodGet, path+"?limit=101", "")
	require.Equal(t, http.StatusUnprocessableEntity, status)
}

func TestWhatHappenedElsewhereIsNotShown(t *testing.T) {
	t.Parallel()
	w, past, _ := newPast(t)
	staging := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	all := w.key(t, nil)
	paths := []string{"/runs/" + past.run.ID.String(), "/deployments/" + past.deployment.ID.String()}
	for _, path := range paths {
		status, _ := w.call(t, staging, http.MethodGet, path, "")
		require.Equal(t, http.StatusForbidden, status, path)
	}
	past.run.ProjectID, past.deployment.ProjectID = uuid.New(), uuid.New()
	for _, path := range paths {
		for _, key := range []string{all, staging} {
			status, _ := w.call(t, key, http.MethodGet, path, "")
			require.Equal(t, http.StatusNotFound, status, path)
		}
	}
}

func TestAgentsAndDeploymentsAreShown(t *testing.T) {
	t.Parallel()
	w, past, _ := newPast(t)
	w.create(t, &v1alpha1.ConnectorLink{ObjectMeta: w.meta("tickets-hello"), Spec: v1alpha1.ConnectorLinkSpec{Connector: "tickets", Agent: "hello"}})
	key, query := w.key(t, nil), "?environment_id="+w.environmentID("production")
	_, body := w.call(t, key, http.MethodGet, "/agents"+query, "")
	list := decode[[]Agent](t, body)
	require.Len(t, list, 2, "variants are left out")
	require.Equal(t, "deployed", list[0].DeploymentStatus)
	require.Equal(t, "not_deployed", list[1].DeploymentStatus)
	_, body = w.call(t, key, http.MethodGet, "/agents"+query+"&include_variants=true", "")
	require.Len(t, decode[[]Agent](t, body), 3)
	_, body = w.call(t, key, http.MethodGet, "/agents/hello"+query, "")
	agent := decode[AgentDetails](t, body)
	require.Equal(t, map[string]any{"name": "hello"}, agent.Config)
	require.Len(t, agent.Connectors, 1)
	status, _ := w.call(t, key, http.MethodGet, "/agents/nobody"+query, "")
	require.Equal(t, http.StatusNotFound, status)

	_, body = w.call(t, key, http.MethodGet, "/deployments"+query, "")
	items := decode[[]DeploymentItem](t, body)
	require.Equal(t, 1, items[0].FailedTestCount)
	require.Nil(t, items[0].TestResults)
	require.True(t, items[0].IsLive)
	_, body = w.call(t, key, http.MethodGet, "/deployments/"+past.deployment.ID.String(), "")
	require.Equal(t, "packed 1 agent\n", *decode[Deployment](t, body).BuildLogs)
}
