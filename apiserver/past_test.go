// SPDX-License-Identifier: Apache-2.0

package apiserver

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

// past is a world in which a deployment went live and three events came: a run
// completed, one failed because the deployment lacks its agent, and one waits.
type past struct {
	*world
	conn *v1alpha1.Connector
	link *v1alpha1.ConnectorLink
	// ids are those of what there is, by noun.
	ids map[string]string

	completed, failed, queued uuid.UUID
}

func newPast(t testing.TB) *past {
	t.Helper()
	return newPastIn(t, newWorld(t))
}

func newPastIn(t testing.TB, w *world) *past {
	t.Helper()
	p := &past{world: w}
	p.conn = &v1alpha1.Connector{ObjectMeta: p.meta("tickets"), Spec: v1alpha1.ConnectorSpec{
		Environment: "production", Mode: v1alpha1.ModeSync, Webhook: &v1alpha1.WebhookConnector{},
	}}
	p.create(t, p.conn)
	p.link = &v1alpha1.ConnectorLink{ObjectMeta: p.meta("tickets-hello"), Spec: v1alpha1.ConnectorLinkSpec{Connector: "tickets", Agent: "hello"}}
	p.create(t, p.link)
	p.ids = map[string]string{
		"connector": p.conn.Status.ID, "link": p.link.Status.ID, "environment": p.environmentID("production"),
	}
	spare := &v1alpha1.Environment{ObjectMeta: p.meta("spare")}
	p.create(t, spare)
	p.ids["spare_environment"], p.ids["test_environment"] = spare.Status.ID, spare.Status.ID
	p.project(t)
	p.ids["deployment"] = p.deploy(t).String()
	p.ids["open_deployment"], p.ids["failed_deployment"] = p.ids["deployment"], p.ids["deployment"] // fresh has such
	p.completed, p.ids["event"] = p.event(t, "hello")
	p.failed, _ = p.eventWith(t, "gone", []store.File{p.stored(t, store.File{Name: "../Überblick.txt", FieldName: "f", MIMEType: "text/plain"}, "hello")})
	p.finish(t)
	p.queued, _ = p.event(t, "hello")
	p.ids["event_connector"] = p.ids["connector"]
	p.ids["receiver"] = p.ids["connector"] // which sends nothing; fresh has one that does
	p.replay(t)
	p.ids["run"], p.ids["open_run"], p.ids["file_run"] = p.completed.String(), p.queued.String(), p.failed.String()
	p.ids["ended_run"] = p.ids["run"]
	return p
}

func (p *past) id(t testing.TB, noun string) uuid.UUID {
	t.Helper()
	id, err := uuid.Parse(p.ids[noun])
	require.NoError(t, err)
	return id
}

// refOf names an object that the store knows.
func (w *world) refOf(t testing.TB, kind, name string) store.ObjectRef {
	t.Helper()
	claims, err := w.db.Holders(t.Context(), w.projectID, kind)
	require.NoError(t, err)
	for _, claim := range claims {
		if claim.Ref.Name == name {
			return claim.Ref
		}
	}
	return store.ObjectRef{Namespace: w.namespace, Kind: kind, Name: name, ObjectUID: name, Generation: 1}
}

// project writes what the controllers would.
func (p *past) project(t testing.TB) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, p.db.PutProject(ctx, store.Project{Ref: p.refOf(t, store.KindProject, "project"), ID: p.projectID, Limits: store.ProjectLimits{BacklogRuns: 1000, BacklogInput: 1 << 30, Storage: 1 << 30}}))
	for _, name := range []string{"production", "staging"} {
		id, err := uuid.Parse(p.environmentID(name))
		require.NoError(t, err)
		require.NoError(t, p.db.PutEnvironment(ctx, store.Environment{
			Ref: p.refOf(t, store.KindEnvironment, name), ID: id, ProjectID: p.projectID,
			DisplayName: name, Slug: name, Kind: "standard", ObjectCreatedAt: time.Now(),
		}))
	}
	require.NoError(t, p.db.PutConnector(ctx, store.Connector{
		Ref: p.refOf(t, store.KindConnector, "tickets"), ID: p.id(t, "connector"), ProjectID: p.projectID,
		EnvironmentID: p.id(t, "environment"), Name: "tickets", Type: "webhook", Mode: "sync", Enabled: true, Config: []byte("{}"),
	}))
	require.NoError(t, p.db.PutLink(ctx, store.Link{
		Ref: p.refOf(t, store.KindConnectorLink, "tickets-hello"), ID: p.id(t, "link"), ProjectID: p.projectID,
		ConnectorID: p.id(t, "connector"), AgentName: "hello", ObjectCreatedAt: time.Now(),
	}))
}

// testsOfPast are as a gateway records them, in the order in which they ended: neither their ids nor
// the names of the tests alone are in that of their agents.
const testsOfPast = `[
	{"id":"00000000-0000-4000-8000-000000000001","agent_name":"hello","test_name":"greets","passed":true,"successes":2,"runs":2,
		"success_threshold":1,"failure_reason":null,"agent_run_ids":[],"duration_ms":31,"token_usage":{"input_tokens":5,"output_tokens":6,"total_tokens":11},"cost":null},
	{"id":"00000000-0000-4000-8000-000000000002","agent_name":"farewell","test_name":"waves","passed":false,"successes":1,"runs":4,
		"success_threshold":0.75,"failure_reason":"run 2 of 4: said nothing","agent_run_ids":[],"duration_ms":12,"token_usage":null,"cost":null},
	{"id":"00000000-0000-4000-8000-000000000003","agent_name":"hello","test_name":"counts","passed":true}]`

// deploy makes a deployment live that has the agent hello and a variant of it.
func (p *past) deploy(t testing.TB) uuid.UUID {
	t.Helper()
	ctx := t.Context()
	key := p.start(t, "production-1")
	require.NoError(t, p.db.ReportBuild(ctx, key, store.BuildReport{
		Phase: store.PhaseTesting, Commit: strings.Repeat("a", 40), CommitMessage: "Say hello", Author: "Ada",
	}))
	require.NoError(t, p.db.AppendBuildLog(ctx, key, 0, "packed 1 agent\n"))
	sum := sha256.Sum256([]byte("bundle"))
	digest := "sha256:" + hex.EncodeToString(sum[:])
	_, err := p.db.PutBundle(ctx, store.Key{ProjectID: p.projectID}, digest, strings.NewReader("bundle"), 1<<20)
	require.NoError(t, err)
	require.NoError(t, p.db.FinishBuild(ctx, key, store.BuildResult{
		BundleDigest: digest, TestResults: json.RawMessage(testsOfPast),
		Agents: []store.Agent{
			{Name: "hello", Type: "llm", SourcePath: "agents/hello.yaml", Description: "greets", Config: json.RawMessage(`{"name":"hello"}`)},
			{Name: "hello-b", Type: "llm", SourcePath: "agents/hello-test-b.yaml", VariantOf: "hello", TestName: "b", Config: json.RawMessage(`{}`)},
		},
	}))
	_, err = p.db.Activate(ctx, store.Activation{
		Deployment: key, ConnectorResults: json.RawMessage(`[{"connector":"crm","action":"created"}]`),
	})
	require.NoError(t, err)
	return key.ID
}

// event accepts an event that starts a run of an agent.
func (p *past) event(t testing.TB, agent string) (run uuid.UUID, event string) {
	t.Helper()
	return p.eventWith(t, agent, nil)
}

// eventWith is event with attachments.
func (p *past) eventWith(t testing.TB, agent string, files []store.File) (run uuid.UUID, event string) {
	t.Helper()
	route, err := p.db.Route(t.Context(), store.Key{ProjectID: p.projectID, ID: p.id(t, "connector")})
	require.NoError(t, err)
	id, err := uuid.NewV7()
	require.NoError(t, err)
	run, err = uuid.NewV7()
	require.NoError(t, err)
	admissions, err := p.db.Accept(t.Context(), []store.Event{{
		ConnectorRunID: id, ProjectID: p.projectID, EnvironmentID: p.id(t, "environment"), ConnectorID: p.id(t, "connector"),
		ConnectorVersion: route.Connector.Version, Trigger: store.TriggerWebhook,
		Files: files, Input: []byte(`{"name":"Ada"}`), ContentType: "application/json; charset=utf-8",
		Runs: []store.EventRun{{ID: run, LinkID: p.id(t, "link"), AgentName: agent}},
	}})
	require.NoError(t, err)
	require.NoError(t, admissions[0].Err)
	require.Equal(t, store.Accepted, admissions[0].Verdict)
	return admissions[0].RunIDs[0], admissions[0].ConnectorRunID.String()
}

// claim takes the one run that waits and can be executed, as a runner does; the others
// fail at once.
func (p *past) claim(t testing.TB) store.Lease {
	t.Helper()
	claimed, err := p.db.Claim(t.Context(), store.Claim{
		Environment: store.Key{ProjectID: p.projectID, ID: p.id(t, "environment")}, RunnerID: "runner", Places: 10, Limit: 10, Lease: time.Minute,
	})
	require.NoError(t, err)
	require.Len(t, claimed.Runs, 1)
	return store.Lease{Run: claimed.Runs[0].Run.Key(), Token: claimed.Runs[0].Token}
}

// finish executes what waits.
func (p *past) finish(t testing.TB) {
	t.Helper()
	ends, err := p.db.Complete(t.Context(), []store.Completion{{
		Lease: p.claim(t), TestName: "b", Status: store.RunCompleted, Output: "Hello, Ada", Usage: store.TokenUsage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7},
	}})
	require.NoError(t, err)
	require.Equal(t, []error{nil}, ends)
}
