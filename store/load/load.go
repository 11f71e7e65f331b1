// SPDX-License-Identifier: Apache-2.0

// Package load measures the load of projects, environments and queues.
package load

import (
	"context"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storedbytes"
)

// Store measures the load.
type Store struct{ db *sqldb.DB }

// New returns a Store.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

// backlogStatement returns a row for each environment of a project with open connector runs. It
// walks the project's part of the key, so it includes connector runs of deleted connectors.
const backlogStatement = `SELECT c.environment_id, CAST(SUM(c.runs_left) AS bigint), CAST(SUM(c.input_size) AS bigint)
	FROM open_connector_runs c WHERE c.project_id = $1 GROUP BY c.environment_id`

// ProjectLoad implements store.Loads.
func (s *Store) ProjectLoad(ctx context.Context, project uuid.UUID) (store.ProjectLoad, error) {
	load := store.ProjectLoad{Backlog: map[uuid.UUID]store.Backlog{}}
	err := s.db.Reader().QueryRowContext(ctx, `SELECT p.backlog_runs, p.backlog_input, p.storage, p.requests_per_minute,
			`+storedbytes.Counted+`
		FROM projects p WHERE p.project_id = $1`, project).
		Scan(&load.Limits.BacklogRuns, &load.Limits.BacklogInput, &load.Limits.Storage, &load.Limits.RequestsPerMinute, &load.Stored)
	if err != nil {
		return load, sqldb.Wrap(sqldb.MapNoRows(err), "reading the limits of project %s", project)
	}
	if load.Limits.BacklogRuns == 0 && load.Limits.BacklogInput == 0 {
		return load, nil
	}
	err = sqldb.CollectMap(ctx, s.db.Reader(), load.Backlog, func(row sqldb.Scanner) (environment uuid.UUID, backlog store.Backlog, err error) {
		err = row.Scan(&environment, &backlog.Runs, &backlog.Input)
		return environment, backlog, err
	}, backlogStatement, project)
	return load, sqldb.Wrap(err, "measuring the backlog of project %s", project)
}
