// SPDX-License-Identifier: Apache-2.0

package connectors_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
)

// A cron connector has no URL and no secret.
func TestCreateConnector_CreatesCronConnector(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key, path := w.CreateKey(t, nil), "/connectors?environment_id="+w.EnvironmentID("production")
	status, answer := w.Call(t, key, http.MethodPost, path,
		`{"name":"Nightly","type":"cron","config":{"schedule":"30 3 * * *","timezone":"Asia/Tokyo","missed_ticks":"latest","prompt":"Report","payload":{"a":[1]}}}`)
	require.Equal(t, http.StatusCreated, status, "%s", answer)
	made := apiservertest.Decode[connectors.Connector](t, answer)
	object := w.ConnectorObject(t, made.ID)
	require.Nil(t, object.Spec.Webhook)
	require.Equal(t, v1alpha1.ModeInbound, object.Spec.Mode)
	require.Equal(t, "Asia/Tokyo", object.Spec.Cron.TimeZone)
	require.Equal(t, v1alpha1.MissedTicksLatest, object.Spec.Cron.MissedTicks)
	require.JSONEq(t, `{"a":[1]}`, string(object.Spec.Cron.Payload.Raw))
	require.Equal(t, rest.ConnectorType("cron"), made.Type)
	require.Equal(t, rest.ConnectorMode("inbound"), made.Mode)
	require.Equal(t, map[string]any{
		"schedule": "30 3 * * *", "timezone": "Asia/Tokyo", "missed_ticks": "latest", "prompt": "Report", "payload": map[string]any{"a": []any{float64(1)}},
	}, made.Config.Value)
	for _, none := range []any{made.WebhookURL, made.Secret, made.SigningSecret, made.NextTickAt, made.LastTickAt} {
		require.Nil(t, none)
	}

	status, answer = w.Call(t, key, http.MethodPost, path, `{"name":"Hourly","type":"cron","config":{"schedule":"@hourly"}}`)
	require.Equal(t, http.StatusCreated, status, "%s", answer)
	require.Equal(t, map[string]any{
		"schedule": "@hourly", "timezone": "UTC", "missed_ticks": "skip", "prompt": "", "payload": map[string]any{},
	}, apiservertest.Decode[connectors.Connector](t, answer).Config.Value)
	for _, body := range []string{`{"name":"a","type":"cron"}`, `{"name":"a","type":"cron","mode":"sync","config":{"schedule":"@daily"}}`} {
		status, answer = w.Call(t, key, http.MethodPost, path, body)
		require.Equal(t, http.StatusUnprocessableEntity, status, "%s", answer)
	}

}

// The store knows the ticks. Before the first plan, the schedule gives the next tick.
func TestGetConnector_ShowsTicks(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key, path := w.CreateKey(t, nil), "/connectors?environment_id="+w.EnvironmentID("production")
	status, answer := w.Call(t, key, http.MethodPost, path, `{"name":"Nightly","type":"cron","config":{"schedule":"30 3 * * *","timezone":"Asia/Tokyo"}}`)
	require.Equal(t, http.StatusCreated, status, "%s", answer)
	made := apiservertest.Decode[connectors.Connector](t, answer)
	object, id := w.ConnectorObject(t, made.ID), uuid.MustParse(made.ID)
	row := store.Connector{
		Ref: store.ObjectRef{Namespace: w.Namespace, Kind: store.KindConnector, Name: object.Name, ObjectUID: string(object.UID), Generation: object.Generation},
		ID:  id, ProjectID: w.ProjectID, EnvironmentID: uuid.MustParse(w.EnvironmentID("production")), Name: "Nightly", Type: store.TypeCron, Mode: "inbound",
		Enabled: true, Config: []byte(`{"schedule":"30 3 * * *","timezone":"Asia/Tokyo","missed_ticks":"latest"}`),
	}
	require.NoError(t, w.Store.PutProject(t.Context(), store.Project{Ref: w.StoredRef(t, store.KindProject, "project"), ID: w.ProjectID}))
	require.NoError(t, w.Store.PutEnvironment(t.Context(), store.Environment{
		Ref: w.StoredRef(t, store.KindEnvironment, "production"), ID: row.EnvironmentID, ProjectID: w.ProjectID, Slug: "production", Kind: "standard",
	}))
	require.NoError(t, w.Store.PutConnector(t.Context(), row))
	shown := func() connectors.Connector {
		status, answer := w.Call(t, key, http.MethodGet, "/connectors/"+made.ID, "")
		require.Equal(t, http.StatusOK, status, "%s", answer)
		return apiservertest.Decode[connectors.Connector](t, answer)
	}
	first := shown().NextTickAt
	require.NotNil(t, first, "it follows from the schedule before the gateway has planned it")
	require.Equal(t, 18*60+30, first.Hour()*60+first.Minute(), "in UTC")

	times, err := w.Store.TickTimes(t.Context(), w.ProjectID, []uuid.UUID{id})
	require.NoError(t, err)
	done, next := time.Date(2026, 1, 2, 18, 30, 0, 0, time.UTC), time.Date(2036, 1, 3, 18, 30, 0, 0, time.UTC)
	moved, err := w.Store.MoveTicks(t.Context(), []store.TickMove{{
		Connector: row.Key(), From: times[id].Next, To: next, Planned: true, Done: done,
	}})
	require.NoError(t, err)
	require.Equal(t, 1, moved)
	require.Equal(t, next, *shown().NextTickAt)
	require.Equal(t, done, *shown().LastTickAt)
	status, answer = w.Call(t, key, http.MethodGet, path, "")
	require.Equal(t, http.StatusOK, status)
	ticking := 0
	for _, c := range apiservertest.Decode[[]connectors.Connector](t, answer) {
		if c.NextTickAt != nil {
			ticking++
			require.Equal(t, made.ID, c.ID)
		}
	}
	require.Equal(t, 1, ticking)

	row.Enabled, row.Ref.Generation = false, row.Ref.Generation+1
	require.NoError(t, w.Store.PutConnector(t.Context(), row))
	require.Nil(t, shown().NextTickAt)
	require.Equal(t, done, *shown().LastTickAt)
}

// A change replaces the whole config.
func TestUpdateConnector_ReplacesCronConfig(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	status, answer := w.Call(t, key, http.MethodPost, "/connectors?environment_id="+w.EnvironmentID("production"),
		`{"name":"Nightly","type":"cron","config":{"schedule":"@daily","timezone":"Asia/Tokyo","payload":{"a":1,"b":2}}}`)
	require.Equal(t, http.StatusCreated, status, "%s", answer)
	path := "/connectors/" + apiservertest.Decode[connectors.Connector](t, answer).ID
	status, answer = w.Call(t, key, http.MethodPatch, path, `{"config":{"schedule":"@hourly","payload":{"b":3}}}`)
	require.Equal(t, http.StatusOK, status, "%s", answer)
	require.Equal(t, map[string]any{
		"schedule": "@hourly", "timezone": "UTC", "missed_ticks": "skip", "prompt": "", "payload": map[string]any{"b": float64(3)},
	}, apiservertest.Decode[connectors.Connector](t, answer).Config.Value)
	status, answer = w.Call(t, key, http.MethodPatch, path, `{"config":{"schedule":"99 * * * *"}}`)
	require.Equal(t, http.StatusUnprocessableEntity, status, "%s", answer)
	require.Equal(t, "body.config.schedule", apiservertest.Decode[rest.Problem](t, answer).Errors[0].Location)
	status, _ = w.Call(t, key, http.MethodPost, path+"/rotate-secret", "")
	require.Equal(t, http.StatusConflict, status)
}
