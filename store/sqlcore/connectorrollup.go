// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/timewindow"
)

// postConnectorRuns adds ended connector runs to the outbox.
func postConnectorRuns(ctx context.Context, tx *sqldb.Tx, ended []store.Key) error {
	of := map[uuid.UUID][]uuid.UUID{}
	for _, key := range ended {
		of[key.ProjectID] = append(of[key.ProjectID], key.ID)
	}
	var posted sqldb.RowBatch
	for _, project := range slices.SortedFunc(maps.Keys(of), sqldb.CompareIDs) {
		posted.Add(project, of[project][0], sqldb.IDsText(sqldb.KeysFromIDs(project, of[project])))
	}
	return posted.Insert(ctx, tx, `INSERT INTO outbox_rollups (project_id, ended_id, connector_run_ids, posted_at) VALUES `, `(%, %, %, now_us())`, ``)
}

// endedConnectorRun is the contribution of an ended connector run to rollups.
type endedConnectorRun struct {
	store.Key
	connector          uuid.UUID
	trigger            store.TriggerType
	status             store.ConnectorRunStatus
	startedAt, endedAt time.Time
}

// PrimaryKey implements sqldb.KeyedRow.
func (r endedConnectorRun) PrimaryKey() store.Key { return r.Key }

func (r endedConnectorRun) durationUS() int64 { return r.endedAt.Sub(r.startedAt).Microseconds() }

// The columns of ended_connector_runs c for endedConnectorRun.
const endedConnectorColumns = `c.project_id, c.id, c.connector_id, c.trigger_type, c.status, c.started_at, c.ended_at`

func scanEndedConnectorRun(row sqldb.Scanner) (r endedConnectorRun, err error) {
	err = row.Scan(&r.ProjectID, &r.ID, &r.connector, &r.trigger, &r.status, sqldb.ScanTime(&r.startedAt), sqldb.ScanTime(&r.endedAt))
	return r, err
}

// endedConnectorRuns reads ended connector runs. It omits those in deleted partitions.
func (c *Core) endedConnectorRuns(ctx context.Context, q sqldb.Queryer, ended []store.Key) (runs []endedConnectorRun, err error) {
	parts, err := c.GroupByExistingPart(ctx, q, "ended_connector_runs", ended)
	if err != nil {
		return nil, err
	}
	for _, same := range parts {
		for some := range slices.Chunk(same, sqldb.MaxKeys) {
			var l sqldb.Args
			past, err := sqldb.PastRows(ctx, c.DB, q, some[0].ID, scanEndedConnectorRun, `SELECT `+endedConnectorColumns+` FROM {ended_connector_runs} c
				WHERE `+c.KeyCondition(&l, "c.id", some), l.Values...)
			if err != nil {
				return nil, err
			}
			runs = append(runs, past...)
		}
	}
	return runs, nil
}

// connectorRollup identifies a row of connector_rollups.
type connectorRollup struct {
	connector store.Key
	grain     timewindow.Grain
	beginsAt  int64
	trigger   store.TriggerType
	status    store.ConnectorRunStatus
}

func (r endedConnectorRun) rollupFor(g timewindow.Grain) connectorRollup {
	return connectorRollup{store.Key{ProjectID: r.ProjectID, ID: r.connector}, g, g.FloorTime(store.TimeOf(r.ID).UnixMicro()), r.trigger, r.status}
}

func compareConnectorRollups(a, b connectorRollup) int {
	return cmp.Or(sqldb.CompareKeys(a.connector, b.connector), cmp.Compare(a.grain, b.grain), cmp.Compare(a.beginsAt, b.beginsAt),
		cmp.Compare(a.trigger, b.trigger), cmp.Compare(a.status, b.status))
}

// connectorRunSum is a number of connector runs and their total duration.
type connectorRunSum struct{ runs, us int64 }

func (s connectorRunSum) plusRun(r endedConnectorRun) connectorRunSum {
	return connectorRunSum{s.runs + 1, s.us + r.durationUS()}
}

// addUpConnectorRuns adds ended connector runs to the rollups. The caller holds the lock of
// rollupsTurn.
func addUpConnectorRuns(ctx context.Context, tx *sqldb.Tx, runs []endedConnectorRun, grown growth) error {
	more := map[connectorRollup]connectorRunSum{}
	for _, run := range runs {
		for _, g := range timewindow.Grains {
			of := run.rollupFor(g)
			more[of] = more[of].plusRun(run)
		}
	}
	return addConnectorRollups(ctx, tx, more, grown)
}

// addConnectorRollups adds to the stored rollups.
func addConnectorRollups(ctx context.Context, tx *sqldb.Tx, more map[connectorRollup]connectorRunSum, grown growth) error {
	var numbers sqldb.RowBatch
	for _, of := range slices.SortedFunc(maps.Keys(more), compareConnectorRollups) {
		numbers.Add(of.connector.ProjectID, of.connector.ID, string(of.grain), of.beginsAt, string(of.trigger), string(of.status), more[of].runs, more[of].us)
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
			return of.connector.ProjectID, runs == more[of].runs, err
		})
}
