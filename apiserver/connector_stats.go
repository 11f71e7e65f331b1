// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"

	"github.com/agentplatform/agentplatform/store"
)

// ConnectorStatsQuery selects the runs of a connector that are counted.
type ConnectorStatsQuery struct {
	ConnectorPath
	TimeRange TimeRange `query:"time_range" default:"7d" doc:"Only those that started in this window before now."`
}

// ConnectorStats are the numbers of a connector's runs in the window.
type ConnectorStats struct {
	TimeRange         TimeRange                `json:"time_range" doc:"The window before now in which they started."`
	TotalRuns         int64                    `json:"total_runs" doc:"All of them, whatever their status."`
	CompletedRuns     int64                    `json:"completed_runs" doc:"Those with status completed."`
	FailedRuns        int64                    `json:"failed_runs" doc:"Those with status failed."`
	AverageDurationMS *int64                   `json:"average_duration_ms" doc:"How long those took on average that have completed or failed, in milliseconds; null without any."`
	LastRunStatus     Null[ConnectorRunStatus] `json:"last_run_status" doc:"The status of the newest that is still stored; null without any."`
}

func (s *Server) getConnectorStats(ctx context.Context, c *caller, in *ConnectorStatsQuery) (answer[ConnectorStats], error) {
	connector, err := s.connectorKey(ctx, c, in.ConnectorID)
	if err != nil {
		return answer[ConnectorStats]{}, err
	}
	found, err := s.store.ConnectorStatistics(ctx, store.ConnectorStatisticsQuery{Connector: connector, Since: s.now().Add(-timeRanges[in.TimeRange])})
	if err != nil {
		return answer[ConnectorStats]{}, fmt.Errorf("reading the statistics of connector %s: %w", connector.ID, err)
	}
	return plainly(ConnectorStats{
		TimeRange: in.TimeRange, TotalRuns: found.Total(), CompletedRuns: found.Runs[store.ConnectorRunCompleted],
		FailedRuns: found.Runs[store.ConnectorRunFailed], AverageDurationMS: milliseconds(found.AverageDuration),
		LastRunStatus: word[ConnectorRunStatus](found.Last),
	}, nil)
}
