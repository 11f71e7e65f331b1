// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/later"
)

// contracted are the endpoints of the service's contract.
var contracted = strings.Fields(`
	GET/environments POST/environments GET/environments/{environment_id} PATCH/environments/{environment_id}
	DELETE/environments/{environment_id} POST/environments/{environment_id}/set-default
	GET/agents GET/agents/{agent_name}
	GET/deployments POST/deployments GET/deployments/{deployment_id} GET/deployments/{deployment_id}/test-runs
	POST/deployments/{deployment_id}/cancel POST/deployments/{deployment_id}/activate
	POST/deployments/{deployment_id}/redeploy POST/deployments/{deployment_id}/deploy-anyway
	POST/connectors GET/connectors GET/connectors/{connector_id} PATCH/connectors/{connector_id} DELETE/connectors/{connector_id}
	POST/connectors/{connector_id}/links GET/connectors/{connector_id}/links
	PATCH/connectors/{connector_id}/links/{link_id} DELETE/connectors/{connector_id}/links/{link_id}
	GET/connectors/{connector_id}/runs GET/connectors/{connector_id}/runs/{run_id} GET/connectors/{connector_id}/stats
	GET/runs/{run_id} POST/retrieval/text
	GET/runs GET/runs/{run_id}/files/{number} POST/runs/{run_id}/cancel DELETE/runs/{run_id} POST/connectors/{connector_id}/runs/{run_id}/replay POST/connectors/{connector_id}/rotate-secret POST/connectors/{connector_id}/test
	POST/connectors/{connector_id}/replays GET/connectors/{connector_id}/replays GET/connectors/{connector_id}/replays/{replay_id}
	POST/connectors/{connector_id}/replays/{replay_id}/cancel GET/connectors/{connector_id}/rejections GET/deployments/{deployment_id}/logs GET/runs/{run_id}/events POST/deployments/upload
	GET/environments/{environment_id}/variables PUT/environments/{environment_id}/variables POST/retrieval/query
	GET/approvals GET/judges GET/budgets GET/audit-log`)

// TestEveryEndpointOfTheContractHasItsRow: and no two rows are the same.
func TestEveryEndpointOfTheContractHasItsRow(t *testing.T) {
	t.Parallel()
	rows, ids := map[string]bool{}, map[string]bool{}
	for _, r := range routes {
		require.False(t, rows[r.method+r.path], r.id)
		require.False(t, ids[r.id], r.id)
		rows[r.method+r.path], ids[r.id] = true, true
		require.NotEmpty(t, r.needs, r.id)
		require.NotEmpty(t, r.tag, r.id)
		if r.mount == nil {
			continue
		}
		require.NotZero(t, r.status, r.id)
		for _, status := range always {
			require.Contains(t, r.errors, status, r.id)
		}
	}
	for _, endpoint := range contracted {
		require.True(t, rows[endpoint], endpoint)
	}
}

// TestWhatIsNotInThisReleaseSaysSo: after the key, the project and the permission,
// and with what to do instead.
func TestWhatIsNotInThisReleaseSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	var planned []string
	for _, r := range routes {
		if r.mount != nil {
			continue
		}
		planned = append(planned, strings.ToUpper(r.method)+" "+r.path)
		answer := w.ask(t, key, r.method, with(concrete(r), "whatever=1"), body(r), "Idempotency-Key", "k", "If-Match", "x")
		require.Equal(t, http.StatusNotImplemented, answer.Code, "%s: %s", r.id, answer.Body)
		p := decode[Problem](t, answer.Body.Bytes())
		require.Equal(t, httpserver.CodeNotImplemented, p.Code)
		require.Contains(t, p.Detail, "not in this release")
		require.Contains(t, p.Detail, r.instead)
		other := w.send(t, key, r.method, "/v1/projects/"+uuid.NewString()+concrete(r), body(r))
		require.Equal(t, http.StatusForbidden, other.Code, r.id)
		for _, g := range r.needs {
			lacking := w.key(t, func(k *v1alpha1.APIKeySpec) {
				k.Access = v1alpha1.AccessSelected
				for _, p := range v1alpha1.Permissions() {
					if string(p) != g.permission {
						k.Permissions = append(k.Permissions, p)
					}
				}
			})
			refused := w.ask(t, lacking, r.method, concrete(r), body(r))
			require.Equal(t, http.StatusForbidden, refused.Code, r.id)
			require.Contains(t, refused.Body.String(), g.permission)
		}
	}
	var names []string
	for _, name := range later.At(later.Endpoint) {
		names = append(names, name.String())
	}
	require.ElementsMatch(t, names, planned)
	require.NotContains(t, w.send(t, "", http.MethodGet, "/v1/openapi.json", "").Body.String(), "retrieval/text")
}

// TestAPermissionThatAParameterAsksFor: with it, and without.
func TestAPermissionThatAParameterAsksFor(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	creating := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"connectors.create"}
	})
	path := "/connectors?environment_id=" + w.ids["environment"]
	status, answer := w.call(t, creating, http.MethodPost, path+"&agent_name=hello", `{"name":"a","type":"webhook"}`)
	require.Equal(t, http.StatusForbidden, status, "%s", answer)
	require.Contains(t, decode[Problem](t, answer).Detail, "connectors.link")
	status, answer = w.call(t, creating, http.MethodPost, path, `{"name":"a","type":"webhook"}`)
	require.Equal(t, http.StatusCreated, status, "%s", answer)
}
