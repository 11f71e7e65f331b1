// SPDX-License-Identifier: Apache-2.0

package statistics

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/outbox"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/timewindow"
)

// EndedConnectorRun is the contribution of an ended connector run to rollups.
type EndedConnectorRun struct {
	store.Key
	Connector          uuid.UUID
	Trigger            store.TriggerType
	Status             store.ConnectorRunStatus
	StartedAt, EndedAt time.Time
}

// PrimaryKey implements sqldb.KeyedRow.
func (r EndedConnectorRun) PrimaryKey() store.Key { return r.Key }

// The columns of ended_connector_runs c for EndedConnectorRun.
const endedConnectorColumns = `c.project_id, c.id, c.connector_id, c.trigger_type, c.status, c.started_at, c.ended_at`

func scanEndedConnectorRun(row sqldb.Scanner) (r EndedConnectorRun, err error) {
	err = row.Scan(&r.ProjectID, &r.ID, &r.Connector, &r.Trigger, &r.Status, sqldb.ScanTime(&r.StartedAt), sqldb.ScanTime(&r.EndedAt))
	return r, err
}

// readConnectorRuns reads ended connector runs. It omits those in deleted partitions.
func readConnectorRuns(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, ended []store.Key) (runs []EndedConnectorRun, err error) {
	parts, err := db.GroupByExistingPart(ctx, q, "ended_connector_runs", ended)
	if err != nil {
		return nil, err
	}
	for _, same := range parts {
		for some := range slices.Chunk(same, sqldb.MaxKeys) {
			var l sqldb.Args
			past, err := sqldb.PastRows(ctx, db, q, some[0].ID, scanEndedConnectorRun, `SELECT `+endedConnectorColumns+` FROM {ended_connector_runs} c
				WHERE `+db.KeyCondition(&l, "c.id", some), l.Values...)
			if err != nil {
				return nil, err
			}
			runs = append(runs, past...)
		}
	}
	return runs, nil
}

// WaitingConnectorRuns returns the ended connector runs of a period that are not rolled up yet, of the project's newest.
func WaitingConnectorRuns(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, project uuid.UUID, of timewindow.Period) ([]EndedConnectorRun, error) {
	waiting, _, err := outbox.ConnectorRunsToRollUp.NewestIDs(ctx, q, project, store.MaxWaiting)
	if err != nil {
		return nil, err
	}
	return readConnectorRuns(ctx, db, q, queuedWithin(waiting, of))
}

// connectorRollup identifies a row of connector_rollups.
type connectorRollup struct {
	connector store.Key
	grain     timewindow.Grain
	beginsAt  int64
	trigger   store.TriggerType
	status    store.ConnectorRunStatus
}

func (r EndedConnectorRun) rollupFor(g timewindow.Grain) connectorRollup {
	return connectorRollup{store.Key{ProjectID: r.ProjectID, ID: r.Connector}, g, g.FloorTime(store.TimeOf(r.ID).UnixMicro()), r.Trigger, r.Status}
}

func compareConnectorRollups(a, b connectorRollup) int {
	return cmp.Or(sqldb.CompareKeys(a.connector, b.connector), cmp.Compare(a.grain, b.grain), cmp.Compare(a.beginsAt, b.beginsAt),
		cmp.Compare(a.trigger, b.trigger), cmp.Compare(a.status, b.status))
}

// ConnectorRunSum is a number of connector runs and their total duration.
type ConnectorRunSum struct{ Runs, Micros int64 }

// Plus returns the sum of both.
func (s ConnectorRunSum) Plus(more ConnectorRunSum) ConnectorRunSum {
	return ConnectorRunSum{s.Runs + more.Runs, s.Micros + more.Micros}
}

// PlusRun returns the sum with one more run.
func (s ConnectorRunSum) PlusRun(r EndedConnectorRun) ConnectorRunSum {
	return s.Plus(ConnectorRunSum{1, r.EndedAt.Sub(r.StartedAt).Microseconds()})
}

// addConnectorRuns adds ended connector runs to the rollups. The caller holds the lock of
// rollupsTurn.
func addConnectorRuns(ctx context.Context, tx *sqldb.Tx, runs []EndedConnectorRun, grown growth) error {
	more := map[connectorRollup]ConnectorRunSum{}
	for _, run := range runs {
		for _, g := range timewindow.Grains {
			of := run.rollupFor(g)
			more[of] = more[of].PlusRun(run)
		}
	}
	return addConnectorRollups(ctx, tx, more, grown)
}

// addConnectorRollups adds to the stored rollups.
func addConnectorRollups(ctx context.Context, tx *sqldb.Tx, more map[connectorRollup]ConnectorRunSum, grown growth) error {
	var numbers sqldb.RowBatch
	for _, of := range slices.SortedFunc(maps.Keys(more), compareConnectorRollups) {
		numbers.Add(of.connector.ProjectID, of.connector.ID, string(of.grain), of.beginsAt, string(of.trigger), string(of.status), more[of].Runs, more[of].Micros)
	}
	return grown.insertRows(ctx, tx, numbers, `INSERT INTO connector_rollups AS c (project_id, connector_id, grain, begins_at, trigger_type, status, runs, duration_us) VALUES `,
		`(%, %, %, %, %, %, %, %)`, ` ON CONFLICT (project_id, connector_id, grain, begins_at, trigger_type, status) DO UPDATE
			SET runs = c.runs + excluded.runs, duration_us = c.duration_us + excluded.duration_us
			RETURNING project_id, connector_id, grain, begins_at, trigger_type, status, runs`, func(row sqldb.Scanner) (project uuid.UUID, fresh bool, err error) {
			var (
				of   connectorRollup
				runs int64
			)
			err = row.Scan(&of.connector.ProjectID, &of.connector.ID, &of.grain, &of.beginsAt, &of.trigger, &of.status, &runs)
			return of.connector.ProjectID, runs == more[of].Runs, err
		})
}
