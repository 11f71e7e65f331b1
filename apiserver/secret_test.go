// SPDX-License-Identifier: Apache-2.0

package apiserver

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
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/keyring"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// ownSecret is the secret that is sealed in a connector's object.
func (w *world) ownSecret(t *testing.T, id string) string {
	t.Helper()
	sealed, err := base64.StdEncoding.DecodeString(w.object(t, id).Spec.Webhook.SealedSecret)
	require.NoError(t, err)
	plain, err := w.platform.Open(seal.SecretField(w.projectID, uuid.MustParse(id)), sealed)
	require.NoError(t, err)
	return string(plain)
}

// TestASecretOfOnesOwnIsACredential: sealed in the object, masked in each answer, kept when it
// is sent masked, empty or not at all, and generated again for another authentication.
func TestASecretOfOnesOwnIsACredential(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	status, body := w.call(t, key, http.MethodPost, "/connectors?environment_id="+w.environmentID("production"),
		`{"name":"Slack","type":"webhook","config":{"authentication":"slack","secret":"CANARY"}}`)
	require.Equal(t, http.StatusCreated, status, string(body))
	require.NotContains(t, string(body), "CANARY")
	made := decode[Connector](t, body)
	require.Equal(t, masked, *made.Secret)
	require.Equal(t, masked, made.Config.Value.(map[string]any)["secret"])
	require.Equal(t, "CANARY", w.ownSecret(t, made.ID))

	path := "/connectors/" + made.ID
	patch := func(body string) Connector {
		t.Helper()
		status, answer := w.call(t, key, http.MethodPatch, path, body)
		require.Equal(t, http.StatusOK, status, string(answer))
		require.NotContains(t, string(answer), "CANARY")
		return decode[Connector](t, answer)
	}
	was := w.object(t, made.ID)
	patch(`{"config":{"authentication":"slack","secret":"********"}}`)
	patch(`{"config":{"authentication":"slack","secret":""}}`)
	patch(`{"config":{"authentication":"slack"}}`)
	require.Equal(t, was.Generation, w.object(t, made.ID).Generation, "nothing has changed")
	patch(`{"config":{"authentication":"slack","files_required":true}}`)
	require.Equal(t, "CANARY", w.ownSecret(t, made.ID), "what is left out stays")
	patch(`{"config":{"authentication":"slack","secret":"CANARY-2"}}`)
	require.Equal(t, "CANARY-2", w.ownSecret(t, made.ID))
	status, body = w.call(t, key, http.MethodPost, path+"/rotate-secret", "")
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, httpserver.CodeNoSecret, decode[Problem](t, body).Code)

	ring, err := w.platform.Ring()
	require.NoError(t, err)
	ring, added, err := ring.WithNewKey(keyring.Sealing)
	require.NoError(t, err)
	require.NoError(t, w.platform.Set(ring, append(ring.IDs(keyring.Derivation), added)))
	patch(`{"config":{"authentication":"slack","secret":"********"}}`)
	sealed, err := base64.StdEncoding.DecodeString(w.object(t, made.ID).Spec.Webhook.SealedSecret)
	require.NoError(t, err)
	require.True(t, w.platform.SealedNow(sealed), "what stays is sealed with the key that serves now")
	require.Equal(t, "CANARY-2", w.ownSecret(t, made.ID))

	entries, err := w.db.ListAudit(t.Context(), store.AuditQuery{ProjectID: w.projectID, Limit: 100})
	require.NoError(t, err)
	told, err := json.Marshal(entries)
	require.NoError(t, err)
	require.NotContains(t, string(told), "CANARY")

	shown := patch(`{"config":{"authentication":"github"}}`)
	require.Contains(t, *shown.Secret, "whs_", "a generated one")
	require.Empty(t, w.object(t, made.ID).Spec.Webhook.SealedSecret)
}

// TestSecretsThatCannotBeBrought: 422 says why.
func TestSecretsThatCannotBeBrought(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	made := w.crm(t, key, "CRM")
	path := "/connectors/" + made.ID
	for config, detail := range map[string]string{
		`{"secret":"********"}`:                          "no stored value",
		`{"authentication":"none","secret":"x"}`:         "authentication is none",
		`{"secret":"` + strings.Repeat("x", 4097) + `"}`: "more than the 4096 bytes",
	} {
		t.Run(fmt.Sprintf("%.60s", config), func(t *testing.T) {
			status, answer := w.call(t, key, http.MethodPatch, path, `{"config":`+config+`}`)
			require.Contains(t, requireField(t, status, answer, "body.config.secret").Message, detail)
		})
	}
	conn := w.object(t, made.ID)
	conn.Spec.SecretRef = &v1alpha1.SecretReference{Name: "own"}
	require.NoError(t, w.client.Update(t.Context(), conn))
	status, answer := w.call(t, key, http.MethodPatch, path, `{"config":{"secret":"x"}}`)
	require.Contains(t, requireField(t, status, answer, "body.config.secret").Message, `the Secret "own"`)

	status, answer = w.call(t, key, http.MethodPatch, path, `{"config":{"files_required":true}}`)
	require.Equal(t, http.StatusOK, status, string(answer))
	require.NotNil(t, w.object(t, made.ID).Spec.SecretRef)
	status, answer = w.call(t, key, http.MethodPatch, path, `{"config":{"authentication":"none"}}`)
	require.Equal(t, http.StatusOK, status, string(answer))
	require.Nil(t, w.object(t, made.ID).Spec.SecretRef, "nobody would check it")
}
