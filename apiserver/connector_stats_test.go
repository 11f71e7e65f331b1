// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// TestStatisticsOfAConnectorAreThoseOfAWindow: which ends now. There are one run that completed,
// one that failed and one that is open.
func TestStatisticsOfAConnectorAreThoseOfAWindow(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, path := w.key(t, nil), "/connectors/"+w.ids["connector"]+"/stats"
	stats := func(query string) ConnectorStats {
		status, body := w.call(t, key, http.MethodGet, path+query, "")
		require.Equal(t, http.StatusOK, status, "%s", body)
		require.Len(t, decode[map[string]any](t, body), 6, "all fields, null or not")
		return decode[ConnectorStats](t, body)
	}
	got := stats("")
	require.NotNil(t, got.AverageDurationMS)
	running := ConnectorRunStatus("running")
	require.Equal(t, ConnectorStats{
		TimeRange: "7d", TotalRuns: 3, CompletedRuns: 1, FailedRuns: 1, AverageDurationMS: got.AverageDurationMS,
		LastRunStatus: Null[ConnectorRunStatus]{Value: &running},
	}, got, "without a window it is of seven days")
	for window := range timeRanges {
		got := stats("?time_range=" + string(window))
		require.Equal(t, window, got.TimeRange)
		require.EqualValues(t, 3, got.TotalRuns, window)
	}
	w.server.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	require.Equal(t, ConnectorStats{TimeRange: "1h"}, stats("?time_range=1h"), "none: no average, no last one")
	require.EqualValues(t, 3, stats("?time_range=6h").TotalRuns)

	for query, want := range map[string]int{"?time_range=2h": 422, "?time_range=all": 422, "?since=1": 422} {
		status, body := w.call(t, key, http.MethodGet, path+query, "")
		require.Equal(t, want, status, "%s: %s", query, body)
	}
	status, _ := w.call(t, key, http.MethodGet, "/connectors/"+uuid.NewString()+"/stats", "")
	require.Equal(t, http.StatusNotFound, status)
}
