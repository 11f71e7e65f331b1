// SPDX-License-Identifier: Apache-2.0

package connectors_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// openOwnSecret is the secret that is sealed in a connector's object.
func openOwnSecret(t *testing.T, w *apiservertest.Project, id string) string {
	t.Helper()
	sealed, err := base64.StdEncoding.DecodeString(w.ConnectorObject(t, id).Spec.Webhook.SealedSecret)
	require.NoError(t, err)
	plain, err := w.PlatformKeys.Open(secrets.SecretField(w.ProjectID, uuid.MustParse(id)), sealed)
	require.NoError(t, err)
	return string(plain)
}

// The secret is sealed in the object and masked in responses. A masked, empty or omitted value keeps it, and another
// authentication generates a new secret.
func TestOwnSecret_IsCredential(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	status, body := w.Call(t, key, http.MethodPost, "/connectors?environment_id="+w.EnvironmentID("production"),
		`{"name":"Slack","type":"webhook","config":{"authentication":"slack","secret":"CANARY"}}`)
	require.Equal(t, http.StatusCreated, status, string(body))
	require.NotContains(t, string(body), "CANARY")
	made := apiservertest.Decode[connectors.Connector](t, body)
	require.Equal(t, rest.Masked, *made.Secret)
	require.Equal(t, rest.Masked, made.Config.Value.(map[string]any)["secret"])
	require.Equal(t, "CANARY", openOwnSecret(t, w, made.ID))

	path := "/connectors/" + made.ID
	patch := func(body string) connectors.Connector {
		t.Helper()
		status, answer := w.Call(t, key, http.MethodPatch, path, body)
		require.Equal(t, http.StatusOK, status, string(answer))
		require.NotContains(t, string(answer), "CANARY")
		return apiservertest.Decode[connectors.Connector](t, answer)
	}
	was := w.ConnectorObject(t, made.ID)
	patch(`{"config":{"authentication":"slack","secret":"********"}}`)
	patch(`{"config":{"authentication":"slack","secret":""}}`)
	patch(`{"config":{"authentication":"slack"}}`)
	require.Equal(t, was.Generation, w.ConnectorObject(t, made.ID).Generation, "nothing has changed")
	patch(`{"config":{"authentication":"slack","files_required":true}}`)
	require.Equal(t, "CANARY", openOwnSecret(t, w, made.ID), "an omitted secret stays")
	patch(`{"config":{"authentication":"slack","secret":"CANARY-2"}}`)
	require.Equal(t, "CANARY-2", openOwnSecret(t, w, made.ID))
	status, body = w.Call(t, key, http.MethodPost, path+"/rotate-secret", "")
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, httpserver.CodeNoSecret, apiservertest.Decode[rest.Problem](t, body).Code)

	ring, err := w.PlatformKeys.Ring()
	require.NoError(t, err)
	ring, added, err := ring.WithNewKey(secrets.Sealing)
	require.NoError(t, err)
	require.NoError(t, w.PlatformKeys.Set(ring, append(ring.IDs(secrets.Derivation), added)))
	patch(`{"config":{"authentication":"slack","secret":"********"}}`)
	sealed, err := base64.StdEncoding.DecodeString(w.ConnectorObject(t, made.ID).Spec.Webhook.SealedSecret)
	require.NoError(t, err)
	require.True(t, w.PlatformKeys.SealedNow(sealed), "what stays is sealed with the key that serves now")
	require.Equal(t, "CANARY-2", openOwnSecret(t, w, made.ID))

	entries, err := w.Store.ListAudit(t.Context(), store.AuditQuery{ProjectID: w.ProjectID, Limit: 100})
	require.NoError(t, err)
	told, err := json.Marshal(entries)
	require.NoError(t, err)
	require.NotContains(t, string(told), "CANARY")

	shown := patch(`{"config":{"authentication":"github"}}`)
	require.Contains(t, *shown.Secret, "whs_", "a generated one")
	require.Empty(t, w.ConnectorObject(t, made.ID).Spec.Webhook.SealedSecret)
}

func TestOwnSecret_RejectsInvalidSecrets(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	made := createCRM(t, w, key, "CRM")
	path := "/connectors/" + made.ID
	for config, detail := range map[string]string{
		`{"secret":"********"}`:                          "no stored value",
		`{"authentication":"none","secret":"x"}`:         "authentication is none",
		`{"secret":"` + strings.Repeat("x", 4097) + `"}`: "more than 4096 bytes",
	} {
		t.Run(fmt.Sprintf("%.60s", config), func(t *testing.T) {
			status, answer := w.Call(t, key, http.MethodPatch, path, `{"config":`+config+`}`)
			require.Contains(t, apiservertest.RequireField(t, status, answer, "body.config.secret").Message, detail)
		})
	}
	conn := w.ConnectorObject(t, made.ID)
	conn.Spec.SecretRef = &v1alpha1.SecretReference{Name: "own"}
	require.NoError(t, w.Client.Update(t.Context(), conn))
	status, answer := w.Call(t, key, http.MethodPatch, path, `{"config":{"secret":"x"}}`)
	require.Contains(t, apiservertest.RequireField(t, status, answer, "body.config.secret").Message, `the Secret "own"`)

	status, answer = w.Call(t, key, http.MethodPatch, path, `{"config":{"files_required":true}}`)
	require.Equal(t, http.StatusOK, status, string(answer))
	require.NotNil(t, w.ConnectorObject(t, made.ID).Spec.SecretRef)
	status, answer = w.Call(t, key, http.MethodPatch, path, `{"config":{"authentication":"none"}}`)
	require.Equal(t, http.StatusOK, status, string(answer))
	require.Nil(t, w.ConnectorObject(t, made.ID).Spec.SecretRef, "nobody would check it")
}
