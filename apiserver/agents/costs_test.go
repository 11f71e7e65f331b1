// SPDX-License-Identifier: Apache-2.0

package agents_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/apiserver/agents"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/costs"
	"github.com/agentplatform/agentplatform/apiserver/runs"
)

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
