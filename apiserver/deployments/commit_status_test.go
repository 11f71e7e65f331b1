// SPDX-License-Identifier: Apache-2.0

package deployments_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/deployments"
)

func TestGetDeployment_ShowsCommitStatus(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key, caller := w.StartDeployment(t, "told"), w.CreateKey(t, nil)
	shown := func(t *testing.T) *deployments.CommitStatus {
		t.Helper()
		return w.GetDeployment(t, caller, key.ID.String()).CommitStatus.Value
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
			o := w.DeploymentObject(t, key.ID.String())
			o.Status.CommitStatus = &c.told
			require.NoError(t, w.Client.Status().Update(t.Context(), o))
			got, err := json.Marshal(shown(t))
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(got))
		})
	}
}
