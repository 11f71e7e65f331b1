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

// TestStatisticsOfAConnectorAreThoseOfAWindow: which ends now. There are one run that completed,
// one that failed and one that is open.
func TestStatisticsOfAConnectorAreThoseOfAWindow(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, path := w.key(t, nil), "/connectors/"+w.ids["connector"]+"/stats"
	stats := func(query string) ConnectorStats {
		status, body := w.call(t, key, http.MethodGet, path+query, "")
		require.Equal(t, http.StatusOK, status, "%s", body)
		require.Len(t, decode[map[string]any](t, body), 6, "all fields, null or not")
		return decode[ConnectorStats](t, body)
	}
	got := stats("")
	require.NotNil(t, got.AverageDurationMS)
	running := ConnectorRunStatus("running")
	require.Equal(t, ConnectorStats{
		TimeRange: "7d", TotalRuns: 3, CompletedRuns: 1, FailedRuns: 1, AverageDurationMS: got.AverageDurationMS,
		LastRunStatus: Null[ConnectorRunStatus]{Value: &running},
	}, got, "without a window it is of seven days")
	for window := range timeRanges {
		got := stats("?time_range=" + string(window))
		require.Equal(t, window, got.TimeRange)
		require.EqualValues(t, 3, got.TotalRuns, window)
	}
	w.server.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	require.Equal(t, ConnectorStats{TimeRange: "1h"}, stats("?time_range=1h"), "none: no average, no last one")
	require.EqualValues(t, 3, stats("?time_range=6h").TotalRuns)

	for query, want := range map[string]int{"?time_range=2h": 422, "?time_range=all": 422, "?since=1": 422} {
		t.Run(query, func(t *testing.T) {
			status, body := w.call(t, key, http.MethodGet, path+query, "")
			require.Equal(t, want, status, "%s", body)
		})
	}
	status, _ := w.call(t, key, http.MethodGet, "/connectors/"+uuid.NewString()+"/stats", "")
	require.Equal(t, http.StatusNotFound, status)
}

// anotherConnector makes one more connector of production, in Kubernetes and in the store.
func (p *past) anotherConnector(t testing.TB) *v1alpha1.Connector {
	t.Helper()
	left := &v1alpha1.Connector{ObjectMeta: p.meta("left"), Spec: v1alpha1.ConnectorSpec{
		Environment: "production", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
	}}
	p.create(t, left)
	id, err := uuid.Parse(left.Status.ID)
	require.NoError(t, err)
	require.NoError(t, p.db.PutConnector(t.Context(), store.Connector{
		Ref: p.ref(left), ID: id, ProjectID: p.projectID, EnvironmentID: uuid.MustParse(p.ids["environment"]),
		Name: "left", Type: "webhook", Mode: "inbound", Enabled: true, Config: []byte(`{}`), SecretVersion: 1,
	}))
	return left
}

// TestHistoryOfWhatIsGoneIsRead: of a connector, then of its environment too, by its id, by those
// who may.
func TestHistoryOfWhatIsGoneIsRead(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	limited := func(environment v1alpha1.EnvironmentName) string {
		return w.key(t, func(k *v1alpha1.APIKeySpec) {
			k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{environment}
		})
	}
	all, here, staging := w.key(t, nil), limited("production"), limited("staging")
	connector := "/connectors/" + w.ids["connector"]
	paths := []string{connector + "/runs", connector + "/runs/" + w.ids["event"], connector + "/stats"}
	runs := "/runs?environment_id=" + w.ids["environment"]
	answers := func(key string, want int, paths ...string) {
		t.Helper()
		for _, path := range paths {
			status, body := w.call(t, key, http.MethodGet, path, "")
			require.Equal(t, want, status, "%s: %s", path, body)
		}
	}
	left := w.anotherConnector(t)
	require.NoError(t, w.client.Delete(t.Context(), w.conn))
	require.NoError(t, w.db.Remove(t.Context(), w.projectID, w.refOf(t, store.KindConnector, "tickets")))
	none := "/runs?status_filter=cancelled&connector_id=" + w.ids["connector"]
	answers(all, http.StatusOK, append(paths, none)...)
	answers(here, http.StatusOK, append(paths, none)...)
	answers(staging, http.StatusForbidden, paths...)
	status, body := w.call(t, all, http.MethodPost, paths[1]+"/replay", "")
	require.Equal(t, http.StatusNotFound, status, "%s", body)
	answers(all, http.StatusNotFound, connector, connector+"/links", "/connectors/"+w.ids["environment"]+"/runs")
	_, body = w.call(t, all, http.MethodGet, paths[0], "")
	failed := decode[ConnectorRunList](t, body).Items[1]
	require.EqualValues(t, "failed", failed.Status)

	environment := &v1alpha1.Environment{ObjectMeta: w.meta("production")}
	require.NoError(t, w.client.Delete(t.Context(), environment))
	require.NoError(t, w.db.Remove(t.Context(), w.projectID, w.refOf(t, store.KindEnvironment, "production")))
	deployments, connectors := "/deployments?environment_id="+w.ids["environment"], "/connectors?environment_id="+w.ids["environment"]
	answers(all, http.StatusOK, append(paths, runs, deployments, connectors)...)
	answers(here, http.StatusForbidden, paths...)
	answers(here, http.StatusNotFound, runs, deployments, connectors)
	_, body = w.call(t, all, http.MethodGet, deployments, "")
	for _, d := range decode[[]DeploymentItem](t, body) {
		require.Equal(t, w.ids["environment"], d.EnvironmentID)
		require.False(t, d.IsLive, "nothing is live in what is gone")
	}
	_, body = w.call(t, all, http.MethodGet, connectors, "")
	found := decode[[]Connector](t, body)
	require.Len(t, found, 1)
	require.Equal(t, left.Status.ID, found[0].ID)
	require.Nil(t, found[0].EnvironmentID)
	status, body = w.call(t, all, http.MethodDelete, "/connectors/"+found[0].ID, "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	answers(all, http.StatusNotFound, connectors)
	_, body = w.call(t, all, http.MethodGet, runs, "")
	require.Len(t, idsOfRuns(t, body), 3)
	nowhere := "?environment_id=" + uuid.NewString()
	answers(all, http.StatusNotFound, "/runs"+nowhere, "/deployments"+nowhere, "/connectors"+nowhere)
}
