// SPDX-License-Identifier: Apache-2.0

package connectors_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// The secret rotates once for an Idempotency-Key, with the requested grace period.
func TestRotateSecret_ReturnsNewSecret(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	made := createCRM(t, w, key, "CRM")
	path := "/connectors/" + made.ID + "/rotate-secret"
	rotate := func(body string, headers ...string) connectors.Connector {
		answer := w.Request(t, key, http.MethodPost, path, body, headers...)
		require.Equal(t, http.StatusOK, answer.Code, "%s", answer.Body)
		got := w.Request(t, key, http.MethodGet, "/connectors/"+made.ID, "")
		require.JSONEq(t, got.Body.String(), answer.Body.String())
		require.Equal(t, got.Header().Get("ETag"), answer.Header().Get("ETag"))
		return apiservertest.Decode[connectors.Connector](t, answer.Body.Bytes())
	}
	requireSpec := func(version int32, grace time.Duration) {
		t.Helper()
		conn := w.ConnectorObject(t, made.ID)
		require.Equal(t, version, conn.Spec.SecretVersion)
		require.Equal(t, int32(86400), *conn.Spec.SecretGracePeriodSeconds, "that of later rotations")
		require.Equal(t, grace, conn.SecretGracePeriod())
	}
	day := 24 * time.Hour
	requireSpec(1, day)
	second := rotate("")
	require.NotEqual(t, *made.Secret, *second.Secret)
	requireSpec(2, day)
	third := rotate(`{"grace_seconds":0}`, "Idempotency-Key", "k")
	require.NotEqual(t, *second.Secret, *third.Secret)
	requireSpec(3, 0)
	require.Equal(t, third, rotate(`{"grace_seconds":0}`, "Idempotency-Key", "k"), "once")
	requireSpec(3, 0)
	fourth := rotate(`{}`, "Idempotency-Key", "l", "If-Match", rest.ETag(w.ConnectorObject(t, made.ID)))
	requireSpec(4, day)
	require.Equal(t, fourth, rotate(`{"grace_seconds":0}`, "Idempotency-Key", "k"), "a late repetition answers the secret in effect")
	rotate(`{"grace_seconds":3600}`)
	requireSpec(5, time.Hour)

	kubectl := w.ConnectorObject(t, made.ID)
	kubectl.Spec.SecretVersion = 6
	require.NoError(t, w.Client.Update(t.Context(), kubectl))
	requireSpec(6, day)
	behind := w.ConnectorObject(t, made.ID)
	behind.Spec.SecretVersion = 2
	require.NoError(t, w.Client.Update(t.Context(), behind))
	rotate("")
	requireSpec(6, day)
}

// The connector has the project's own secret or no secret, or is not in effect.
func TestRotateSecret_RejectsConnectorsWithoutGeneratedSecret(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	for name, c := range map[string]struct {
		change func(*v1alpha1.Connector)
		mark   func(*v1alpha1.Connector)
		code   httpserver.Code
		says   string
	}{
		"brought": {func(c *v1alpha1.Connector) { c.Spec.SecretRef = &v1alpha1.SecretReference{Name: "mine"} }, nil, httpserver.CodeNoSecret, `Secret "mine"`},
		"open": {func(c *v1alpha1.Connector) {
			c.Spec.ID, c.Spec.Webhook.Authentication = v1alpha1.UUID(uuid.NewString()), v1alpha1.AuthenticationNone
		}, nil, httpserver.CodeNoSecret, "authentication is none"},
		"cron": {func(c *v1alpha1.Connector) {
			c.Spec.Webhook, c.Spec.Cron = nil, &v1alpha1.CronConnector{Schedule: "@daily"}
		}, nil, httpserver.CodeNoSecret, "a cron connector has no secret"},
		"last":     {nil, func(c *v1alpha1.Connector) { c.Status.SecretVersion = v1alpha1.MaxSecretVersion }, httpserver.CodeConflict, "create another connector"},
		"homeless": {nil, func(c *v1alpha1.Connector) { v1alpha1.MarkReferenceMissing(c, "Environment", "dev") }, httpserver.CodeConflict, `"dev"`},
		"nameless": {nil, func(c *v1alpha1.Connector) { c.MarkNameTaken("Connector team/other") }, httpserver.CodeConflict, "team/other"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := w.CreateConnector(t, name, c.change)
			if c.mark != nil {
				c.mark(conn)
				require.NoError(t, w.Client.Status().Update(t.Context(), conn))
			}
			status, body := w.Call(t, key, http.MethodPost, "/connectors/"+conn.Status.ID+"/rotate-secret", "")
			require.Equal(t, http.StatusConflict, status, "%s", body)
			p := apiservertest.Decode[rest.Problem](t, body)
			require.Equal(t, c.code, p.Code)
			require.Contains(t, p.Detail, c.says)
			require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(conn), conn))
			require.EqualValues(t, 1, conn.Spec.SecretVersion)
		})
	}
	made := createCRM(t, w, key, "CRM")
	for body, location := range map[string]string{
		`{"grace_seconds":-1}`: "body.grace_seconds", `{"grace_seconds":31536001}`: "body.grace_seconds",
		`{"grace_seconds":"1"}`: "body.grace_seconds", `{"version":2}`: "body.version", `[]`: "body",
	} {
		t.Run(body, func(t *testing.T) {
			status, answer := w.Call(t, key, http.MethodPost, "/connectors/"+made.ID+"/rotate-secret", body)
			apiservertest.RequireField(t, status, answer, location)
		})
	}
}

// A repeated call returns the secret without another rotation.
func TestRotateSecret_WaitsForEffect(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	made := createCRM(t, w, key, "CRM")
	rotate := func() (int, []byte) {
		answer := w.Request(t, key, http.MethodPost, "/connectors/"+made.ID+"/rotate-secret", "", "Idempotency-Key", "k")
		return answer.Code, answer.Body.Bytes()
	}
	conn := w.ConnectorObject(t, made.ID)
	conn.Status.SecretVersion = 1
	require.NoError(t, w.Client.Status().Update(t.Context(), conn))
	working := w.Server.Service.Client
	w.Server.Service.Client = w.FacadeClient // no controller looks
	status, body := rotate()
	require.Equal(t, http.StatusServiceUnavailable, status, "%s", body)
	require.Equal(t, httpserver.CodeNotInEffect, apiservertest.Decode[rest.Problem](t, body).Code)
	require.Equal(t, *made.Secret, *w.GetConnector(t, key, &v1alpha1.Connector{Status: v1alpha1.ConnectorStatus{ObjectStatus: v1alpha1.ObjectStatus{ID: made.ID}}}).Secret, "the response shows a valid secret")

	conn = w.ConnectorObject(t, made.ID)
	conn.Status.SecretVersion = conn.Spec.SecretVersion
	require.NoError(t, w.Client.Status().Update(t.Context(), conn))
	w.Server.Service.Client = working
	status, body = rotate()
	require.Equal(t, http.StatusOK, status, "%s", body)
	require.NotEqual(t, *made.Secret, *apiservertest.Decode[connectors.Connector](t, body).Secret)
	require.EqualValues(t, 2, w.ConnectorObject(t, made.ID).Spec.SecretVersion)
}
