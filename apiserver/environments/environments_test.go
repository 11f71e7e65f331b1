// SPDX-License-Identifier: Apache-2.0

package environments_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/environments"
	"github.com/agentplatform/agentplatform/apiserver/rest"
)

func TestGetEnvironment_ShowsGitWebhookURL(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	shown := func() *string {
		t.Helper()
		status, answer := w.Call(t, key, http.MethodGet, "/environments/"+w.EnvironmentID("production"), "")
		require.Equal(t, http.StatusOK, status, string(answer))
		var e environments.Environment
		require.NoError(t, json.Unmarshal(answer, &e))
		return e.GitWebhookURL
	}
	require.Nil(t, shown())
	project := &v1alpha1.Project{ObjectMeta: w.Meta(v1alpha1.ProjectName)}
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(project), project))
	project.Status.GitWebhookURL = v1alpha1.GitWebhookURL("https://hooks.example.com", w.ProjectID)
	require.NoError(t, w.Client.Status().Update(t.Context(), project))
	require.Equal(t, "https://hooks.example.com/git/"+w.ProjectID.String(), *shown())
}

// Unset settings show their defaults.
func TestGetEnvironment_ShowsDefaultSettings(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	e := &v1alpha1.Environment{ObjectMeta: w.Meta("qa"), Spec: v1alpha1.EnvironmentSpec{
		DisplayName: "Quality", Kind: v1alpha1.EnvironmentTest, Git: v1alpha1.EnvironmentGit{Branch: "develop"},
	}}
	e.Spec.Runner.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: *apiservertest.Quantity("1Gi")}
	w.Create(t, e)
	_, body := w.Call(t, key, http.MethodGet, "/environments/"+e.Status.ID, "")
	got := apiservertest.Decode[environments.Environment](t, body)
	require.Equal(t, "Quality", got.Name)
	require.Equal(t, environments.EnvironmentKind("test"), got.Kind)
	require.Equal(t, "develop", *got.GitBranch)
	require.Equal(t, map[string]string{"memory": "1Gi"}, got.Settings.Runner.Limits)
	require.Equal(t, map[string]string{}, got.Settings.Runner.Requests)
	require.False(t, got.IsDefault)
	_, body = w.Call(t, key, http.MethodGet, "/environments/"+w.EnvironmentID("staging"), "")
	plain := apiservertest.Decode[environments.Environment](t, body)
	require.Equal(t, environments.EnvironmentKind("standard"), plain.Kind)
	require.Nil(t, plain.GitBranch)
	require.Equal(t, plain.CreatedAt, plain.UpdatedAt)
}

// A call needs the permission of both the key and its owner.
func TestGetEnvironment_ShowsPermissions(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	narrow := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"environments.view", "runs.view"}
	})
	_, body := w.Call(t, narrow, http.MethodGet, "/environments/"+w.EnvironmentID("staging"), "")
	require.Equal(t, []rest.Permission{"environments.view", "runs.view"}, apiservertest.Decode[environments.Environment](t, body).Permissions)
}

func TestListEnvironments_ShowsReachedOnes(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	project := &v1alpha1.Project{}
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: v1alpha1.ProjectName}, project))
	project.Spec.DefaultEnvironment = "staging"
	require.NoError(t, w.Client.Update(t.Context(), project))

	status, body := w.Call(t, w.CreateKey(t, nil), http.MethodGet, "/environments", "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	list := apiservertest.Decode[[]environments.Environment](t, body)
	require.Len(t, list, 2)
	require.Equal(t, "staging", list[0].Name, "the default first")
	require.True(t, list[0].IsDefault)
	require.Equal(t, w.EnvironmentID("staging"), list[0].ID)
	require.Equal(t, w.ProjectID.String(), list[0].ProjectID)
	require.Len(t, list[0].Permissions, len(v1alpha1.Permissions()))
	fields := apiservertest.Decode[[]map[string]any](t, body)[0]
	require.Contains(t, fields, "live_deployment_id")
	require.Nil(t, fields["live_deployment_id"])
	require.Regexp(t, `Z$`, fields["created_at"])
}
