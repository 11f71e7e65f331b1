// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// TestWhatTheStoreKeepsIsShown goes through a real store: an event that was
// accepted is seen at once, in all places.
func TestWhatTheStoreKeepsIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	conn := &v1alpha1.Connector{ObjectMeta: w.meta("tickets"), Spec: v1alpha1.ConnectorSpec{
		Environment: "production", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
	}}
	w.create(t, conn)
	run := project(t, w, conn)

	key := w.key(t, nil)
	query := "?environment_id=" + w.environmentID("production")
	status, body := w.call(t, key, http.MethodGet, "/runs/"+run.String(), "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	shown := decode[Run](t, body)
	require.Equal(t, "queued", shown.Status)
	require.Equal(t, map[string]any{"name": "Ada"}, shown.Input)
	_, body = w.call(t, key, http.MethodGet, "/runs"+query, "")
	require.Len(t, decode[[]Run](t, body), 1)
	_, body = w.call(t, key, http.MethodGet, "/agents"+query, "")
	agents := decode[[]Agent](t, body)
	require.Len(t, agents, 1)
	require.EqualValues(t, 1, agents[0].QueueCount)
	_, body = w.call(t, key, http.MethodGet, "/connectors/"+conn.Status.ID+"/runs", "")
	page := decode[ConnectorRunList](t, body)
	require.EqualValues(t, 1, page.Total)
	require.Equal(t, []string{run.String()}, page.Items[0].RunIDs)
	status, body = w.call(t, key, http.MethodGet, "/connectors/"+conn.Status.ID+"/runs/"+page.Items[0].ID, "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	status, body = w.call(t, key, http.MethodGet, "/deployments"+query, "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	require.Empty(t, decode[[]DeploymentItem](t, body))
}

// project writes what the controllers would, and an event; it returns its run.
func project(t *testing.T, w *world, conn *v1alpha1.Connector) uuid.UUID {
	t.Helper()
	data, connector := w.db, uuid.MustParse(conn.Status.ID)
	environment, link := uuid.MustParse(w.environmentID("production")), uuid.New()
	ref := func(kind, name string) store.ObjectRef {
		claims, err := data.Holders(t.Context(), w.projectID, kind)
		require.NoError(t, err)
		for _, claim := range claims {
			if claim.Ref.Name == name {
				return claim.Ref
			}
		}
		return store.ObjectRef{Namespace: w.namespace, Kind: kind, Name: name, ObjectUID: name, Generation: 1}
	}
	ctx := t.Context()
	require.NoError(t, data.PutProject(ctx, store.Project{Ref: ref(store.KindProject, "project"), ID: w.projectID, RequestsPerMinute: 120}))
	require.NoError(t, data.PutEnvironment(ctx, store.Environment{
		Ref: ref(store.KindEnvironment, "production"), ID: environment, ProjectID: w.projectID,
		DisplayName: "production", Slug: "production", Kind: "standard", ObjectCreatedAt: time.Now(),
	}))
	require.NoError(t, data.PutConnector(ctx, store.Connector{
		Ref: ref(store.KindConnector, "tickets"), ID: connector, ProjectID: w.projectID, EnvironmentID: environment,
		Name: "tickets", Type: "webhook", Mode: "inbound", Enabled: true, Config: []byte("{}"),
	}))
	require.NoError(t, data.PutLink(ctx, store.Link{
		Ref: ref(store.KindConnectorLink, "tickets-hello"), ID: link, ProjectID: w.projectID, ConnectorID: connector,
		AgentName: "hello", ObjectCreatedAt: time.Now(),
	}))
	route, err := data.Route(ctx, store.Key{ProjectID: w.projectID, ID: connector})
	require.NoError(t, err)
	event, err := uuid.NewV7()
	require.NoError(t, err)
	run, err := uuid.NewV7()
	require.NoError(t, err)
	admissions, err := data.Accept(ctx, []store.Event{{
		ConnectorRunID: event, ProjectID: w.projectID, EnvironmentID: environment, ConnectorID: connector,
		ConnectorVersion: route.Connector.Version, Trigger: store.TriggerWebhook,
		Input: []byte(`{"name":"Ada"}`), ContentType: "application/json",
		Runs: []store.EventRun{{ID: run, LinkID: link, AgentName: "hello"}},
	}})
	require.NoError(t, err)
	require.NoError(t, admissions[0].Err)
	require.Equal(t, store.Accepted, admissions[0].Verdict)
	return run
}
