// SPDX-License-Identifier: Apache-2.0

package runs_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/runs"
	"github.com/agentplatform/agentplatform/store"
)

func TestGetConnectorRun_ShowsDeliveryAttempts(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	conn := w.CreateConnector(t, "results", func(c *v1alpha1.Connector) {
		c.Spec.Mode, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, "https://a.example"
	})
	connector, run := uuid.MustParse(conn.Status.ID), uuid.New()
	id, err := uuid.NewV7()
	require.NoError(t, err)
	due := time.Now().Add(time.Hour).Truncate(time.Millisecond).UTC()
	w.ExecuteSQL(t, `INSERT INTO deliveries (project_id, id, environment_id, connector_id, link_id, run_id, attempt, due_at, started_at, waits_for) VALUES (?, ?, ?, ?, ?, ?, 2, ?, ?, 'not just now')`,
		w.ProjectID.String(), id.String(), w.EnvironmentID("production"), connector.String(), uuid.NewString(), run.String(), due.UnixMicro(), time.Now().UnixMicro())
	for number, class := range map[int]string{1: store.ErrorClassLost, 2: "http_status"} {
		w.ExecuteSQL(t, `INSERT INTO delivery_attempts (project_id, delivery_id, number, at, duration_us, status_code, error_class, error, response)
			VALUES (?, ?, ?, ?, 7000, ?, ?, 'it failed', 'try later')`, w.ProjectID.String(), id.String(), number, due.UnixMicro(), (number-1)*503, class)
	}
	path := "/connectors/" + conn.Status.ID + "/runs"
	status, body := w.Call(t, key, http.MethodGet, path, "")
	require.Equal(t, http.StatusOK, status, string(body))
	listed := apiservertest.Decode[runs.ConnectorRunList](t, body).Items[0]
	require.Equal(t, run.String(), *listed.RunID)
	require.Equal(t, runs.TriggerType("outbound"), listed.TriggerType)
	require.Empty(t, listed.RunIDs)
	require.Zero(t, listed.DispatchedTo)
	status, body = w.Call(t, key, http.MethodGet, path+"/"+id.String(), "")
	require.Equal(t, http.StatusOK, status, string(body))
	shown := apiservertest.Decode[runs.ConnectorRun](t, body)
	inList := slices.Clone(shown.Attempts)
	for i := range inList {
		inList[i].ResponseExcerpt = nil
	}
	require.Equal(t, inList, listed.Attempts)
	require.Equal(t, shown.NextAttemptAt, listed.NextAttemptAt)
	require.Equal(t, shown.Error, listed.Error)
	require.Equal(t, due, *shown.NextAttemptAt)
	require.Equal(t, "not just now", *shown.Error)
	require.Len(t, shown.Attempts, 2)
	require.Nil(t, shown.Attempts[0].StatusCode)
	require.Nil(t, shown.Attempts[0].DurationMS)
	require.Equal(t, store.ErrorClassLost, *shown.Attempts[0].ErrorClass)
	require.Equal(t, 503, *shown.Attempts[1].StatusCode)
	require.EqualValues(t, 7, *shown.Attempts[1].DurationMS)
	require.Equal(t, "try later", *shown.Attempts[1].ResponseExcerpt)
	require.Nil(t, shown.Output)
	require.Equal(t, runs.DeliveryKind("result"), *shown.Kind.Value)
	require.Equal(t, shown.Kind, listed.Kind)
	require.Nil(t, shown.Payload, "the run has it")
}

// The payload requires the permission to view runs. It is null if the run is no longer stored.
func TestGetConnectorRun_ShowsPayload(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	conn := w.CreateConnector(t, "results", func(c *v1alpha1.Connector) {
		c.Spec.Mode, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, "https://a.example"
	})
	project, environment := w.ProjectID.String(), w.EnvironmentID("production")
	path := "/connectors/" + conn.Status.ID + "/runs"
	all, narrow := w.CreateKey(t, nil), w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"connectors.view"}
	})
	blob, err := uuid.NewV7()
	require.NoError(t, err)
	large := `{"a":"` + strings.Repeat("x", store.MaxInlineInput) + `"}`
	_, err = w.Store.PutBlob(t.Context(), store.Key{ProjectID: w.ProjectID, ID: blob}, strings.NewReader(large))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		kind       string
		data, blob any
		want       any
	}{
		"JSON object":       {"payload", []byte(`{"n": 1}`), nil, map[string]any{"n": 1.0}},
		"JSON list":         {"payload", []byte(`[1]`), nil, []any{1.0}},
		"payload in a blob": {"payload", nil, blob.String(), map[string]any{"a": strings.Repeat("x", store.MaxInlineInput)}},
		"deleted blob":      {"payload", nil, uuid.NewString(), nil},
		"failure notice":    {"delivery_failed", []byte(`{"type":"delivery_failed"}`), nil, map[string]any{"type": "delivery_failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			id, run := store.Stamp(uuid.New(), time.Now().UnixMicro(), 0).String(), w.CompletedRun.String()
			w.ExecuteSQL(t, `INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type, content_type, run_ids, kind, error, started_at, ended_at)
			VALUES (?, ?, ?, ?, 'completed', 'outbound', 'application/json', json_array(?), ?, '', 1, 2)`, project, id, environment, conn.Status.ID, run, c.kind)
			w.ExecuteSQL(t, `INSERT INTO inputs (project_id, id, content_type, data, blob_id) VALUES (?, ?, 'application/json', ?, ?)`, project, id, c.data, c.blob)
			status, body := w.Call(t, all, http.MethodGet, path+"?run_id="+run, "")
			require.Equal(t, http.StatusOK, status, string(body))
			page := apiservertest.Decode[runs.ConnectorRunList](t, body)
			require.EqualValues(t, 1, page.Total)
			require.Equal(t, id, page.Items[0].ID)
			require.Equal(t, runs.DeliveryKind(c.kind), *page.Items[0].Kind.Value)
			require.Nil(t, page.Items[0].Payload)
			status, body = w.Call(t, all, http.MethodGet, path+"/"+id, "")
			require.Equal(t, http.StatusOK, status, string(body))
			require.Equal(t, c.want, apiservertest.Decode[runs.ConnectorRun](t, body).Payload)
			status, body = w.Call(t, narrow, http.MethodGet, path+"/"+id, "")
			require.Equal(t, http.StatusOK, status, string(body))
			require.Nil(t, apiservertest.Decode[runs.ConnectorRun](t, body).Payload, "%s, without permission for runs", name)
			w.ExecuteSQL(t, `DELETE FROM ended_connector_runs WHERE id = ?`, id)
		})
	}
}
