// SPDX-License-Identifier: Apache-2.0

package statistics

import (
	"context"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store/outbox"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/timewindow"
)

// connectorRunRebuilder rebuilds rollups of connector runs.
type connectorRunRebuilder struct {
	db      *sqldb.DB
	project uuid.UUID
}

func (connectorRunRebuilder) rollupTables() (rollups, rows string) {
	return "connector_rollups", "ended_connector_runs"
}

func (k connectorRunRebuilder) rebuildPeriod(ctx context.Context, tx *sqldb.Tx, g timewindow.Grain, begin int64, grown growth) (n int64, err error) {
	went, err := tx.Exec(ctx, `DELETE FROM connector_rollups WHERE project_id = $1 AND grain = $2 AND begins_at = $3`, k.project, string(g), begin)
	if err != nil {
		return 0, err
	}
	of := g.PeriodFrom(begin)
	grown.countRows(k.project, -went)
	if g != timewindow.Hourly {
		made, err := tx.Exec(ctx, `INSERT INTO connector_rollups (project_id, connector_id, grain, begins_at, trigger_type, status, runs, duration_us)
			SELECT project_id, connector_id, CAST($2 AS text), CAST($3 AS bigint), trigger_type, status, SUM(runs), SUM(duration_us) FROM connector_rollups
			WHERE project_id = $1 AND grain = $4 AND begins_at >= $3 AND begins_at < $5
			GROUP BY project_id, connector_id, trigger_type, status`, k.project, string(g), of.From, string(g.Smaller()), of.To)
		grown.countRows(k.project, made)
		return 0, err
	}
	sums := map[connectorRollup]ConnectorRunSum{}
	for after := sqldb.LeastID(of.From); ; { // like runRebuilder.addRows
		page, err := sqldb.Collect(ctx, tx, scanEndedConnectorRun, k.db.InPart(`SELECT `+endedConnectorColumns+` FROM {ended_connector_runs} c
			WHERE c.project_id = $1 AND c.id > $2 AND c.id < id_at($3) ORDER BY c.id LIMIT $4`, after), k.project, after, of.To, rebuildPage)
		if err != nil {
			return n, err
		}
		if len(page) == 0 {
			return n, addConnectorRollups(ctx, tx, sums, grown)
		}
		waiting, err := outbox.ConnectorRunsToRollUp.AllIDs(ctx, tx, k.project)
		if err != nil {
			return n, err
		}
		waits := sqldb.NewKeySet(waiting)
		for _, run := range page {
			if !waits[run.Key] {
				r := run.rollupFor(timewindow.Hourly)
				sums[r] = sums[r].PlusRun(run)
				n++
			}
		}
		after = page[len(page)-1].ID
	}
}
