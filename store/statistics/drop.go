// SPDX-License-Identifier: Apache-2.0

package statistics

import (
	"context"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Drop deletes some rollups of an environment or connector and subtracts their stored bytes.
func Drop(ctx context.Context, tx *sqldb.Tx, kind string, object store.Key, limit int) (n int, err error) {
	of, grown := map[string][]string{store.KindEnvironment: environmentRollupStatements(), store.KindConnector: connectorRollupStatements()}, growth{}
	for _, statement := range of[kind] {
		if n >= limit {
			break
		}
		went, err := tx.Exec(ctx, statement, object.ProjectID, limit-n, object.ID)
		if err != nil {
			return n, err
		}
		grown.countRows(object.ProjectID, -went)
		n += int(went)
	}
	return n, grown.writeBytes(ctx, tx)
}

// environmentRollupStatements returns statements for the rollups of an environment ($3). Its deployments
// are deleted separately.
func environmentRollupStatements() []string {
	return []string{
		`DELETE FROM run_rollups WHERE project_id = $1 AND id IN (SELECT id FROM run_rollups WHERE project_id = $1 AND environment_id = $3 LIMIT $2)`,
		`DELETE FROM usage_rollups WHERE project_id = $1 AND id IN (SELECT id FROM usage_rollups WHERE project_id = $1 AND environment_id = $3 LIMIT $2)`,
		`DELETE FROM agent_totals WHERE project_id = $1 AND environment_id = $3 AND (agent_name, test_name) IN
			(SELECT agent_name, test_name FROM agent_totals WHERE project_id = $1 AND environment_id = $3 LIMIT $2)`,
	}
}

// connectorRollupStatements returns statements for the rollups of a connector ($3).
func connectorRollupStatements() []string {
	return []string{
		`DELETE FROM connector_rollups WHERE project_id = $1 AND connector_id = $3 AND (grain, begins_at, trigger_type, status) IN
			(SELECT grain, begins_at, trigger_type, status FROM connector_rollups WHERE project_id = $1 AND connector_id = $3 LIMIT $2)`,
	}
}
