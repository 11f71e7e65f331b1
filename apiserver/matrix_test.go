// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// TestEveryRouteAsksForKeyProjectAndPermission goes through the route table:
// ids that do not exist show that 401 and 403 come before any look-up.
func TestEveryRouteAsksForKeyProjectAndPermission(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.allow(t, "runs-only", "berta", rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"runs"}, Verbs: []string{"get"},
	})
	all := w.key(t, nil)
	past := metav1.NewTime(time.Now().Add(-time.Hour))
	refusing := map[string]struct {
		key    string
		status int
	}{
		"no key":               {"", http.StatusUnauthorized},
		"malformed":            {all[:len(all)-1] + "!", http.StatusUnauthorized},
		"unknown":              {"ap_00000000_0000000000000000000000000000_000000", http.StatusUnauthorized},
		"revoked":              {w.key(t, func(k *v1alpha1.APIKeySpec) { k.Revoked = true }), http.StatusUnauthorized},
		"expired":              {w.key(t, func(k *v1alpha1.APIKeySpec) { k.ExpiresAt = &past }), http.StatusUnauthorized},
		"no permission":        {w.key(t, func(k *v1alpha1.APIKeySpec) { k.Access = v1alpha1.AccessSelected }), http.StatusForbidden},
		"owner without access": {w.key(t, func(k *v1alpha1.APIKeySpec) { k.Owner.Name = "nobody" }), http.StatusForbidden},
	}
	narrow := w.key(t, func(k *v1alpha1.APIKeySpec) { k.Owner.Name = "berta" })
	foreign := "/v1/projects/" + uuid.NewString()
	for _, r := range routes {
		for _, g := range r.needs {
			require.Contains(t, v1alpha1.Permissions(), v1alpha1.Permission(g.permission), r.id)
		}
		path, body := concrete(r), body(r)
		for name, c := range refusing {
			t.Run(name, func(t *testing.T) {
				status, answer := w.call(t, c.key, r.method, path, body)
				require.Equal(t, c.status, status, "%s, %s: %s", r.id, name, answer)
			})
		}
		require.Equal(t, http.StatusForbidden, w.send(t, all, r.method, foreign+path, body).Code, r.id)
		status, answer := w.call(t, narrow, r.method, path, body)
		require.Equal(t, r.needs[0].permission != "runs.view", status == http.StatusForbidden, "%s, owner narrowed: %s", r.id, answer)
		status, answer = w.call(t, all, r.method, path, body)
		require.NotContains(t, []int{401, 403, 500}, status, "%s: %s", r.id, answer)
		require.Equal(t, r.mount == nil, status == http.StatusNotImplemented, "%s: %s", r.id, answer)
	}
}

func TestPathsThatAreNoEndpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	status, _ := w.call(t, key, http.MethodGet, "/secrets", "")
	require.Equal(t, http.StatusForbidden, status)
	status, _ = w.call(t, "", http.MethodGet, "/secrets", "")
	require.Equal(t, http.StatusUnauthorized, status)
	require.Equal(t, http.StatusNotFound, w.send(t, key, http.MethodGet, "/v2", "").Code)
}

// A path of the API says which methods it has, to those who have a key of the project.
func TestRouter_RejectsOtherMethods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key, environment := w.key(t, nil), "/environments/"+w.environmentID("staging")
	for _, c := range []struct{ method, path, allow string }{
		{http.MethodDelete, "/environments", "GET, POST"},
		{http.MethodPut, "/environments", "GET, POST"},
		{http.MethodPost, environment, "GET, PATCH, DELETE"},
		{http.MethodGet, environment + "/set-default", "POST"},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			answer := w.ask(t, key, c.method, c.path, "")
			require.Equal(t, http.StatusMethodNotAllowed, answer.Code, "%s %s: %s", c.method, c.path, answer.Body)
			require.Equal(t, httpserver.CodeMethodNotAllowed, decode[Problem](t, answer.Body.Bytes()).Code)
			require.Equal(t, c.allow, answer.Header().Get("Allow"))
			require.Equal(t, http.StatusUnauthorized, w.ask(t, "", c.method, c.path, "").Code)
			foreign := w.send(t, key, c.method, "/v1/projects/"+uuid.NewString()+c.path, "")
			require.Equal(t, http.StatusForbidden, foreign.Code, "%s %s: %s", c.method, c.path, foreign.Body)
		})
	}
	requireCode(t, http.StatusForbidden, httpserver.CodeNotPublic, w, key, http.MethodGet, "/environments/", "")
}

func TestKeysOfSomeEnvironments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	status, body := w.call(t, key, http.MethodGet, "/environments", "")
	require.Equal(t, http.StatusOK, status)
	list := decode[[]Environment](t, body)
	require.Len(t, list, 1)
	require.Equal(t, "staging", list[0].Name)
	for name, want := range map[string]int{"staging": http.StatusOK, "production": http.StatusForbidden} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/environments/" + w.environmentID(name), "/agents?environment_id=" + w.environmentID(name),
				"/connectors?environment_id=" + w.environmentID(name), "/deployments?environment_id=" + w.environmentID(name),
				"/runs?environment_id=" + w.environmentID(name)} {
				status, body := w.call(t, key, http.MethodGet, path, "")
				require.Equal(t, want, status, "%s: %s", path, body)
			}
		})
	}
	status, _ = w.call(t, key, http.MethodGet, "/environments/"+uuid.NewString(), "")
	require.Equal(t, http.StatusNotFound, status)
}

func TestOpenAPINamesThePermissionOfEveryRoute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.send(t, "", http.MethodGet, "/v1/openapi.json", "")
	require.Equal(t, http.StatusOK, r.Code)
	document := decode[struct {
		OpenAPI string `json:"openapi"`
		Info    struct{ Version string }
		Paths   map[string]map[string]map[string]any
	}](t, r.Body.Bytes())
	require.Regexp(t, `^3\.1\.`, document.OpenAPI)
	require.Equal(t, "1.0.0", document.Info.Version)
	described := 0
	for _, operations := range document.Paths {
		described += len(operations)
	}
	for _, route := range routes {
		operation := document.Paths[projectPath+route.path][strings.ToLower(route.method)]
		if route.mount == nil {
			require.Nil(t, operation, "%s is not in this release", route.id)
			continue
		}
		described--
		require.Equal(t, route.needs[0].permission, operation["x-permission"], route.id)
		require.Equal(t, route.id, operation["operationId"])
	}
	require.Zero(t, described, "nothing is described that is not in the table")
}
