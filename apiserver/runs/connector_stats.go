// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"context"
	"fmt"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
)

// ConnectorStatsQuery selects the runs of a connector that are counted.
type ConnectorStatsQuery struct {
	rest.ConnectorPath
	TimeRange TimeRange `query:"time_range" default:"7d" doc:"Only connector runs that started in this window before now."`
}

// ConnectorStats are statistics of a connector's runs in the window.
type ConnectorStats struct {
	TimeRange         TimeRange                     `json:"time_range" doc:"The window before now."`
	TotalRuns         int64                         `json:"total_runs" doc:"All connector runs, whatever their status."`
	CompletedRuns     int64                         `json:"completed_runs" doc:"Connector runs with the status completed."`
	FailedRuns        int64                         `json:"failed_runs" doc:"Connector runs with the status failed."`
	AverageDurationMS *int64                        `json:"average_duration_ms" doc:"Average duration of completed and failed connector runs in milliseconds; null if there are none."`
	LastRunStatus     rest.Null[ConnectorRunStatus] `json:"last_run_status" doc:"The status of the newest stored connector run; null if there is none."`
}

func (ConnectorStats) Doc() string { return "Statistics of a connector's runs in the window." }

var getConnectorStats = rest.Handle((*ConnectorRuns).getConnectorStats, rest.Endpoint{
	Method: rest.Get, Path: "/connectors/{connector_id}/stats", ID: "getConnectorStats",
	Permissions: rest.Requires("connectors.view"), Errors: rest.ReadErrors,
	Summary: "Get the statistics of a connector",
	Doc: "Counts the events and deliveries that started in the window, including open ones. The counts are exact and from a " +
		"single point in time. If the window starts in an hour that is older than the retention, that hour is not counted. " +
		"`last_run_status` is the status of the newest stored run.",
	Example:      rest.Example{Path: "/connectors/{connector}/stats?time_range=24h"},
	ReadsHistory: true,
})

func (s *ConnectorRuns) getConnectorStats(ctx context.Context, c *rest.Caller, in *ConnectorStatsQuery) (rest.Response[ConnectorStats], error) {
	connector, err := s.connectorKey(ctx, c, in.ConnectorID)
	if err != nil {
		return rest.Response[ConnectorStats]{}, err
	}
	found, err := s.Store.ConnectorStatistics(ctx, store.ConnectorStatisticsQuery{Connector: connector, Since: s.Service.Now().Add(-timeRanges[in.TimeRange])})
	if err != nil {
		return rest.Response[ConnectorStats]{}, fmt.Errorf("reading the statistics of connector %s: %w", connector.ID, err)
	}
	return rest.NewResponse(ConnectorStats{
		TimeRange: in.TimeRange, TotalRuns: found.Total(), CompletedRuns: found.Runs[store.ConnectorRunCompleted],
		FailedRuns: found.Runs[store.ConnectorRunFailed], AverageDurationMS: rest.DurationMS(found.AverageDuration),
		LastRunStatus: rest.OptionalWord[ConnectorRunStatus](found.Last),
	}, nil)
}
