// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStatisticsAreNarrowedByEveryParameter: each alone, and together. What has ended is one
// completed run of the variant b, and one queued.
func TestStatisticsAreNarrowedByEveryParameter(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
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
			path = sample{path: path}.fill(t, w.ids)
			status, body := w.call(t, key, http.MethodGet, path, "")
			require.Equal(t, http.StatusOK, status, "%s", body)
			got := decode[AgentDetails](t, body)
			require.Equal(t, want, [2]int64{got.Stats.Completed, got.Stats.Queued})
			require.Equal(t, want[0]+want[1], got.Stats.Total)
			if want[0] == 0 {
				require.Nil(t, got.Stats.SuccessRate)
				require.Nil(t, got.Stats.P95DurationMS)
				require.Equal(t, TokenUsage{}, got.TokenUsage)
				return
			}
			require.InDelta(t, 1.0, *got.Stats.SuccessRate, 0)
			require.NotNil(t, got.Stats.AverageDurationMS)
			require.Equal(t, TokenUsage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7}, got.TokenUsage)
		})
	}
}

// TestStatisticsOfADeploymentOfNobody: an id that is none of the project's deployments is told.
func TestStatisticsOfADeploymentOfNobody(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	path := sample{path: "/agents/hello?environment_id={environment}&deployment_id={event}"}.fill(t, w.ids)
	status, body := w.call(t, w.key(t, nil), http.MethodGet, path, "")
	require.Equal(t, http.StatusNotFound, status, "%s", body)
}

// TestStatisticsRefuseWhatHasNoEffect: with the parameter that is at fault.
func TestStatisticsRefuseWhatHasNoEffect(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
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
			path := sample{path: "/agents/hello?environment_id={environment}&" + query}.fill(t, w.ids)
			status, body := w.call(t, key, http.MethodGet, path, "")
			require.Equal(t, http.StatusUnprocessableEntity, status, "%s", body)
			require.Equal(t, field, decode[Problem](t, body).Errors[0].Location)
		})
	}
}

// TestTokensOfAnAgentAreNeverNull: nor does the description say that they might be.
func TestTokensOfAnAgentAreNeverNull(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	schema := newContract(t, w.server).document
	for _, token := range []string{"components", "schemas", "AgentDetails", "properties", "token_usage"} {
		schema = schema.(map[string]any)[token]
	}
	require.Equal(t, "#/components/schemas/TokenUsage", schema.(map[string]any)["$ref"])
}

// TestTimeRangesAreWindows: by the calendar in UTC, whatever the zone of the clock.
func TestTimeRangesAreWindows(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 0, 30, 0, 0, time.UTC)
	at := func(year int, month time.Month, day, hour, minute int) time.Time {
		return time.Date(year, month, day, hour, minute, 0, 0, time.UTC)
	}
	for r, want := range map[AgentTimeRange][2]time.Time{
		"24h":        {at(2026, 2, 28, 0, 30)},
		"7d":         {at(2026, 2, 22, 0, 30)},
		"30d":        {at(2026, 1, 30, 0, 30)},
		"90d":        {at(2025, 12, 1, 0, 30)},
		"today":      {at(2026, 3, 1, 0, 0)},
		"this_month": {at(2026, 3, 1, 0, 0)},
		"last_month": {at(2026, 2, 1, 0, 0), at(2026, 3, 1, 0, 0)},
		"this_year":  {at(2026, 1, 1, 0, 0)},
		"all":        {},
	} {
		t.Run(fmt.Sprint(r), func(t *testing.T) {
			in := StatisticsQuery{TimeRange: r}
			q, err := in.statistics(now.In(time.FixedZone("elsewhere", -9*3600)))
			require.NoError(t, err)
			require.Equal(t, want, [2]time.Time{q.Since, q.Until}, r)
		})
	}
}
