// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/apiserver/deployments"
	"github.com/agentplatform/agentplatform/apiserver/environments"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
)

// TestTexts_NameObjectsAsRESTDoes: controllers name objects by their names in Kubernetes.
func TestTexts_NameObjectsAsRESTDoes(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	renameEnvironment(t, w, "staging", "Stage")
	everything := w.CreateKey(t, nil)
	limited := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"production"}
	})
	id := w.OpenDeployment(t)
	key := store.Key{ProjectID: w.ProjectID, ID: id}
	const said = `Environment "staging" lacks X, Connector "tickets" waits, and Environment "gone" is gone`
	require.NoError(t, w.Store.RecordConnectors(t.Context(), key, json.RawMessage(`[{"connector":"crm","action":"failed","error":"Environment \"staging\" lacks X"}]`)))
	require.NoError(t, w.Store.EndDeployment(t.Context(), key, store.DeploymentFailed, store.FailureConnectors, said))
	for _, row := range []struct {
		name, key, message, result string
	}{
		{"a key that reaches all", everything,
			`environment "Stage" lacks X, connector "Tickets for all" waits, and Environment "gone" is gone`, `environment "Stage" lacks X`},
		{"a key that does not reach the environment", limited,
			`Environment "staging" lacks X, connector "Tickets for all" waits, and Environment "gone" is gone`, `Environment "staging" lacks X`},
	} {
		t.Run(row.name, func(t *testing.T) {
			shown := w.GetDeployment(t, row.key, id.String())
			require.Equal(t, row.message, *shown.Message)
			require.Equal(t, row.result, *shown.ConnectorResults[0].Error)
			_, body := w.Call(t, row.key, http.MethodGet, "/deployments?environment_id="+w.IDs["environment"], "")
			require.Equal(t, row.message, *apiservertest.Decode[[]deployments.DeploymentItem](t, body)[0].Message)
		})
	}
	t.Run("a problem", func(t *testing.T) {
		e := w.Project.EnvironmentObject(t, w.IDs["environment"])
		v1alpha1.MarkStalled(e, v1alpha1.ReasonSlugTaken, `Environment "staging" has its slug`)
		require.NoError(t, w.Client.Status().Update(t.Context(), e))
		got := w.Request(t, everything, http.MethodPost, "/deployments?environment_id="+w.IDs["environment"], "")
		require.Contains(t, apiservertest.Decode[rest.Problem](t, got.Body.Bytes()).Detail, `environment "Stage" has its slug`)
		status, body := w.Call(t, everything, http.MethodGet, "/environments/"+w.IDs["environment"], "")
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, `environment "Stage" has its slug`, *apiservertest.Decode[environments.Environment](t, body).Message)
	})
}

// TestTexts_NameHoldersAsRESTDoes: messages about a clash name the holder by namespace and name.
func TestTexts_NameHoldersAsRESTDoes(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	renameEnvironment(t, w, "staging", "Stage")
	everything := w.CreateKey(t, nil)
	limited := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"production"}
	})
	t.Run("a slug that is taken", func(t *testing.T) {
		e, holder := w.Project.EnvironmentObject(t, w.IDs["environment"]), w.StoredRef(t, store.KindEnvironment, "staging")
		e.MarkSlugTaken("stage", holder.String())
		require.NoError(t, w.Client.Status().Update(t.Context(), e))
		status, body := w.Call(t, everything, http.MethodGet, "/environments/"+w.IDs["environment"], "")
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, *apiservertest.Decode[environments.Environment](t, body).Message, `belongs to the older environment "Stage"; choose`)
		_, body = w.Call(t, limited, http.MethodGet, "/environments/"+w.IDs["environment"], "")
		require.Contains(t, *apiservertest.Decode[environments.Environment](t, body).Message, "belongs to the older "+holder.String()+"; choose")
	})
	t.Run("a connector", func(t *testing.T) {
		shown := connectors.Connector{
			DisabledReason: rest.Optional("the name is that of " + w.StoredRef(t, store.KindConnector, "tickets").String()),
			UnreadyAgents:  []connectors.UnreadyAgent{{Message: `Environment "staging" lacks X`}, {Message: "Environment other/staging lacks X"}},
		}
		c := &rest.Caller{ProjectID: w.ProjectID, Namespace: w.Namespace, Key: &v1alpha1.APIKey{}}
		w.Server.Service.NameObjects(t.Context(), c, &shown)
		require.Equal(t, `the name is that of connector "Tickets for all"`, *shown.DisabledReason)
		require.Equal(t, `environment "Stage" lacks X`, shown.UnreadyAgents[0].Message)
		require.Equal(t, "Environment other/staging lacks X", shown.UnreadyAgents[1].Message, "another namespace")
	})
}

// renameEnvironment gives an environment a name for people, and the connector tickets one too.
func renameEnvironment(t testing.TB, p *apiservertest.ProjectWithHistory, environment, name string) {
	t.Helper()
	e, err := p.Store.Environment(t.Context(), store.Key{ProjectID: p.ProjectID, ID: uuid.MustParse(p.EnvironmentID(environment))})
	require.NoError(t, err)
	e.DisplayName = name
	require.NoError(t, p.Store.PutEnvironment(t.Context(), e))
	c, err := p.Store.Connector(t.Context(), store.Key{ProjectID: p.ProjectID, ID: p.ObjectID(t, "connector")})
	require.NoError(t, err)
	c.Name = "Tickets for all"
	require.NoError(t, p.Store.PutConnector(t.Context(), c))
}

// TestDeployments_ListAgreesWithSingleRead: on every field that both have, except those that lists leave out.
func TestDeployments_ListAgreesWithSingleRead(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	renameEnvironment(t, w, "staging", "Stage")
	key := w.CreateKey(t, nil)
	leftOut := map[string]bool{"build_logs": true, "test_results": true}
	require.NoError(t, w.Store.EndDeployment(t.Context(), store.Key{ProjectID: w.ProjectID, ID: w.OpenDeployment(t)},
		store.DeploymentFailed, store.FailureConnectors, `Environment "staging" lacks X`))
	w.FailedDeployment(t)
	w.OpenDeployment(t) // superseded
	building := w.OpenDeployment(t)
	o := w.DeploymentObject(t, building.String())
	o.MarkBuilding(v1alpha1.StepFetching)
	o.Status.CommitStatus = &v1alpha1.DeploymentCommitStatus{State: "Pending", Reason: v1alpha1.CommitStatusRefused, Message: "403"}
	require.NoError(t, w.Client.Status().Update(t.Context(), o))
	require.NoError(t, w.Store.ReportBuild(t.Context(), store.Key{ProjectID: w.ProjectID, ID: building}, store.BuildReport{Phase: store.PhaseTesting}))
	w.CreateDeployment(t, key, "/deployments?environment_id="+w.IDs["environment"], "", http.StatusCreated) // the store does not know it
	_, body := w.Call(t, key, http.MethodGet, "/deployments?environment_id="+w.IDs["environment"], "")
	items := apiservertest.Decode[[]map[string]any](t, body)
	statuses := map[any]bool{}
	for _, item := range items {
		statuses[item["status"]] = true
		status, body := w.Call(t, key, http.MethodGet, "/deployments/"+item["id"].(string), "")
		require.Equal(t, http.StatusOK, status)
		one, common := apiservertest.Decode[map[string]any](t, body), 0
		for field, value := range item {
			if other, both := one[field]; both && !leftOut[field] {
				common++
				require.Equal(t, other, value, "%s of a deployment that is %s", field, item["status"])
			}
		}
		require.Greater(t, common, 15)
	}
	require.Len(t, statuses, 5, "one of each status: %v", statuses)
}
