// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// TestWhoDoesNotReachTheTestEnvironmentRunsNoTests: what it has would be read from their log.
func TestWhoDoesNotReachTheTestEnvironmentRunsNoTests(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	reaching := func(names ...v1alpha1.EnvironmentName) string {
		return w.key(t, func(k *v1alpha1.APIKeySpec) {
			k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, names
		})
	}
	one, both := reaching("production"), reaching("production", "spare")
	create, upload := "/deployments?environment_id="+w.ids["environment"], "/deployments/upload?environment_id="+w.ids["environment"]
	redeploy := "/deployments/" + w.ids["deployment"] + "/redeploy"
	connectors := w.building(t)
	require.NoError(t, w.db.EndDeployment(t.Context(), store.Key{ProjectID: w.projectID, ID: connectors}, store.DeploymentFailed, store.FailureConnectors, "a name is taken"))
	calls := map[string]struct {
		body   string
		status int
	}{
		create:   {`{"branch":"main"}`, http.StatusCreated},
		upload:   {anUpload, http.StatusCreated},
		redeploy: {"", http.StatusOK},
		"/deployments/" + connectors.String() + "/deploy-anyway": {"", http.StatusOK},
	}
	for path, c := range calls {
		w.deployed(t, one, path, c.body, c.status)
	}

	e := w.world.stored(t, w.ids["environment"])
	e.Spec.TestEnvironment, e.Spec.Git.AutoDeploy = "spare", true
	require.NoError(t, w.client.Update(t.Context(), e))
	for path, c := range calls {
		t.Run(path, func(t *testing.T) {
			p := requireCode(t, http.StatusForbidden, httpserver.CodeForbidden, w.world, one, http.MethodPost, path, c.body)
			require.Contains(t, p.Detail, "testEnvironment")
			w.deployed(t, both, path, c.body, c.status)
			w.deployed(t, w.key(t, nil), path, c.body, c.status)
		})
	}
	environment := "/environments/" + w.ids["environment"]
	p := requireCode(t, http.StatusForbidden, httpserver.CodeForbidden, w.world, one, http.MethodPatch, environment, `{"git_branch":"mine"}`)
	require.Contains(t, p.Detail, "testEnvironment", "its head would be deployed next")
	require.Equal(t, http.StatusOK, w.ask(t, both, http.MethodPatch, environment, `{"git_branch":"mine"}`).Code)
	require.True(t, w.deployed(t, one, upload+"&skip_tests=true", anUpload, http.StatusCreated).SkipTests)
	require.True(t, w.deployed(t, one, "/deployments/"+w.failTests(t).String()+"/deploy-anyway", "", http.StatusOK).SkipTests)
}
