// SPDX-License-Identifier: Apache-2.0

package agents_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/agents"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/costs"
	"github.com/agentplatform/agentplatform/apiserver/rest"
)

// Each parameter narrows the statistics, alone and together. One run of the variant b completed, and one run is queued.
func TestAgentStatistics_ApplyEachParameter(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	hour := func(by time.Duration) string { return time.Now().UTC().Add(by).Format(time.RFC3339) }
	for query, want := range map[string][2]int64{ // completed, queued
		"":                               {1, 1},
		"time_range=24h":                 {1, 1},
		"time_range=today":               {1, 1},
		"time_range=this_month":          {1, 1},
		"time_range=this_year":           {1, 1},
		"time_range=all":                 {1, 1},
		"time_range=last_month":          {0, 0},
		"start_date=" + hour(-time.Hour): {1, 1},
		"time_range=last_month&start_date=0001-01-01T00:00:00Z":        {1, 1},
		"start_date=0001-01-01T00:00:00Z&end_date=" + hour(-time.Hour): {0, 0},
		"start_date=" + hour(time.Hour):                                {0, 0},
		"time_range=last_month&start_date=2020-01-01T00:00:00Z":        {1, 1},
		"start_date=2020-01-01T00:00:00Z&end_date=" + hour(-time.Hour): {0, 0},
		"deployment_id={deployment}":                                   {1, 0},
		"status_filter=completed":                                      {1, 0},
		"status_filter=completed&status_filter=queued":                 {1, 1},
		"status_filter=failed":                                         {0, 0},
		"test_name=b":                                                  {1, 0},
		"test_name=__base__":                                           {0, 1},
		"test_name=b&test_name=__base__":                               {1, 1},
		"test_name=c":                                                  {0, 0},
		"exclude_test_runs=true":                                       {0, 1},
		"exclude_test_runs=true&test_name=b":                           {0, 0},
	} {
		t.Run(query, func(t *testing.T) {
			path := "/agents/hello?environment_id={environment}&" + query
			path = apiservertest.FillPath(t, path, w.IDs)
			status, body := w.Call(t, key, http.MethodGet, path, "")
			require.Equal(t, http.StatusOK, status, "%s", body)
			got := apiservertest.Decode[agents.AgentDetails](t, body)
			require.Equal(t, want, [2]int64{got.Stats.Completed, got.Stats.Queued})
			require.Equal(t, want[0]+want[1], got.Stats.Total)
			if want[0] == 0 {
				require.Nil(t, got.Stats.SuccessRate)
				require.Nil(t, got.Stats.P95DurationMS)
				require.Equal(t, costs.TokenUsage{}, got.TokenUsage)
				return
			}
			require.InDelta(t, 1.0, *got.Stats.SuccessRate, 0)
			require.NotNil(t, got.Stats.AverageDurationMS)
			require.Equal(t, costs.TokenUsage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7}, got.TokenUsage)
		})
	}
}

// The ID of an unknown deployment returns 404.
func TestAgentStatistics_RejectUnknownDeployment(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	path := apiservertest.FillPath(t, "/agents/hello?environment_id={environment}&deployment_id={event}", w.IDs)
	status, body := w.Call(t, w.CreateKey(t, nil), http.MethodGet, path, "")
	require.Equal(t, http.StatusNotFound, status, "%s", body)
}

// The error names the parameter.
func TestAgentStatistics_RejectUnsupportedParameters(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	for query, field := range map[string]string{
		"time_range=1h": "query.time_range",
		"start_date=2026-01-01T00:00:00Z&end_date=2026-01-01T00:00:00Z": "query.end_date",
		"start_date=2026-01-01T00:00:00Z&end_date=0001-01-01T00:00:00Z": "query.end_date",
		"start_date=yesterday":                   "query.start_date",
		"status_filter=done":                     "query.status_filter[0]",
		"status_filter=completed&status_filter=": "query.status_filter",
		"deployment_id=1":                        "query.deployment_id",
		"exclude_test_runs=maybe":                "query.exclude_test_runs",
		"time_range=24h&time_range=7d":           "query.time_range",
	} {
		t.Run(query, func(t *testing.T) {
			path := apiservertest.FillPath(t, "/agents/hello?environment_id={environment}&"+query, w.IDs)
			status, body := w.Call(t, key, http.MethodGet, path, "")
			require.Equal(t, http.StatusUnprocessableEntity, status, "%s", body)
			require.Equal(t, field, apiservertest.Decode[rest.Problem](t, body).Errors[0].Location)
		})
	}
}

// Neither responses nor the description have null tokens.
func TestAgentStatistics_TokensAreNeverNull(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	schema := apiservertest.NewContract(t, w.Server).Document
	for _, token := range []string{"components", "schemas", "AgentDetails", "properties", "token_usage"} {
		schema = schema.(map[string]any)[token]
	}
	require.Equal(t, "#/components/schemas/TokenUsage", schema.(map[string]any)["$ref"])
}

// Reading an agent needs one permission, whatever narrows its numbers.
func TestGetAgent_SearchNeedsNoOtherPermission(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"agents.view"}
	})
	path := apiservertest.FillPath(t, "/agents/hello?environment_id={environment}&search=ada", w.IDs)
	status, body := w.Call(t, key, http.MethodGet, path, "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	status, body = w.Call(t, key, http.MethodGet, "/runs?search=ada", "")
	require.Equal(t, http.StatusForbidden, status, "%s", body)
}
