// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// ProjectWithHistory is a project with a live deployment and three events. The run of the first completed, the run of the
// second failed because the deployment lacks its agent, and the run of the third is queued.
type ProjectWithHistory struct {
	*Project
	Connector *v1alpha1.Connector
	Link      *v1alpha1.ConnectorLink
	// IDs are the IDs of the objects by the placeholders of paths, such as "open_run".
	IDs map[string]string

	CompletedRun, FailedRun, QueuedRun uuid.UUID
}

// NewProjectWithHistory returns a project with a history on SQLite.
func NewProjectWithHistory(t testing.TB) *ProjectWithHistory {
	t.Helper()
	return NewHistory(t, NewProject(t))
}

// NewHistory adds a history to a project.
func NewHistory(t testing.TB, project *Project) *ProjectWithHistory {
	t.Helper()
	p := &ProjectWithHistory{Project: project}
	p.Connector = &v1alpha1.Connector{ObjectMeta: p.Meta("tickets"), Spec: v1alpha1.ConnectorSpec{
		Environment: "production", Mode: v1alpha1.ModeSync, Webhook: &v1alpha1.WebhookConnector{},
	}}
	p.Create(t, p.Connector)
	p.Link = &v1alpha1.ConnectorLink{ObjectMeta: p.Meta("tickets-hello"), Spec: v1alpha1.ConnectorLinkSpec{Connector: "tickets", Agent: "hello"}}
	p.Create(t, p.Link)
	p.IDs = map[string]string{
		"connector": p.Connector.Status.ID, "link": p.Link.Status.ID, "environment": p.EnvironmentID("production"),
	}
	spare := &v1alpha1.Environment{ObjectMeta: p.Meta("spare")}
	p.Create(t, spare)
	p.IDs["spare_environment"], p.IDs["test_environment"] = spare.Status.ID, spare.Status.ID
	p.putObjects(t)
	p.IDs["deployment"] = p.deployAgents(t).String()
	p.IDs["open_deployment"], p.IDs["failed_deployment"] = p.IDs["deployment"], p.IDs["deployment"] // NewObjects returns open and failed ones
	p.CompletedRun, p.IDs["event"] = p.AcceptEvent(t, "hello")
	p.FailedRun, _ = p.AcceptEventWithFiles(t, "gone", []store.File{p.StoreFile(t, store.File{Name: "../Überblick.txt", FieldName: "f", MIMEType: "text/plain"}, "hello")})
	p.CompleteRun(t)
	p.QueuedRun, _ = p.AcceptEvent(t, "hello")
	p.IDs["event_connector"] = p.IDs["connector"]
	p.IDs["receiver"] = p.IDs["connector"] // it sends nothing; NewObjects returns one that does
	p.StartReplay(t)
	p.IDs["run"], p.IDs["open_run"], p.IDs["file_run"] = p.CompletedRun.String(), p.QueuedRun.String(), p.FailedRun.String()
	p.IDs["ended_run"] = p.IDs["run"]
	return p
}

// ObjectID returns the ID of an object.
func (p *ProjectWithHistory) ObjectID(t testing.TB, noun string) uuid.UUID {
	t.Helper()
	id, err := uuid.Parse(p.IDs[noun])
	require.NoError(t, err)
	return id
}

// putObjects writes the objects into the store, as their controllers do.
func (p *ProjectWithHistory) putObjects(t testing.TB) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, p.Store.PutProject(ctx, store.Project{Ref: p.StoredRef(t, store.KindProject, "project"), ID: p.ProjectID, Limits: store.ProjectLimits{BacklogRuns: 1000, BacklogInput: 1 << 30, Storage: 1 << 30}}))
	for _, name := range []string{"production", "staging"} {
		id, err := uuid.Parse(p.EnvironmentID(name))
		require.NoError(t, err)
		require.NoError(t, p.Store.PutEnvironment(ctx, store.Environment{
			Ref: p.StoredRef(t, store.KindEnvironment, name), ID: id, ProjectID: p.ProjectID,
			DisplayName: name, Slug: name, Kind: "standard", ObjectCreatedAt: time.Now(),
		}))
	}
	require.NoError(t, p.Store.PutConnector(ctx, store.Connector{
		Ref: p.StoredRef(t, store.KindConnector, "tickets"), ID: p.ObjectID(t, "connector"), ProjectID: p.ProjectID,
		EnvironmentID: p.ObjectID(t, "environment"), Name: "tickets", Type: "webhook", Mode: "sync", Enabled: true, Config: []byte("{}"),
	}))
	require.NoError(t, p.Store.PutLink(ctx, store.Link{
		Ref: p.StoredRef(t, store.KindConnectorLink, "tickets-hello"), ID: p.ObjectID(t, "link"), ProjectID: p.ProjectID,
		ConnectorID: p.ObjectID(t, "connector"), AgentName: "hello", ObjectCreatedAt: time.Now(),
	}))
}

// testResults are test results as a gateway records them, in the order of their ends. Neither their IDs nor their names are
// in the order of their agents.
const testResults = `[
	{"id":"00000000-0000-4000-8000-000000000001","agent_name":"hello","test_name":"greets","passed":true,"successes":2,"runs":2,
		"success_threshold":1,"failure_reason":null,"agent_run_ids":[],"duration_ms":31,"token_usage":{"input_tokens":5,"output_tokens":6,"total_tokens":11},"cost":null},
	{"id":"00000000-0000-4000-8000-000000000002","agent_name":"farewell","test_name":"waves","passed":false,"successes":1,"runs":4,
		"success_threshold":0.75,"failure_reason":"run 2 of 4: said nothing","agent_run_ids":[],"duration_ms":12,"token_usage":null,"cost":null},
	{"id":"00000000-0000-4000-8000-000000000003","agent_name":"hello","test_name":"counts","passed":true}]`

// deployAgents activates a deployment with the agent hello and a variant of it.
func (p *ProjectWithHistory) deployAgents(t testing.TB) uuid.UUID {
	t.Helper()
	ctx := t.Context()
	key := p.StartDeployment(t, "production-1")
	require.NoError(t, p.Store.ReportBuild(ctx, key, store.BuildReport{
		Phase: store.PhaseTesting, Commit: strings.Repeat("a", 40), CommitMessage: "Say hello", Author: "Ada",
	}))
	require.NoError(t, p.Store.AppendBuildLog(ctx, key, 0, "packed 1 agent\n"))
	sum := sha256.Sum256([]byte("bundle"))
	digest := "sha256:" + hex.EncodeToString(sum[:])
	_, err := p.Store.PutBundle(ctx, store.Key{ProjectID: p.ProjectID}, digest, strings.NewReader("bundle"), 1<<20)
	require.NoError(t, err)
	require.NoError(t, p.Store.FinishBuild(ctx, key, store.BuildResult{
		BundleDigest: digest, TestResults: json.RawMessage(testResults),
		Agents: []store.Agent{
			{Name: "hello", Type: "llm", SourcePath: "agents/hello.yaml", Description: "greets", Config: json.RawMessage(`{"name":"hello"}`)},
			{Name: "hello-b", Type: "llm", SourcePath: "agents/hello-test-b.yaml", VariantOf: "hello", TestName: "b", Config: json.RawMessage(`{}`)},
		},
	}))
	_, err = p.Store.Activate(ctx, store.Activation{
		Deployment: key, ConnectorResults: json.RawMessage(`[{"connector":"crm","action":"created"}]`),
	})
	require.NoError(t, err)
	return key.ID
}

// AcceptEvent accepts an event that queues a run of an agent.
func (p *ProjectWithHistory) AcceptEvent(t testing.TB, agent string) (run uuid.UUID, event string) {
	t.Helper()
	return p.AcceptEventWithFiles(t, agent, nil)
}

// AcceptEventWithFiles is AcceptEvent with attachments.
func (p *ProjectWithHistory) AcceptEventWithFiles(t testing.TB, agent string, files []store.File) (run uuid.UUID, event string) {
	t.Helper()
	route, err := p.Store.Route(t.Context(), store.Key{ProjectID: p.ProjectID, ID: p.ObjectID(t, "connector")})
	require.NoError(t, err)
	id, err := uuid.NewV7()
	require.NoError(t, err)
	run, err = uuid.NewV7()
	require.NoError(t, err)
	admissions, err := p.Store.Accept(t.Context(), []store.Event{{
		ConnectorRunID: id, ProjectID: p.ProjectID, EnvironmentID: p.ObjectID(t, "environment"), ConnectorID: p.ObjectID(t, "connector"),
		ConnectorVersion: route.Connector.Version, Trigger: store.TriggerWebhook,
		Files: files, Input: []byte(`{"name":"Ada"}`), ContentType: "application/json; charset=utf-8",
		Runs: []store.EventRun{{ID: run, LinkID: p.ObjectID(t, "link"), AgentName: agent}},
	}})
	require.NoError(t, err)
	require.NoError(t, admissions[0].Err)
	require.Equal(t, store.Accepted, admissions[0].Verdict)
	return admissions[0].RunIDs[0], admissions[0].ConnectorRunID.String()
}

// ClaimRun claims the only queued run that can be executed, as a runner does. The other queued runs fail at once.
func (p *ProjectWithHistory) ClaimRun(t testing.TB) store.Lease {
	t.Helper()
	claimed, err := p.Store.Claim(t.Context(), store.Claim{
		Environment: store.Key{ProjectID: p.ProjectID, ID: p.ObjectID(t, "environment")}, RunnerID: "runner", Slots: 10, Limit: 10, Lease: time.Minute,
	})
	require.NoError(t, err)
	require.Len(t, claimed.Runs, 1)
	return store.Lease{Run: claimed.Runs[0].Run.Key(), Token: claimed.Runs[0].Token}
}

// SavedFileID is the ID of the file that the completed run has saved.
const SavedFileID = "s1"

// CompleteRun claims the queued run, saves a file and completes the run.
func (p *ProjectWithHistory) CompleteRun(t testing.TB) {
	t.Helper()
	lease, content := p.ClaimRun(t), "saved content"
	digest := sha256.Sum256([]byte(content))
	data, err := json.Marshal(store.SavedFile{
		ID: SavedFileID, Name: "../Rechnung 1.pdf", MIMEType: "application/pdf", Size: int64(len(content)), SHA256: hex.EncodeToString(digest[:]),
	})
	require.NoError(t, err)
	require.NoError(t, p.Store.SaveFile(t.Context(), lease, []store.JournalEntry{{Sequence: 1, Kind: store.JournalFile, Data: data}}, strings.NewReader(content)))
	ends, err := p.Store.Complete(t.Context(), []store.Completion{{
		Lease: lease, TestName: "b", Status: store.RunCompleted, Output: "Hello, Ada", Usage: store.TokenUsage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7},
	}})
	require.NoError(t, err)
	require.Equal(t, []error{nil}, ends)
}

// StartReplay starts a replay of the failed connector runs of the connector. It cancels a replay that runs already.
func (p *ProjectWithHistory) StartReplay(t testing.TB) string {
	t.Helper()
	connector := store.Key{ProjectID: p.ProjectID, ID: p.ObjectID(t, "connector")}
	before, err := p.Store.ListReplays(t.Context(), connector)
	require.NoError(t, err)
	for _, r := range before {
		if r.Status == store.ReplayRunning {
			require.NoError(t, p.Store.CancelReplay(t.Context(), r.Key()))
		}
	}
	r, _, err := p.Store.StartReplay(t.Context(), store.NewReplay{
		Connector: connector, ID: uuid.New(), Fingerprint: []byte("f"), PerMinute: 60,
		Filter: store.ReplayFilter{Statuses: []store.ConnectorRunStatus{store.ConnectorRunFailed}, Since: time.Now().Add(-time.Hour), Until: time.Now()},
	})
	require.NoError(t, err)
	p.IDs["replay"] = r.ID.String()
	return p.IDs["replay"]
}

// CreateReceiver creates an outbound connector in Kubernetes and in the store. No agent is linked to it.
func (p *ProjectWithHistory) CreateReceiver(t testing.TB, name string) store.Connector {
	t.Helper()
	conn := p.CreateConnector(t, name, func(c *v1alpha1.Connector) {
		c.Spec.Mode, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, "https://a.example"
	})
	c := store.Connector{
		Ref: p.StoredRef(t, store.KindConnector, name), ID: uuid.MustParse(conn.Status.ID), ProjectID: p.ProjectID,
		EnvironmentID: p.ObjectID(t, "environment"), Name: name, Type: "webhook", Mode: "outbound", Enabled: true, Config: []byte("{}"),
	}
	require.NoError(t, p.Store.PutConnector(t.Context(), c))
	return c
}

// StoreFile stores a file with this content and returns it as an accepted file.
func (p *ProjectWithHistory) StoreFile(t testing.TB, file store.File, content string) store.File {
	t.Helper()
	blob, err := uuid.NewV7()
	require.NoError(t, err)
	_, err = p.Store.PutBlob(t.Context(), store.Key{ProjectID: p.ProjectID, ID: blob}, strings.NewReader(content))
	require.NoError(t, err)
	file.Blob, file.Size = &blob, int64(len(content))
	return file
}
