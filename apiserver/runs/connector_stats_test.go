// SPDX-License-Identifier: Apache-2.0

package runs_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/apiserver/deployments"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/apiserver/runs"
	"github.com/agentplatform/agentplatform/store"
)

// The window ends now. One run completed, one run failed and one run is open.
func TestConnectorStatistics_CountRunsOfWindow(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, path := w.CreateKey(t, nil), "/connectors/"+w.IDs["connector"]+"/stats"
	stats := func(query string) runs.ConnectorStats {
		status, body := w.Call(t, key, http.MethodGet, path+query, "")
		require.Equal(t, http.StatusOK, status, "%s", body)
		require.Len(t, apiservertest.Decode[map[string]any](t, body), 6, "all fields, null or not")
		return apiservertest.Decode[runs.ConnectorStats](t, body)
	}
	got := stats("")
	require.NotNil(t, got.AverageDurationMS)
	running := runs.ConnectorRunStatus("running")
	require.Equal(t, runs.ConnectorStats{
		TimeRange: "7d", TotalRuns: 3, CompletedRuns: 1, FailedRuns: 1, AverageDurationMS: got.AverageDurationMS,
		LastRunStatus: rest.Null[runs.ConnectorRunStatus]{Value: &running},
	}, got, "without a window it is of seven days")
	for _, window := range []runs.TimeRange{"1h", "6h", "24h", "7d", "30d"} {
		got := stats("?time_range=" + string(window))
		require.Equal(t, window, got.TimeRange)
		require.EqualValues(t, 3, got.TotalRuns, window)
	}
	w.Server.Service.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	require.Equal(t, runs.ConnectorStats{TimeRange: "1h"}, stats("?time_range=1h"), "none: no average, no last one")
	require.EqualValues(t, 3, stats("?time_range=6h").TotalRuns)

	for query, want := range map[string]int{"?time_range=2h": 422, "?time_range=all": 422, "?since=1": 422} {
		t.Run(query, func(t *testing.T) {
			status, body := w.Call(t, key, http.MethodGet, path+query, "")
			require.Equal(t, want, status, "%s", body)
		})
	}
	status, _ := w.Call(t, key, http.MethodGet, "/connectors/"+uuid.NewString()+"/stats", "")
	require.Equal(t, http.StatusNotFound, status)
}

// anotherConnector makes one more connector of production, in Kubernetes and in the store.
func anotherConnector(t testing.TB, p *apiservertest.ProjectWithHistory) *v1alpha1.Connector {
	t.Helper()
	left := &v1alpha1.Connector{ObjectMeta: p.Meta("left"), Spec: v1alpha1.ConnectorSpec{
		Environment: "production", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
	}}
	p.Create(t, left)
	id, err := uuid.Parse(left.Status.ID)
	require.NoError(t, err)
	require.NoError(t, p.Store.PutConnector(t.Context(), store.Connector{
		Ref: p.ObjectRef(left), ID: id, ProjectID: p.ProjectID, EnvironmentID: uuid.MustParse(p.IDs["environment"]),
		Name: "left", Type: "webhook", Mode: "inbound", Enabled: true, Config: []byte(`{}`), SecretVersion: 1,
	}))
	return left
}

// The history of a deleted connector stays readable by its ID, also after the deletion of the environment.
func TestHistory_OutlivesConnectorAndEnvironment(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	limited := func(environment v1alpha1.EnvironmentName) string {
		return w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
			k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{environment}
		})
	}
	all, here, staging := w.CreateKey(t, nil), limited("production"), limited("staging")
	connector := "/connectors/" + w.IDs["connector"]
	paths := []string{connector + "/runs", connector + "/runs/" + w.IDs["event"], connector + "/stats"}
	runList := "/runs?environment_id=" + w.IDs["environment"]
	answers := func(key string, want int, paths ...string) {
		t.Helper()
		for _, path := range paths {
			status, body := w.Call(t, key, http.MethodGet, path, "")
			require.Equal(t, want, status, "%s: %s", path, body)
		}
	}
	left := anotherConnector(t, w)
	require.NoError(t, w.Client.Delete(t.Context(), w.Connector))
	require.NoError(t, w.Store.Remove(t.Context(), w.ProjectID, w.StoredRef(t, store.KindConnector, "tickets")))
	none := "/runs?status_filter=cancelled&connector_id=" + w.IDs["connector"]
	answers(all, http.StatusOK, append(paths, none)...)
	answers(here, http.StatusOK, append(paths, none)...)
	answers(staging, http.StatusForbidden, paths...)
	status, body := w.Call(t, all, http.MethodPost, paths[1]+"/replay", "")
	require.Equal(t, http.StatusNotFound, status, "%s", body)
	answers(all, http.StatusNotFound, connector, connector+"/links", "/connectors/"+w.IDs["environment"]+"/runs")
	_, body = w.Call(t, all, http.MethodGet, paths[0], "")
	failed := apiservertest.Decode[runs.ConnectorRunList](t, body).Items[1]
	require.EqualValues(t, "failed", failed.Status)

	environment := &v1alpha1.Environment{ObjectMeta: w.Meta("production")}
	require.NoError(t, w.Client.Delete(t.Context(), environment))
	require.NoError(t, w.Store.Remove(t.Context(), w.ProjectID, w.StoredRef(t, store.KindEnvironment, "production")))
	deploymentList, connectorList := "/deployments?environment_id="+w.IDs["environment"], "/connectors?environment_id="+w.IDs["environment"]
	answers(all, http.StatusOK, append(paths, runList, deploymentList, connectorList)...)
	answers(here, http.StatusForbidden, paths...)
	answers(here, http.StatusNotFound, runList, deploymentList, connectorList)
	_, body = w.Call(t, all, http.MethodGet, deploymentList, "")
	for _, d := range apiservertest.Decode[[]deployments.DeploymentItem](t, body) {
		require.Equal(t, w.IDs["environment"], d.EnvironmentID)
		require.False(t, d.IsLive, "a deleted environment has no live deployment")
	}
	_, body = w.Call(t, all, http.MethodGet, connectorList, "")
	found := apiservertest.Decode[[]connectors.Connector](t, body)
	require.Len(t, found, 1)
	require.Equal(t, left.Status.ID, found[0].ID)
	require.Nil(t, found[0].EnvironmentID)
	status, body = w.Call(t, all, http.MethodDelete, "/connectors/"+found[0].ID, "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	answers(all, http.StatusNotFound, connectorList)
	_, body = w.Call(t, all, http.MethodGet, runList, "")
	require.Len(t, apiservertest.RunIDs(t, body), 3)
	nowhere := "?environment_id=" + uuid.NewString()
	answers(all, http.StatusNotFound, "/runs"+nowhere, "/deployments"+nowhere, "/connectors"+nowhere)
}
