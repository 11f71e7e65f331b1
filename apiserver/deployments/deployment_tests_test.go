// SPDX-License-Identifier: Apache-2.0

package deployments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// The log of the tests can show values of the test environment, so the key must reach it.
func TestCreateDeployment_RequiresTestEnvironment(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	reaching := func(names ...v1alpha1.EnvironmentName) string {
		return w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
			k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, names
		})
	}
	one, both := reaching("production"), reaching("production", "spare")
	create, upload := "/deployments?environment_id="+w.IDs["environment"], "/deployments/upload?environment_id="+w.IDs["environment"]
	redeploy := "/deployments/" + w.IDs["deployment"] + "/redeploy"
	connectors := w.OpenDeployment(t)
	require.NoError(t, w.Store.EndDeployment(t.Context(), store.Key{ProjectID: w.ProjectID, ID: connectors}, store.DeploymentFailed, store.FailureConnectors, "a name is taken"))
	calls := map[string]struct {
		body   string
		status int
	}{
		create:   {`{"branch":"main"}`, http.StatusCreated},
		upload:   {apiservertest.Upload, http.StatusCreated},
		redeploy: {"", http.StatusOK},
		"/deployments/" + connectors.String() + "/deploy-anyway": {"", http.StatusOK},
	}
	for path, c := range calls {
		w.CreateDeployment(t, one, path, c.body, c.status)
	}

	e := w.Project.EnvironmentObject(t, w.IDs["environment"])
	e.Spec.TestEnvironment, e.Spec.Git.AutoDeploy = "spare", true
	require.NoError(t, w.Client.Update(t.Context(), e))
	for path, c := range calls {
		t.Run(path, func(t *testing.T) {
			p := apiservertest.RequireCode(t, http.StatusForbidden, httpserver.CodeForbidden, w.Project, one, http.MethodPost, path, c.body)
			require.Contains(t, p.Detail, "testEnvironment")
			w.CreateDeployment(t, both, path, c.body, c.status)
			w.CreateDeployment(t, w.CreateKey(t, nil), path, c.body, c.status)
		})
	}
	environment := "/environments/" + w.IDs["environment"]
	p := apiservertest.RequireCode(t, http.StatusForbidden, httpserver.CodeForbidden, w.Project, one, http.MethodPatch, environment, `{"git_branch":"mine"}`)
	require.Contains(t, p.Detail, "testEnvironment", "its head would be deployed next")
	require.Equal(t, http.StatusOK, w.Request(t, both, http.MethodPatch, environment, `{"git_branch":"mine"}`).Code)
	require.True(t, w.CreateDeployment(t, one, upload+"&skip_tests=true", apiservertest.Upload, http.StatusCreated).SkipTests)
	require.True(t, w.CreateDeployment(t, one, "/deployments/"+w.FailedDeployment(t).String()+"/deploy-anyway", "", http.StatusOK).SkipTests)
}
