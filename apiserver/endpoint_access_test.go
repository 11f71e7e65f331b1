// SPDX-License-Identifier: Apache-2.0

package apiserver_test

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
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/environments"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// The IDs do not exist, so 401 and 403 come before any lookup.
func TestEndpoints_RequireKeyProjectAndPermission(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	w.Allow(t, "runs-only", "berta", rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"runs"}, Verbs: []string{"get"},
	})
	all := w.CreateKey(t, nil)
	past := metav1.NewTime(time.Now().Add(-time.Hour))
	refusing := map[string]struct {
		key    string
		status int
	}{
		"no key":               {"", http.StatusUnauthorized},
		"malformed":            {all[:len(all)-1] + "!", http.StatusUnauthorized},
		"unknown":              {"ap_00000000_0000000000000000000000000000_000000", http.StatusUnauthorized},
		"revoked":              {w.CreateKey(t, func(k *v1alpha1.APIKeySpec) { k.Revoked = true }), http.StatusUnauthorized},
		"expired":              {w.CreateKey(t, func(k *v1alpha1.APIKeySpec) { k.ExpiresAt = &past }), http.StatusUnauthorized},
		"no permission":        {w.CreateKey(t, func(k *v1alpha1.APIKeySpec) { k.Access = v1alpha1.AccessSelected }), http.StatusForbidden},
		"owner without access": {w.CreateKey(t, func(k *v1alpha1.APIKeySpec) { k.Owner.Name = "nobody" }), http.StatusForbidden},
	}
	narrow := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) { k.Owner.Name = "berta" })
	foreign := "/v1/projects/" + uuid.NewString()
	for _, r := range apiservertest.Endpoints {
		for _, g := range r.Permissions {
			require.Contains(t, v1alpha1.Permissions(), g.Permission, r.ID)
		}
		path, body := apiservertest.RandomPath(r), apiservertest.AcceptedBody(r)
		for name, c := range refusing {
			t.Run(name, func(t *testing.T) {
				status, answer := w.Call(t, c.key, r.Method, path, body)
				require.Equal(t, c.status, status, "%s, %s: %s", r.ID, name, answer)
			})
		}
		require.Equal(t, http.StatusForbidden, w.Send(t, all, r.Method, foreign+path, body).Code, r.ID)
		status, answer := w.Call(t, narrow, r.Method, path, body)
		require.Equal(t, r.Permissions[0].Permission != "runs.view", status == http.StatusForbidden, "%s, owner narrowed: %s", r.ID, answer)
		status, answer = w.Call(t, all, r.Method, path, body)
		require.NotContains(t, []int{401, 403, 500}, status, "%s: %s", r.ID, answer)
		require.Equal(t, !r.IsSupported(), status == http.StatusNotImplemented, "%s: %s", r.ID, answer)
	}
}

func TestRouter_RejectsUnknownPaths(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	status, _ := w.Call(t, key, http.MethodGet, "/secrets", "")
	require.Equal(t, http.StatusForbidden, status)
	status, _ = w.Call(t, "", http.MethodGet, "/secrets", "")
	require.Equal(t, http.StatusUnauthorized, status)
	require.Equal(t, http.StatusNotFound, w.Send(t, key, http.MethodGet, "/v2", "").Code)
}

// A path of the API tells the holder of a key of the project which methods it has.
func TestRouter_RejectsOtherMethods(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key, environment := w.CreateKey(t, nil), "/environments/"+w.EnvironmentID("staging")
	for _, c := range []struct{ method, path, allow string }{
		{http.MethodDelete, "/environments", "GET, POST"},
		{http.MethodPut, "/environments", "GET, POST"},
		{http.MethodPost, environment, "GET, PATCH, DELETE"},
		{http.MethodGet, environment + "/set-default", "POST"},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			answer := w.Request(t, key, c.method, c.path, "")
			require.Equal(t, http.StatusMethodNotAllowed, answer.Code, "%s %s: %s", c.method, c.path, answer.Body)
			require.Equal(t, httpserver.CodeMethodNotAllowed, apiservertest.Decode[rest.Problem](t, answer.Body.Bytes()).Code)
			require.Equal(t, c.allow, answer.Header().Get("Allow"))
			require.Equal(t, http.StatusUnauthorized, w.Request(t, "", c.method, c.path, "").Code)
			foreign := w.Send(t, key, c.method, "/v1/projects/"+uuid.NewString()+c.path, "")
			require.Equal(t, http.StatusForbidden, foreign.Code, "%s %s: %s", c.method, c.path, foreign.Body)
		})
	}
	apiservertest.RequireCode(t, http.StatusForbidden, httpserver.CodeNotPublic, w, key, http.MethodGet, "/environments/", "")
}

func TestAuth_LimitsKeysToEnvironments(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	status, body := w.Call(t, key, http.MethodGet, "/environments", "")
	require.Equal(t, http.StatusOK, status)
	list := apiservertest.Decode[[]environments.Environment](t, body)
	require.Len(t, list, 1)
	require.Equal(t, "staging", list[0].Name)
	for name, want := range map[string]int{"staging": http.StatusOK, "production": http.StatusForbidden} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/environments/" + w.EnvironmentID(name), "/agents?environment_id=" + w.EnvironmentID(name),
				"/connectors?environment_id=" + w.EnvironmentID(name), "/deployments?environment_id=" + w.EnvironmentID(name),
				"/runs?environment_id=" + w.EnvironmentID(name)} {
				status, body := w.Call(t, key, http.MethodGet, path, "")
				require.Equal(t, want, status, "%s: %s", path, body)
			}
		})
	}
	status, _ = w.Call(t, key, http.MethodGet, "/environments/"+uuid.NewString(), "")
	require.Equal(t, http.StatusNotFound, status)
}

func TestDocument_NamesPermissionsOfEachEndpoint(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	r := w.Send(t, "", http.MethodGet, "/v1/openapi.json", "")
	require.Equal(t, http.StatusOK, r.Code)
	document := apiservertest.Decode[struct {
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
	for _, route := range apiservertest.Endpoints {
		operation := document.Paths[rest.PathPrefix+route.Path][strings.ToLower(route.Method)]
		if !route.IsSupported() {
			require.Nil(t, operation, "%s is not in this release", route.ID)
			continue
		}
		described--
		require.EqualValues(t, route.Permissions[0].Permission, operation["x-permission"], route.ID)
		require.Equal(t, route.ID, operation["operationId"])
	}
	require.Zero(t, described, "nothing is described that is not in the table")
}
