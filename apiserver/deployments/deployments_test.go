// SPDX-License-Identifier: Apache-2.0

package deployments_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/deployments"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
)

// A connector that existed before has an ID whatever the deployment did.
func TestGetDeployment_OmitsIDOfUncreatedConnector(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	idOfCode := func(name string) uuid.UUID {
		return v1alpha1.ProjectObjectID(w.ProjectID, store.KindConnector, "production."+name)
	}
	require.NoError(t, w.Store.PutConnector(t.Context(), store.Connector{
		Ref: w.StoredRef(t, store.KindConnector, "production.kept"), ID: idOfCode("kept"), ProjectID: w.ProjectID,
		EnvironmentID: w.ObjectID(t, "environment"), Name: "kept", Type: "webhook", Mode: "sync", Enabled: true, Config: []byte("{}"),
	}))
	w.ExecuteSQL(t, `UPDATE deployments SET connector_results = $2 WHERE id = $1`, w.IDs["deployment"], `[{"connector":"new","action":"created"},
		{"connector":"kept","action":"skipped"},{"connector":"kept","action":"failed"},{"connector":"never","action":"skipped"},{"connector":"never","action":"failed"}]`)
	id := func(name string) *string { return rest.Optional(idOfCode(name).String()) }
	_, body := w.Call(t, key, http.MethodGet, "/deployments/"+w.IDs["deployment"], "")
	one := apiservertest.Decode[deployments.Deployment](t, body)
	_, body = w.Call(t, key, http.MethodGet, "/deployments?environment_id="+w.IDs["environment"], "")
	for _, d := range []deployments.DeploymentSummary{one.DeploymentSummary, apiservertest.Decode[[]deployments.DeploymentItem](t, body)[0].DeploymentSummary} {
		var ids []*string
		for _, r := range d.ConnectorResults {
			ids = append(ids, r.ConnectorID)
		}
		require.Equal(t, []*string{id("new"), id("kept"), id("kept"), nil, nil}, ids)
	}
}

func TestGetDeployment_ShowsDeployment(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	_, body := w.Call(t, key, http.MethodGet, "/deployments?environment_id="+w.IDs["environment"], "")
	items := apiservertest.Decode[[]deployments.DeploymentItem](t, body)
	require.Len(t, items, 1)
	require.Equal(t, 1, items[0].FailedTestCount)
	require.Contains(t, string(body), `"test_results":null`)
	require.Nil(t, items[0].BuildLogs)
	require.True(t, items[0].IsLive)
	_, body = w.Call(t, key, http.MethodGet, "/deployments?environment_id="+w.EnvironmentID("staging"), "")
	require.JSONEq(t, "[]", string(body))

	_, body = w.Call(t, key, http.MethodGet, "/deployments/"+w.IDs["deployment"], "")
	d := apiservertest.Decode[deployments.Deployment](t, body)
	require.Equal(t, "packed 1 agent\n", *d.BuildLogs)
	require.Equal(t, deployments.DeploymentStatus("deployed"), d.Status)
	require.Equal(t, deployments.DeploymentSource{Type: "git", Branch: rest.Optional("main"), Commit: d.Source.Commit, CommitMessage: rest.Optional("Say hello"), Author: rest.Optional("Ada")}, d.Source)
	require.Len(t, d.TestResults, 3)
	var order []string
	for _, r := range d.TestResults {
		order = append(order, r.AgentName+"/"+r.TestName)
		require.Equal(t, []string{}, r.AgentRunIDs, "of what a build ran alone no run is kept")
	}
	require.Equal(t, []string{"farewell/waves", "hello/counts", "hello/greets"}, order)
	_, body = w.Call(t, key, http.MethodGet, "/deployments/"+w.IDs["deployment"]+"/test-runs", "")
	require.Equal(t, d.TestResults, apiservertest.Decode[[]deployments.TestResult](t, body))
	_, body = w.Call(t, key, http.MethodGet, "/deployments/"+w.OpenDeployment(t).String()+"/test-runs", "")
	require.JSONEq(t, "[]", string(body), "its tests have not run")
	crm := v1alpha1.ProjectObjectID(w.ProjectID, store.KindConnector, "production.crm").String()
	require.Equal(t, []deployments.ConnectorResult{{Connector: "crm", ConnectorID: &crm, Action: "created"}}, d.ConnectorResults)
	require.Len(t, d.Agents, 2)
}

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
