// SPDX-License-Identifier: Apache-2.0

// Package runrow reads rows of runs, connector runs, inputs and journals.
package runrow

import (
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Columns of a run, open (open_runs r) or ended (ended_runs r).
const (
	OpenColumns = `r.id, r.project_id, r.environment_id, r.agent_name, r.connector_id, r.connector_run_id, r.link_id,
	r.deployment_id, r.test_name, r.status, r.class, '' AS error_code, '' AS error, '' AS output, '' AS finish_reason, '' AS context, r.attempt, CAST(0 AS bigint) AS input_tokens,
	CAST(0 AS bigint) AS output_tokens, CAST(0 AS bigint) AS thinking_tokens, CAST(0 AS bigint) AS cached_input_tokens,
	CAST(0 AS bigint) AS total_tokens, r.queued_at, r.started_at, CAST(NULL AS bigint) AS ended_at`
	EndedColumns = `r.id, r.project_id, r.environment_id, r.agent_name, r.connector_id, r.connector_run_id, r.link_id,
	r.deployment_id, r.test_name, r.status, CAST(0 AS bigint), r.error_code, r.error, r.output, r.finish_reason, r.context, r.attempt, r.input_tokens,
	r.output_tokens, r.thinking_tokens, r.cached_input_tokens,
	r.total_tokens, r.queued_at, r.started_at, r.ended_at`
)

// Fields returns the destinations of both.
func Fields(r *store.Run) []any {
	return []any{
		&r.ID, &r.ProjectID, &r.EnvironmentID, &r.AgentName, &r.ConnectorID, &r.ConnectorRunID, &r.LinkID,
		&r.DeploymentID, &r.TestName, &r.Status, &r.Class, &r.ErrorCode, &r.Error, &r.Output, &r.FinishReason, sqldb.ScanJSONText(&r.Context), &r.Attempt, &r.Usage.InputTokens,
		&r.Usage.OutputTokens, &r.Usage.ThinkingTokens, &r.Usage.CachedInputTokens, &r.Usage.TotalTokens,
		sqldb.ScanTime(&r.QueuedAt), sqldb.ScanNullTime(&r.StartedAt), sqldb.ScanNullTime(&r.EndedAt),
	}
}

// Scan reads a run.
func Scan(row sqldb.Scanner) (r store.Run, err error) {
	err = row.Scan(Fields(&r)...)
	return r, err
}
