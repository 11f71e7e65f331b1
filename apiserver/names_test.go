// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// TestTexts_NameObjectsAsRESTDoes: controllers name objects by their names in Kubernetes.
func TestTexts_NameObjectsAsRESTDoes(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	w.called(t, "staging", "Stage")
	everything := w.key(t, nil)
	limited := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"production"}
	})
	id := w.building(t)
	key := store.Key{ProjectID: w.projectID, ID: id}
	const said = `Environment "staging" lacks X, Connector "tickets" waits, and Environment "gone" is gone`
	require.NoError(t, w.db.RecordConnectors(t.Context(), key, json.RawMessage(`[{"connector":"crm","action":"failed","error":"Environment \"staging\" lacks X"}]`)))
	require.NoError(t, w.db.EndDeployment(t.Context(), key, store.DeploymentFailed, store.FailureConnectors, said))
	for _, row := range []struct {
		name, key, message, result string
	}{
		{"a key that reaches all", everything,
			`environment "Stage" lacks X, connector "Tickets for all" waits, and Environment "gone" is gone`, `environment "Stage" lacks X`},
		{"a key that does not reach the environment", limited,
			`Environment "staging" lacks X, connector "Tickets for all" waits, and Environment "gone" is gone`, `Environment "staging" lacks X`},
	} {
		t.Run(row.name, func(t *testing.T) {
			shown := w.shownDeployment(t, row.key, id.String())
			require.Equal(t, row.message, *shown.Message)
			require.Equal(t, row.result, *shown.ConnectorResults[0].Error)
			_, body := w.call(t, row.key, http.MethodGet, "/deployments?environment_id="+w.ids["environment"], "")
			require.Equal(t, row.message, *decode[[]DeploymentItem](t, body)[0].Message)
		})
	}
	t.Run("a problem", func(t *testing.T) {
		e := w.world.stored(t, w.ids["environment"])
		v1alpha1.MarkStalled(e, v1alpha1.ReasonSlugTaken, `Environment "staging" has its slug`)
		require.NoError(t, w.client.Status().Update(t.Context(), e))
		got := w.ask(t, everything, http.MethodPost, "/deployments?environment_id="+w.ids["environment"], "")
		require.Contains(t, decode[Problem](t, got.Body.Bytes()).Detail, `environment "Stage" has its slug`)
		status, body := w.call(t, everything, http.MethodGet, "/environments/"+w.ids["environment"], "")
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, `environment "Stage" has its slug`, *decode[Environment](t, body).Message)
	})
}

// TestTexts_NameHoldersAsRESTDoes: messages about a clash name the holder by namespace and name.
func TestTexts_NameHoldersAsRESTDoes(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	w.called(t, "staging", "Stage")
	everything := w.key(t, nil)
	limited := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"production"}
	})
	t.Run("a slug that is taken", func(t *testing.T) {
		e, holder := w.world.stored(t, w.ids["environment"]), w.refOf(t, store.KindEnvironment, "staging")
		e.MarkSlugTaken("stage", holder.String())
		require.NoError(t, w.client.Status().Update(t.Context(), e))
		status, body := w.call(t, everything, http.MethodGet, "/environments/"+w.ids["environment"], "")
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, *decode[Environment](t, body).Message, `held by the older environment "Stage"; choose`)
		_, body = w.call(t, limited, http.MethodGet, "/environments/"+w.ids["environment"], "")
		require.Contains(t, *decode[Environment](t, body).Message, "held by the older "+holder.String()+"; choose")
	})
	t.Run("a connector", func(t *testing.T) {
		shown := Connector{
			DisabledReason: opt("the name is that of " + w.refOf(t, store.KindConnector, "tickets").String()),
			UnreadyAgents:  []UnreadyAgent{{Message: `Environment "staging" lacks X`}, {Message: "Environment other/staging lacks X"}},
		}
		c := &caller{projectID: w.projectID, namespace: w.namespace, key: &v1alpha1.APIKey{}}
		w.server.namesFor(c).rename(t.Context(), &shown)
		require.Equal(t, `the name is that of connector "Tickets for all"`, *shown.DisabledReason)
		require.Equal(t, `environment "Stage" lacks X`, shown.UnreadyAgents[0].Message)
		require.Equal(t, "Environment other/staging lacks X", shown.UnreadyAgents[1].Message, "another namespace")
	})
}

// called gives an environment a name for people, and the connector tickets one too.
func (p *past) called(t testing.TB, environment, name string) {
	t.Helper()
	e, err := p.db.Environment(t.Context(), store.Key{ProjectID: p.projectID, ID: uuid.MustParse(p.environmentID(environment))})
	require.NoError(t, err)
	e.DisplayName = name
	require.NoError(t, p.db.PutEnvironment(t.Context(), e))
	c, err := p.db.Connector(t.Context(), store.Key{ProjectID: p.projectID, ID: p.id(t, "connector")})
	require.NoError(t, err)
	c.Name = "Tickets for all"
	require.NoError(t, p.db.PutConnector(t.Context(), c))
}

// TestDeployments_ListAgreesWithSingleRead: on every field that both have, except those that lists leave out.
func TestDeployments_ListAgreesWithSingleRead(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	w.called(t, "staging", "Stage")
	key := w.key(t, nil)
	leftOut := map[string]bool{"build_logs": true, "test_results": true}
	require.NoError(t, w.db.EndDeployment(t.Context(), store.Key{ProjectID: w.projectID, ID: w.building(t)},
		store.DeploymentFailed, store.FailureConnectors, `Environment "staging" lacks X`))
	w.failTests(t)
	w.building(t) // superseded
	building := w.building(t)
	o := w.deploymentObject(t, building.String())
	o.MarkBuilding(v1alpha1.StepFetching)
	o.Status.CommitStatus = &v1alpha1.DeploymentCommitStatus{State: "Pending", Reason: v1alpha1.CommitStatusRefused, Message: "403"}
	require.NoError(t, w.client.Status().Update(t.Context(), o))
	require.NoError(t, w.db.ReportBuild(t.Context(), store.Key{ProjectID: w.projectID, ID: building}, store.BuildReport{Phase: store.PhaseTesting}))
	w.deployed(t, key, "/deployments?environment_id="+w.ids["environment"], "", http.StatusCreated) // the store does not know it
	_, body := w.call(t, key, http.MethodGet, "/deployments?environment_id="+w.ids["environment"], "")
	items := decode[[]map[string]any](t, body)
	statuses := map[any]bool{}
	for _, item := range items {
		statuses[item["status"]] = true
		status, body := w.call(t, key, http.MethodGet, "/deployments/"+item["id"].(string), "")
		require.Equal(t, http.StatusOK, status)
		one, common := decode[map[string]any](t, body), 0
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
