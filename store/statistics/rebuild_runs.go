// SPDX-License-Identifier: Apache-2.0

package statistics

import (
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

// runRebuilder rebuilds rollups of runs.
type runRebuilder struct {
	db      *sqldb.DB
	project uuid.UUID
	// last is the latest end of an agent's runs so far.
	last map[agentTotal]time.Time
}

func (*runRebuilder) rollupTables() (rollups, rows string) { return "run_rollups", "ended_runs" }

func (k *runRebuilder) rebuildPeriod(ctx context.Context, tx *sqldb.Tx, g timewindow.Grain, begin int64, grown growth) (n int64, err error) {
	went, err := tx.Exec(ctx, `DELETE FROM run_rollups WHERE project_id = $1 AND grain = $2 AND begins_at = $3`, k.project, string(g), begin)
	if err != nil {
		return 0, err
	}
	sums := tallySet{map[store.Key]rollup{}, map[store.Key]*tally{}}
	if g == timewindow.Hourly {
		n, err = k.addRows(ctx, tx, g.PeriodFrom(begin), sums)
	} else {
		err = k.addRollups(ctx, tx, g, begin, sums)
	}
	if err != nil {
		return 0, err
	}
	grown.countRows(k.project, int64(len(sums.of))-went)
	return n, writeTallies(ctx, tx, slices.SortedFunc(maps.Keys(sums.of), sqldb.CompareKeys), sums.of, sums.all)
}

// tallySet has tallies by rollup.
type tallySet struct {
	of  map[store.Key]rollup
	all map[store.Key]*tally
}

// tallyOf returns the tally of a rollup.
func (t tallySet) tallyOf(r rollup) (*tally, error) {
	key := r.primaryKey()
	if t.all[key] == nil {
		none, err := newTally()
		if err != nil {
			return nil, err
		}
		t.of[key], t.all[key] = r, none
	}
	return t.all[key], nil
}

// addRows adds the ended runs of an hour.
func (k *runRebuilder) addRows(ctx context.Context, tx *sqldb.Tx, of timewindow.Period, sums tallySet) (n int64, err error) {
	err = k.eachPage(ctx, tx, of, func(runs []EndedRun) error {
		for _, run := range runs {
			t, err := sums.tallyOf(run.rollupFor(timewindow.Hourly))
			if err == nil {
				err = t.addEndedRun(run.Figures)
			}
			if err != nil {
				return err
			}
			n++
			if of := run.totalFor(); run.EndedAt.After(k.last[of]) {
				k.last[of] = run.EndedAt
			}
		}
		return nil
	})
	return n, err
}

// eachPage reads the ended runs of an hour. It omits runs that the outbox names, which its consumer
// will add. It reads the outbox after the rows, so no run that ends meanwhile is counted twice.
func (k *runRebuilder) eachPage(ctx context.Context, tx *sqldb.Tx, of timewindow.Period, fn func(runs []EndedRun) error) error {
	for after := sqldb.LeastID(of.From); ; {
		page, err := sqldb.Collect(ctx, tx, scanEndedRun, k.db.InPart(`SELECT `+endedRunColumns+` FROM {ended_runs} r
			WHERE r.project_id = $1 AND r.id > $2 AND r.id < id_at($3) ORDER BY r.id LIMIT $4`, after), k.project, after, of.To, rebuildPage)
		if err != nil || len(page) == 0 {
			return err
		}
		after = page[len(page)-1].ID
		waiting, err := outbox.RunsToRollUp.AllIDs(ctx, tx, k.project)
		if err != nil {
			return err
		}
		waits := sqldb.NewKeySet(waiting)
		if err := fn(slices.DeleteFunc(page, func(run EndedRun) bool { return waits[run.Key] })); err != nil {
			return err
		}
	}
}

// addRollups adds the smaller rollups of a day or a month.
func (k *runRebuilder) addRollups(ctx context.Context, tx *sqldb.Tx, g timewindow.Grain, begin int64, sums tallySet) error {
	of := g.PeriodFrom(begin)
	return sqldb.EachRow(ctx, tx, func(row sqldb.Scanner) error {
		r := rollup{project: k.project, grain: g, beginsAt: begin}
		more, sketch, err := scanTally(row, &r.environment, &r.agent, &r.testName, &r.deployment, &r.connector, &r.status, &r.outcome)
		if err != nil {
			return err
		}
		t, err := sums.tallyOf(r)
		if err != nil {
			return err
		}
		return t.addStored(more, sketch)
	}, `SELECT environment_id, agent_name, test_name, deployment_id, connector_id, status, guardrail_outcome, `+tallyColumns+` FROM run_rollups
		WHERE project_id = $1 AND grain = $2 AND begins_at >= $3 AND begins_at < $4`, k.project, string(g.Smaller()), of.From, of.To)
}

// writeTotals writes the totals of agents from their months.
func (k *runRebuilder) writeTotals(ctx context.Context, tx *sqldb.Tx, grown growth) error {
	runs := map[agentTotal]int64{}
	scan := func(row sqldb.Scanner) (of agentTotal, n int64, last time.Time, err error) {
		of.environment.ProjectID = k.project
		err = row.Scan(&of.environment.ID, &of.agent, &of.testName, &n, sqldb.ScanTime(&last))
		return of, n, last, err
	}
	seen := func(of agentTotal, last time.Time) {
		if last.After(k.last[of]) {
			k.last[of] = last
		}
	}
	if err := sqldb.EachRow(ctx, tx, func(row sqldb.Scanner) error {
		of, n, begin, err := scan(row)
		runs[of] = n
		seen(of, begin)
		return err
	}, `SELECT environment_id, agent_name, test_name, CAST(SUM(runs) AS bigint), MAX(begins_at) FROM run_rollups
		WHERE project_id = $1 AND grain = 'month' GROUP BY environment_id, agent_name, test_name`, k.project); err != nil {
		return err
	}
	if err := sqldb.EachRow(ctx, tx, func(row sqldb.Scanner) error {
		of, _, last, err := scan(row)
		seen(of, last)
		grown.countRows(k.project, -1)
		return err
	}, `DELETE FROM agent_totals WHERE project_id = $1 RETURNING environment_id, agent_name, test_name, runs, last_ended_at`, k.project); err != nil {
		return err
	}
	return insertTotals(ctx, tx, runs, k.last, grown)
}
