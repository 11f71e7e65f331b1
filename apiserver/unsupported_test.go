// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

func TestParametersThatHaveNoEffectAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, emptyStore{})
	key := w.key(t, nil)
	agent := "/agents/hello?environment_id=" + w.environmentID("production")
	for _, name := range unsupportedAgentQuery {
		status, body := w.call(t, key, http.MethodGet, agent+"&"+name+"=CANARY", "")
		require.Equal(t, http.StatusUnprocessableEntity, status, "%s: %s", name, body)
		require.NotContains(t, string(body), "CANARY")
		require.Equal(t, []FieldError{notSupported("query." + name)}, decode[Problem](t, body).Errors)
	}
}

// A repeated or conditional write would be believed to be safe.
func TestHeadersThatHaveNoEffectAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, emptyStore{})
	key := w.key(t, nil)
	tried := 0
	for _, r := range w.server.routes() {
		if r.method == http.MethodGet {
			continue
		}
		for _, name := range unsupportedHeaders {
			path := strings.NewReplacer("{project_id}", w.projectID.String(), "{connector_id}", uuid.NewString()).Replace(projectPath + r.path)
			request := httptest.NewRequestWithContext(t.Context(), r.method, path, strings.NewReader(`{}`))
			request.Header.Set("Authorization", "Bearer "+key)
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set(name, "CANARY")
			recorder := httptest.NewRecorder()
			w.server.Handler().ServeHTTP(recorder, request)
			require.Equal(t, http.StatusUnprocessableEntity, recorder.Code, "%s %s: %s", r.method, r.path, recorder.Body)
			require.Equal(t, []FieldError{notSupported("header." + name)}, decode[Problem](t, recorder.Body.Bytes()).Errors)
			tried++
		}
	}
	require.NotZero(t, tried)
	var connectors v1alpha1.ConnectorList
	require.NoError(t, w.client.List(t.Context(), &connectors, client.InNamespace(w.namespace)))
	require.Empty(t, connectors.Items)
}

func TestLinksThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, emptyStore{})
	key := w.key(t, nil)
	for location, body := range map[string]string{
		"body.files_required": `{"agent_name":"hello","files_required":true}`,
		"body.outbound":       `{"agent_name":"hello","outbound":{"mode":"automatic"}}`,
	} {
		status, answer := w.call(t, key, http.MethodPost, "/connectors/"+uuid.NewString()+"/links", body)
		require.Equal(t, http.StatusUnprocessableEntity, status, "%s", answer)
		require.Equal(t, []FieldError{notSupported(location)}, decode[Problem](t, answer).Errors)
	}
}
