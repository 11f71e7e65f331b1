// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// TestCronConnectors: what is created is what was asked for, and is shown without a URL and
// a secret.
func TestCronConnectors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key, path := w.key(t, nil), "/connectors?environment_id="+w.environmentID("production")
	status, answer := w.call(t, key, http.MethodPost, path,
		`{"name":"Nightly","type":"cron","config":{"schedule":"30 3 * * *","timezone":"Asia/Tokyo","missed_ticks":"latest","prompt":"Report","payload":{"a":[1]}}}`)
	require.Equal(t, http.StatusCreated, status, "%s", answer)
	made := decode[Connector](t, answer)
	object := w.object(t, made.ID)
	require.Nil(t, object.Spec.Webhook)
	require.Equal(t, v1alpha1.ModeInbound, object.Spec.Mode)
	require.Equal(t, "Asia/Tokyo", object.Spec.Cron.TimeZone)
	require.Equal(t, v1alpha1.MissedTicksLatest, object.Spec.Cron.MissedTicks)
	require.JSONEq(t, `{"a":[1]}`, string(object.Spec.Cron.Payload.Raw))
	require.Equal(t, ConnectorType("cron"), made.Type)
	require.Equal(t, ConnectorMode("inbound"), made.Mode)
	require.Equal(t, map[string]any{
		"schedule": "30 3 * * *", "timezone": "Asia/Tokyo", "missed_ticks": "latest", "prompt": "Report", "payload": map[string]any{"a": []any{float64(1)}},
	}, made.Config.Value)
	for _, none := range []any{made.WebhookURL, made.Secret, made.SigningSecret, made.NextTickAt, made.LastTickAt} {
		require.Nil(t, none)
	}

	status, answer = w.call(t, key, http.MethodPost, path, `{"name":"Hourly","type":"cron","config":{"schedule":"@hourly"}}`)
	require.Equal(t, http.StatusCreated, status, "%s", answer)
	require.Equal(t, map[string]any{
		"schedule": "@hourly", "timezone": "UTC", "missed_ticks": "skip", "prompt": "", "payload": map[string]any{},
	}, decode[Connector](t, answer).Config.Value)
	for _, body := range []string{`{"name":"a","type":"cron"}`, `{"name":"a","type":"cron","mode":"sync","config":{"schedule":"@daily"}}`} {
		status, answer = w.call(t, key, http.MethodPost, path, body)
		require.Equal(t, http.StatusUnprocessableEntity, status, "%s", answer)
	}

}

// TestWhenConnectorsTick: by what the store knows, and by the schedule while it has nothing
// planned yet.
func TestWhenConnectorsTick(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key, path := w.key(t, nil), "/connectors?environment_id="+w.environmentID("production")
	status, answer := w.call(t, key, http.MethodPost, path, `{"name":"Nightly","type":"cron","config":{"schedule":"30 3 * * *","timezone":"Asia/Tokyo"}}`)
	require.Equal(t, http.StatusCreated, status, "%s", answer)
	made := decode[Connector](t, answer)
	object, id := w.object(t, made.ID), uuid.MustParse(made.ID)
	row := store.Connector{
		Ref: store.ObjectRef{Namespace: w.namespace, Kind: store.KindConnector, Name: object.Name, ObjectUID: string(object.UID), Generation: object.Generation},
		ID:  id, ProjectID: w.projectID, EnvironmentID: uuid.MustParse(w.environmentID("production")), Name: "Nightly", Type: store.TypeCron, Mode: "inbound",
		Enabled: true, Config: []byte(`{"schedule":"30 3 * * *","timezone":"Asia/Tokyo","missed_ticks":"latest"}`),
	}
	require.NoError(t, w.db.PutProject(t.Context(), store.Project{Ref: w.refOf(t, store.KindProject, "project"), ID: w.projectID}))
	require.NoError(t, w.db.PutEnvironment(t.Context(), store.Environment{
		Ref: w.refOf(t, store.KindEnvironment, "production"), ID: row.EnvironmentID, ProjectID: w.projectID, Slug: "production", Kind: "standard",
	}))
	require.NoError(t, w.db.PutConnector(t.Context(), row))
	shown := func() Connector {
		status, answer := w.call(t, key, http.MethodGet, "/connectors/"+made.ID, "")
		require.Equal(t, http.StatusOK, status, "%s", answer)
		return decode[Connector](t, answer)
	}
	first := shown().NextTickAt
	require.NotNil(t, first, "it follows from the schedule before the gateway has planned it")
	require.Equal(t, 18*60+30, first.Hour()*60+first.Minute(), "in UTC")

	times, err := w.db.TickTimes(t.Context(), w.projectID, []uuid.UUID{id})
	require.NoError(t, err)
	done, next := time.Date(2026, 1, 2, 18, 30, 0, 0, time.UTC), time.Date(2036, 1, 3, 18, 30, 0, 0, time.UTC)
	moved, err := w.db.MoveTicks(t.Context(), []store.TickMove{{
		Connector: row.Key(), From: times[id].Next, To: next, Planned: true, Done: done,
	}})
	require.NoError(t, err)
	require.Equal(t, 1, moved)
	require.Equal(t, next, *shown().NextTickAt)
	require.Equal(t, done, *shown().LastTickAt)
	status, answer = w.call(t, key, http.MethodGet, path, "")
	require.Equal(t, http.StatusOK, status)
	ticking := 0
	for _, c := range decode[[]Connector](t, answer) {
		if c.NextTickAt != nil {
			ticking++
			require.Equal(t, made.ID, c.ID)
		}
	}
	require.Equal(t, 1, ticking)

	row.Enabled, row.Ref.Generation = false, row.Ref.Generation+1
	require.NoError(t, w.db.PutConnector(t.Context(), row))
	require.Nil(t, shown().NextTickAt)
	require.Equal(t, done, *shown().LastTickAt)
}

// TestCronConnectorsAreChanged: the whole config, and no secret.
func TestCronConnectorsAreChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	status, answer := w.call(t, key, http.MethodPost, "/connectors?environment_id="+w.environmentID("production"),
		`{"name":"Nightly","type":"cron","config":{"schedule":"@daily","timezone":"Asia/Tokyo","payload":{"a":1,"b":2}}}`)
	require.Equal(t, http.StatusCreated, status, "%s", answer)
	path := "/connectors/" + decode[Connector](t, answer).ID
	status, answer = w.call(t, key, http.MethodPatch, path, `{"config":{"schedule":"@hourly","payload":{"b":3}}}`)
	require.Equal(t, http.StatusOK, status, "%s", answer)
	require.Equal(t, map[string]any{
		"schedule": "@hourly", "timezone": "UTC", "missed_ticks": "skip", "prompt": "", "payload": map[string]any{"b": float64(3)},
	}, decode[Connector](t, answer).Config.Value)
	status, answer = w.call(t, key, http.MethodPatch, path, `{"config":{"schedule":"99 * * * *"}}`)
	require.Equal(t, http.StatusUnprocessableEntity, status, "%s", answer)
	require.Equal(t, "body.config.schedule", decode[Problem](t, answer).Errors[0].Location)
	status, _ = w.call(t, key, http.MethodPost, path+"/rotate-secret", "")
	require.Equal(t, http.StatusConflict, status)
}

// TestWhyAScheduleStandsStill: in words of its own.
func TestWhyAScheduleStandsStill(t *testing.T) {
	t.Parallel()
	off := false
	c := &v1alpha1.Connector{ObjectMeta: metav1.ObjectMeta{Name: "nightly"}, Spec: v1alpha1.ConnectorSpec{Cron: &v1alpha1.CronConnector{}}}
	c.MarkRoutesReady()
	require.Nil(t, disabledReason(c))
	c.Spec.Enabled = &off
	require.Contains(t, *disabledReason(c), "its schedule goes on")
	c.MarkDisabled()
	require.Equal(t, "disabled", *disabledReason(c))
}
