// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

func TestADeploymentShowsWhatItsProviderWasTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key, caller := w.start(t, "told"), w.key(t, nil)
	shown := func(t *testing.T) *CommitStatus {
		t.Helper()
		return w.shownDeployment(t, caller, key.ID.String()).CommitStatus.Value
	}
	require.Nil(t, shown(t), "nobody tried yet")
	for name, c := range map[string]struct {
		told v1alpha1.DeploymentCommitStatus
		want string
	}{
		"unreachable": {v1alpha1.DeploymentCommitStatus{Reason: v1alpha1.CommitStatusUnreachable, Message: "it took too long"}, `{"state":null,"error":"it took too long"}`},
		"pending":     {v1alpha1.DeploymentCommitStatus{State: "Pending", Reason: v1alpha1.CommitStatusReported, Message: "Gitea knows it"}, `{"state":"pending","error":null}`},
		"refused":     {v1alpha1.DeploymentCommitStatus{State: "Pending", Reason: v1alpha1.CommitStatusRefused, Message: "403"}, `{"state":"pending","error":"403"}`},
		"success":     {v1alpha1.DeploymentCommitStatus{State: "Success", Reason: v1alpha1.CommitStatusReported}, `{"state":"success","error":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			o := w.deploymentObject(t, key.ID.String())
			o.Status.CommitStatus = &c.told
			require.NoError(t, w.client.Status().Update(t.Context(), o))
			got, err := json.Marshal(shown(t))
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(got))
		})
	}
}

func TestAnEnvironmentShowsWherePushesAreTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	shown := func() *string {
		t.Helper()
		status, answer := w.call(t, key, http.MethodGet, "/environments/"+w.environmentID("production"), "")
		require.Equal(t, http.StatusOK, status, string(answer))
		var e Environment
		require.NoError(t, json.Unmarshal(answer, &e))
		return e.GitWebhookURL
	}
	require.Nil(t, shown())
	project := &v1alpha1.Project{ObjectMeta: w.meta(v1alpha1.ProjectName)}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(project), project))
	project.Status.GitWebhookURL = v1alpha1.GitWebhookURL("https://hooks.example.com", w.projectID)
	require.NoError(t, w.client.Status().Update(t.Context(), project))
	require.Equal(t, "https://hooks.example.com/git/"+w.projectID.String(), *shown())
}
