// SPDX-License-Identifier: Apache-2.0

package statistics

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/outbox"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/sweep"
	"github.com/agentplatform/agentplatform/store/timewindow"
)

const (
	// maxRollupRows is the maximum number of outbox rows per rollup transaction. readAtOnce is the
	// number of runs per read.
	maxRollupRows = 128
	readAtOnce    = 128
	// maxRuns, maxCalls and maxPrices are approximate limits per transaction: runs, their model
	// calls, and their sums by model, day and currency. maxRuns also limits the connector runs.
	maxRuns   = 2000
	maxCalls  = 100_000
	maxPrices = 5000
)

// rollupsTurn is the lock of transactions that add to rollups, because rows are read, added to and
// written.
var rollupsTurn = uuid.MustParse("5f3a1c52-7a42-4c35-9be3-2d6f6e3d7c10")

// RollUp implements store.Housekeeping.
func (s *Store) RollUp(ctx context.Context, limit int) (int, error) {
	by := outbox.Consumer[outbox.EndedRow]{ConsumeAll: s.rollUpRows, TryConsume: s.rollUpForTrial}
	n, err := outbox.Rollups.Consume(ctx, s.db, s.pace, s.turns, limit, maxRollupRows, by)
	return n, sqldb.Wrap(err, "rolling up runs")
}

// rollUpRows adds the runs and connector runs of outbox rows to the rollups, as many as one transaction
// takes. Each project has an equal share, and connector runs do not wait for runs, so a busy
// project delays only itself. It reads them before the transaction, because others wait for the
// writer and a deleted partition would abort it. If two processes read the same rows, the one that
// takes the rows adds them.
func (s *Store) rollUpRows(ctx context.Context, rows []outbox.EndedRow) error {
	var of outbox.EndedRow
	for _, row := range rows {
		of.Runs, of.ConnectorRuns = append(of.Runs, row.Runs...), append(of.ConnectorRuns, row.ConnectorRuns...)
	}
	runs, done, err := s.readPricedRuns(ctx, outbox.Alternate(of.Runs))
	if err != nil {
		return err
	}
	some := outbox.Alternate(of.ConnectorRuns)
	some = some[:min(len(some), maxRuns)]
	connectorRuns, err := readConnectorRuns(ctx, s.db, s.db.Reader(), some)
	if err != nil {
		return err
	}
	consumed := sqldb.NewKeySet(slices.Concat(done, some))
	return s.underRollupLock(ctx, func(ctx context.Context, tx *sqldb.Tx, grown growth) error {
		taken, err := outbox.Rollups.Take(ctx, s.db, tx, rows)
		if err != nil {
			return err
		}
		if len(taken) == 0 {
			return sweep.ErrConsumedElsewhere
		}
		own := map[store.Key]bool{}
		var mine outbox.EndedRow // the finished part
		for i, row := range taken {
			for _, key := range slices.Concat(row.Runs, row.ConnectorRuns) {
				own[key] = true
			}
			taken[i] = row.Without(consumed)
			mine.Runs = append(mine.Runs, sqldb.KeysInSet(row.Runs, consumed)...)
			mine.ConnectorRuns = append(mine.ConnectorRuns, sqldb.KeysInSet(row.ConnectorRuns, consumed)...)
		}
		if err := outbox.Rollups.Insert(ctx, tx, taken...); err != nil {
			return err
		}
		if err := s.db.CheckMissingRows(ctx, tx, "ended_runs", sqldb.KeysWithoutRow(mine.Runs, runs), ""); err != nil {
			return err
		}
		if err := s.db.CheckMissingRows(ctx, tx, "ended_connector_runs", sqldb.KeysWithoutRow(mine.ConnectorRuns, connectorRuns), ""); err != nil {
			return err
		}
		if err := addToRollups(ctx, s.db, tx, slices.DeleteFunc(slices.Clone(runs), func(run pricedRun) bool { return !own[run.Key] }), grown); err != nil {
			return err
		}
		return addConnectorRuns(ctx, tx, slices.DeleteFunc(slices.Clone(connectorRuns), func(run EndedConnectorRun) bool { return !own[run.Key] }), grown)
	})
}

// rollUpForTrial adds a run that does not exist to the rollups, and rolls back.
func (s *Store) rollUpForTrial(ctx context.Context) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	key := store.Key{ProjectID: uuid.New(), ID: id}
	runs, _, err := s.readPricedRuns(ctx, []store.Key{key})
	if err != nil {
		return err
	}
	runs = append(runs, pricedRun{EndedRun{Figures: Figures{Key: key, Status: store.RunCompleted}}, bill{price{}: {calls: 1}}})
	return s.underRollupLock(ctx, func(ctx context.Context, tx *sqldb.Tx, grown growth) error {
		if _, err := outbox.Rollups.Take(ctx, s.db, tx, []outbox.EndedRow{{Key: key}}); err != nil {
			return err
		}
		if err := addToRollups(ctx, s.db, tx, runs, grown); err != nil {
			return err
		}
		return sqldb.ErrTrial
	})
}

// pricedRun is an ended run with the cost of its calls.
type pricedRun struct {
	EndedRun
	bill
}

// readPricedRuns reads the first of these runs, as many as are added at once, and returns their keys.
// Some runs may be deleted.
func (s *Store) readPricedRuns(ctx context.Context, ended []store.Key) (runs []pricedRun, done []store.Key, err error) {
	calls, numbers := int64(0), 0
	for len(done) < min(len(ended), maxRuns) && calls < maxCalls && numbers < maxPrices {
		some := ended[len(done):min(len(done)+s.pace.BatchSize(readAtOnce), len(ended))]
		done = ended[:len(done)+len(some)]
		all, err := readRuns(ctx, s.db, s.db.Reader(), some, "", nil)
		if err != nil {
			return nil, nil, err
		}
		bills, keys := map[store.Key]bill{}, make([]store.Key, len(all))
		for i, run := range all {
			bills[run.Key], keys[i] = bill{}, run.Key
		}
		for _, same := range s.db.KeysByPart("model_calls", keys) {
			if err := pastCallsOf(ctx, s.db, s.db.Reader(), same, "", func(run store.Key, of price, n callCost) {
				bills[run].addCost(of, n)
				calls, numbers = calls+n.calls, numbers+1
			}); err != nil {
				return nil, nil, err
			}
		}
		for _, run := range all {
			runs = append(runs, pricedRun{run, bills[run.Key]})
		}
	}
	return runs, slices.Clone(done), nil
}

// readRuns reads ended runs, narrowed by a condition with arguments. It omits runs in deleted
// partitions.
func readRuns(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, ended []store.Key, narrow string, args []any) (runs []EndedRun, err error) {
	parts, err := db.GroupByExistingPart(ctx, q, "ended_runs", ended)
	if err != nil {
		return nil, err
	}
	for _, same := range parts {
		for some := range slices.Chunk(same, sqldb.MaxKeys) {
			l := sqldb.Args{Values: slices.Clone(args)}
			past, err := sqldb.PastRows(ctx, db, q, some[0].ID, scanEndedRun, `SELECT `+endedRunColumns+` FROM {ended_runs} r
				WHERE `+db.KeyCondition(&l, "r.id", some)+narrow, l.Values...)
			if err != nil {
				return nil, err
			}
			runs = append(runs, past...)
		}
	}
	return runs, nil
}

// rollup identifies a row of run_rollups.
type rollup struct {
	project, environment  uuid.UUID
	agent, testName       string
	deployment, connector uuid.UUID
	status                store.RunStatus
	outcome               string
	grain                 timewindow.Grain
	beginsAt              int64
}

func (t EndedRun) rollupFor(g timewindow.Grain) rollup {
	return rollup{
		t.ProjectID, t.Environment, t.Agent, t.TestName, t.Deployment, t.Connector, t.Status, t.Outcome,
		g, g.FloorTime(store.TimeOf(t.ID).UnixMicro()),
	}
}

// primaryKey returns the primary key of the row, which is derived from all its fields.
func (r rollup) primaryKey() store.Key {
	hash := sha256.New()
	for _, id := range []uuid.UUID{r.environment, r.deployment, r.connector} {
		hash.Write(id[:])
	}
	_ = binary.Write(hash, binary.BigEndian, r.beginsAt) // a hash never fails
	for _, text := range []string{r.agent, r.testName, string(r.status), r.outcome, string(r.grain)} {
		_ = binary.Write(hash, binary.BigEndian, int64(len(text)))
		hash.Write([]byte(text))
	}
	return store.Key{ProjectID: r.project, ID: uuid.UUID(hash.Sum(nil)[:16])}
}

// addToRollups adds runs to the rollups. The caller holds the lock of rollupsTurn.
func addToRollups(ctx context.Context, db *sqldb.DB, tx *sqldb.Tx, runs []pricedRun, grown growth) error {
	tallies, sums := tallySet{map[store.Key]rollup{}, map[store.Key]*tally{}}, usageSums{}
	for _, run := range runs {
		sums.addRunCost(run, timewindow.Grains)
		for _, g := range timewindow.Grains {
			t, err := tallies.tallyOf(run.rollupFor(g))
			if err == nil {
				err = t.addEndedRun(run.Figures)
			}
			if err != nil {
				return err
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(tallies.all), sqldb.CompareKeys)
	stored, err := addStoredTallies(ctx, db, tx, keys, tallies.all)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if !stored[key] {
			grown.countRows(key.ProjectID, 1)
		}
	}
	if err := writeTallies(ctx, tx, keys, tallies.of, tallies.all); err != nil {
		return err
	}
	if err := sums.writeRollups(ctx, tx, grown); err != nil {
		return err
	}
	return addTotals(ctx, tx, runs, grown)
}

// addStoredTallies adds the stored values to tallies, and returns which rows exist.
func addStoredTallies(ctx context.Context, db *sqldb.DB, tx *sqldb.Tx, keys []store.Key, more map[store.Key]*tally) (stored map[store.Key]bool, err error) {
	stored = map[store.Key]bool{}
	for some := range slices.Chunk(keys, sqldb.MaxKeys) {
		var l sqldb.Args
		if err := sqldb.EachRow(ctx, tx, func(row sqldb.Scanner) error {
			var key store.Key
			before, sketch, err := scanTally(row, &key.ProjectID, &key.ID)
			if err != nil {
				return err
			}
			stored[key] = true
			return more[key].addStored(before, sketch)
		}, `SELECT project_id, id, `+tallyColumns+` FROM run_rollups WHERE `+db.KeyCondition(&l, "id", some), l.Values...); err != nil {
			return nil, err
		}
	}
	return stored, nil
}

// The value columns of run_rollups.
const tallyColumns = `runs, timed, duration_us, input_tokens, output_tokens, thinking_tokens, cached_input_tokens, total_tokens, durations`

// scanTally reads the value columns, after the columns in before.
func scanTally(row sqldb.Scanner, before ...any) (t tally, sketch []byte, err error) {
	fields := append(before, &t.runs, &t.timed, &t.durations)
	fields = append(fields, usageFields(&t.usage)...)
	err = row.Scan(append(fields, &sketch)...)
	return t, sketch, err
}

// writeTallies overwrites stored tallies.
func writeTallies(ctx context.Context, tx *sqldb.Tx, keys []store.Key, of map[store.Key]rollup, all map[store.Key]*tally) error {
	var numbers sqldb.RowBatch
	for _, key := range keys {
		r, t := of[key], all[key]
		u := t.usage
		numbers.Add(key.ProjectID, key.ID, r.environment, r.agent, string(r.grain), r.beginsAt, r.testName, r.deployment, r.connector,
			string(r.status), r.outcome, t.runs, t.timed, t.durations, t.encodeSketch(), u.InputTokens, u.OutputTokens, u.ThinkingTokens,
			u.CachedInputTokens, u.TotalTokens)
	}
	return numbers.Insert(ctx, tx, `INSERT INTO run_rollups (project_id, id, environment_id, agent_name, grain, begins_at, test_name,
		deployment_id, connector_id, status, guardrail_outcome, runs, timed, duration_us, durations, input_tokens, output_tokens,
		thinking_tokens, cached_input_tokens, total_tokens) VALUES `, `(%, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %)`,
		` ON CONFLICT (project_id, id) DO UPDATE SET runs = excluded.runs, timed = excluded.timed, duration_us = excluded.duration_us,
			durations = excluded.durations, input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens,
			thinking_tokens = excluded.thinking_tokens, cached_input_tokens = excluded.cached_input_tokens, total_tokens = excluded.total_tokens`)
}

// agentTotal identifies a row of agent_totals.
type agentTotal struct {
	environment     store.Key
	agent, testName string
}

func (t EndedRun) totalFor() agentTotal {
	return agentTotal{store.Key{ProjectID: t.ProjectID, ID: t.Environment}, t.Agent, t.TestName}
}

// addTotals adds runs to the totals of their agents.
func addTotals(ctx context.Context, tx *sqldb.Tx, runs []pricedRun, grown growth) error {
	counts, last := map[agentTotal]int64{}, map[agentTotal]time.Time{}
	for _, run := range runs {
		of := run.totalFor()
		counts[of]++
		if run.EndedAt.After(last[of]) {
			last[of] = run.EndedAt
		}
	}
	return insertTotals(ctx, tx, counts, last, grown)
}

// insertTotals adds counts to the totals of agents.
func insertTotals(ctx context.Context, tx *sqldb.Tx, counts map[agentTotal]int64, last map[agentTotal]time.Time, grown growth) error {
	var totals sqldb.RowBatch
	for of, count := range counts { // in any order, because of the lock
		totals.Add(of.environment.ProjectID, of.environment.ID, of.agent, of.testName, count, sqldb.Instant(last[of]))
	}
	return grown.insertRows(ctx, tx, totals, `INSERT INTO agent_totals AS t (project_id, environment_id, agent_name, test_name, runs, last_ended_at) VALUES `,
		`(%, %, %, %, %, %)`, ` ON CONFLICT (project_id, environment_id, agent_name, test_name) DO UPDATE SET runs = t.runs + excluded.runs,
			last_ended_at = CASE WHEN excluded.last_ended_at > t.last_ended_at THEN excluded.last_ended_at ELSE t.last_ended_at END
			RETURNING project_id, environment_id, agent_name, test_name, runs`, func(row sqldb.Scanner) (project uuid.UUID, fresh bool, err error) {
			var (
				of   agentTotal
				runs int64
			)
			err = row.Scan(&of.environment.ProjectID, &of.environment.ID, &of.agent, &of.testName, &runs)
			return of.environment.ProjectID, runs == counts[of], err
		})
}
