// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"slices"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// ConnectorRun implements store.History.
func (c *Core) ConnectorRun(ctx context.Context, key store.Key) (store.ConnectorRun, error) {
	run, err := runrow.ReadConnectorRun(ctx, c.DB, c.engine.Reader(), key)
	if err == nil {
		runs := []store.ConnectorRun{run}
		err = c.addErrors(ctx, runs)
		run = runs[0]
	}
	return run, sqldb.Wrap(err, "reading connector run %s", key)
}

// Ended implements store.History.
func (c *Core) Ended(ctx context.Context, connectorRuns []store.Key) (ended []store.Key, err error) {
	open := map[store.Key]bool{}
	for part := range slices.Chunk(connectorRuns, sqldb.MaxIDs) {
		var l sqldb.Args
		still, err := sqldb.Collect(ctx, c.engine.Reader(), sqldb.ScanKey, `SELECT project_id, id FROM open_connector_runs WHERE `+c.KeyCondition(&l, "id", part), l.Values...)
		if err != nil {
			return nil, sqldb.Wrap(err, "reading the ended connector runs")
		}
		for _, key := range still {
			open[key] = true
		}
	}
	for _, key := range connectorRuns {
		if !open[key] {
			ended = append(ended, key)
		}
	}
	return ended, nil
}
