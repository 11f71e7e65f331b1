// SPDX-License-Identifier: Apache-2.0

// Package connectorrun reads, lists and counts connector runs.
package connectorrun

import (
	"context"
	"slices"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Store has the connector runs.
type Store struct{ db *sqldb.DB }

// New returns a Store.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

// ConnectorRun implements store.History.
func (s *Store) ConnectorRun(ctx context.Context, key store.Key) (store.ConnectorRun, error) {
	run, err := runrow.ReadConnectorRun(ctx, s.db, s.db.Reader(), key)
	if err == nil {
		runs := []store.ConnectorRun{run}
		err = s.addErrors(ctx, runs)
		run = runs[0]
	}
	return run, sqldb.Wrap(err, "reading connector run %s", key)
}

// Ended implements store.History.
func (s *Store) Ended(ctx context.Context, connectorRuns []store.Key) (ended []store.Key, err error) {
	open := map[store.Key]bool{}
	for part := range slices.Chunk(connectorRuns, sqldb.MaxIDs) {
		var l sqldb.Args
		still, err := sqldb.Collect(ctx, s.db.Reader(), sqldb.ScanKey, `SELECT project_id, id FROM open_connector_runs WHERE `+s.db.KeyCondition(&l, "id", part), l.Values...)
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
