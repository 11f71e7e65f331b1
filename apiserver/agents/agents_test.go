// SPDX-License-Identifier: Apache-2.0

package agents_test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/agents"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/costs"
	"github.com/agentplatform/agentplatform/apiserver/runs"
	"github.com/agentplatform/agentplatform/store"
)

func TestListAgents_ShowsAgents(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, query := w.CreateKey(t, nil), "?environment_id="+w.IDs["environment"]
	_, body := w.Call(t, key, http.MethodGet, "/agents"+query, "")
	list := map[string]agents.Agent{}
	for _, a := range apiservertest.Decode[[]agents.Agent](t, body) {
		list[a.Name] = a
	}
	require.Len(t, list, 2, "variants are left out")
	require.Equal(t, agents.AgentDeployment("deployed"), list["hello"].DeploymentStatus)
	require.EqualValues(t, 2, list["hello"].RunCount)
	require.EqualValues(t, 1, list["hello"].QueueCount)
	require.True(t, list["hello"].HasInboundConnector)
	require.Equal(t, agents.AgentDeployment("not_deployed"), list["gone"].DeploymentStatus)
	require.Nil(t, list["gone"].Type)
	_, body = w.Call(t, key, http.MethodGet, "/agents"+query+"&include_variants=true", "")
	all := apiservertest.Decode[[]agents.Agent](t, body)
	require.Len(t, all, 3)
	require.Equal(t, "hello-b", all[2].Name)
	require.Equal(t, "hello", *all[2].VariantOf)
	require.EqualValues(t, 1, all[2].RunCount, "what it has executed of the agent's runs")
	_, body = w.Call(t, key, http.MethodGet, "/agents/hello-b"+query, "")
	require.EqualValues(t, 1, apiservertest.Decode[agents.AgentDetails](t, body).Stats.Total)
	_, body = w.Call(t, key, http.MethodGet, "/agents/hello-b"+query+"&test_name=c", "")
	require.Zero(t, apiservertest.Decode[agents.AgentDetails](t, body).Stats.Total)

	_, body = w.Call(t, key, http.MethodGet, "/agents/hello"+query, "")
	agent := apiservertest.Decode[agents.AgentDetails](t, body)
	require.JSONEq(t, `{"name":"hello"}`, string(agent.Config))
	require.Equal(t, []agents.AgentConnector{{ID: w.IDs["connector"], LinkID: w.IDs["link"], Name: "tickets", Type: "webhook", Mode: "sync", Enabled: true}}, agent.Connectors)
	_, body = w.Call(t, key, http.MethodGet, "/agents/gone"+query, "")
	require.Contains(t, string(body), `"config":null`)
	staging := "?environment_id=" + w.EnvironmentID("staging")
	_, body = w.Call(t, key, http.MethodGet, "/agents/hello"+staging, "")
	require.Equal(t, agents.AgentDeployment("not_deployed"), apiservertest.Decode[agents.AgentDetails](t, body).DeploymentStatus, "it is known in another environment")
	status, _ := w.Call(t, key, http.MethodGet, "/agents/nobody"+query, "")
	require.Equal(t, http.StatusNotFound, status)
}

// An agent shows the drift of its own MCP servers in the live deployment.
func TestGetAgent_ShowsDrift(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, path := w.CreateKey(t, nil), "/agents/hello?environment_id="+w.IDs["environment"]
	_, body := w.Call(t, key, http.MethodGet, path, "")
	require.Contains(t, string(body), `"mcp_drift":[]`)
	environment := store.Key{ProjectID: w.ProjectID, ID: uuid.MustParse(w.IDs["environment"])}
	var reports []store.DriftReport
	for _, agent := range []string{"hello", "other"} {
		reports = append(reports, store.DriftReport{
			DeploymentID: uuid.MustParse(w.IDs["deployment"]), Agent: agent, Server: "crm-of-" + agent, Tools: []string{"get\x1b[2J"},
		})
	}
	require.NoError(t, w.Store.RecordDrift(t.Context(), environment, reports))
	_, body = w.Call(t, key, http.MethodGet, path, "")
	drift := apiservertest.Decode[agents.AgentDetails](t, body).MCPDrift
	require.Len(t, drift, 1)
	require.Equal(t, "crm-of-hello", drift[0].Server)
	require.Equal(t, []string{"get_[2J"}, drift[0].Tools)
	require.False(t, drift[0].Since.IsZero())
}

// Connectors are sorted by their shown name, then by ID.
func TestGetAgent_SortsConnectors(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	type shown struct{ name, id, link string }
	want := []shown{{w.Connector.Title(), w.IDs["connector"], w.IDs["link"]}}
	for i := range 24 { // more than a sort keeps in their order by chance
		conn := w.CreateConnector(t, fmt.Sprintf("c-%02d", i), func(c *v1alpha1.Connector) {
			c.Spec.DisplayName = v1alpha1.DisplayName([]string{"Orders", "Alerts", "zeta"}[i%3])
		})
		link := &v1alpha1.ConnectorLink{ObjectMeta: w.Meta(conn.Name), Spec: v1alpha1.ConnectorLinkSpec{
			Connector: v1alpha1.ConnectorName(conn.Name), Agent: "hello",
		}}
		w.Create(t, link)
		want = append(want, shown{conn.Title(), conn.Status.ID, link.Status.ID})
	}
	slices.SortFunc(want, func(a, b shown) int { return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.id, b.id)) })
	_, body := w.Call(t, w.CreateKey(t, nil), http.MethodGet, "/agents/hello?environment_id="+w.IDs["environment"], "")
	var got []shown
	for _, c := range apiservertest.Decode[agents.AgentDetails](t, body).Connectors {
		got = append(got, shown{c.Name, c.ID, c.LinkID})
	}
	require.Equal(t, want, got)
}

// Costs are the costs of the window by model. A currency without rates is rejected.
func TestGetAgent_ShowsCostsByModel(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	path := apiservertest.FillPath(t, "/agents/hello?environment_id={environment}", w.IDs)
	status, body := w.Call(t, key, http.MethodGet, path+"&convert_costs_to=EUR", "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	got := apiservertest.Decode[agents.AgentDetails](t, body)
	require.NotNil(t, got.UsageByModel)
	for _, of := range []string{path + "&", apiservertest.FillPath(t, "/deployments/{deployment}/test-runs?", w.IDs)} {
		status, body := w.Call(t, key, http.MethodGet, of+"convert_costs_to=GBP", "")
		apiservertest.RequireField(t, status, body, "query.convert_costs_to")
	}
}

// Costs are null for open runs, in lists, and if the calls are not stored. They are 0 if a run used no tokens.
func TestCosts_AreNullIfUnknown(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	_, body := w.Call(t, key, http.MethodGet, "/runs", "")
	for _, run := range apiservertest.Decode[runs.RunList](t, body).Items {
		require.Zero(t, run.Costing)
	}
	_, body = w.Call(t, key, http.MethodGet, "/runs/"+w.QueuedRun.String(), "")
	require.Zero(t, apiservertest.Decode[runs.Run](t, body).Costing)
	_, body = w.Call(t, key, http.MethodGet, "/runs/"+w.CompletedRun.String(), "")
	require.Zero(t, apiservertest.Decode[runs.Run](t, body).Costing)
	_, body = w.Call(t, key, http.MethodGet, "/runs/"+w.FailedRun.String(), "")
	require.Equal(t, costs.Costing{UnpricedCalls: ptr.To[int64](0)}, apiservertest.Decode[runs.Run](t, body).Costing)
}
