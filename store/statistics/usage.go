// SPDX-License-Identifier: Apache-2.0

package statistics

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/timewindow"
)

// price identifies the calls of a model on a day in a currency.
type price struct {
	model    string
	day      store.Day
	currency store.Currency
}

// callCost is a sum over calls.
type callCost struct {
	calls, nanos int64
	usage        store.TokenUsage
}

func (s callCost) combine(more callCost) callCost {
	return callCost{s.calls + more.calls, store.Sum(s.nanos, more.nanos), s.usage.Plus(more.usage)}
}

// The columns of model calls m for price and callCost.
const priceColumns = `m.model, m.at / 86400000000, m.currency`

var callCostColumns = `count(*), ` + sumColumns("m")

// scanCallCost reads price and callCost, after the columns in before.
func scanCallCost(row sqldb.Scanner, before ...any) (of price, n callCost, err error) {
	fields := append(before, &of.model, &of.day, &of.currency, &n.calls, &n.nanos)
	return of, n, row.Scan(append(fields, usageFields(&n.usage)...)...)
}

// callsOf reads the cost of model calls of ended runs. table is model_calls, or {model_calls} if
// all runs are in one partition, which may be missing. narrow is a condition on the calls m. For a
// run with very many models, the most expensive ones stay separate.
func callsOf(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, table string, runs []store.Key, narrow string, add func(run store.Key, of price, n callCost)) error {
	for some := range slices.Chunk(runs, sqldb.MaxKeys) {
		var (
			l    sqldb.Args
			last store.Key
			b    = bill{}
		)
		tell := func() {
			for of, n := range b.limitModels(store.MaxRunModels) {
				add(last, of, n)
			}
			clear(b)
		}
		if err := sqldb.EachRow(ctx, q, func(row sqldb.Scanner) error {
			var run store.Key
			of, n, err := scanCallCost(row, &run.ProjectID, &run.ID)
			if err != nil {
				return err
			}
			if run != last {
				tell()
				last = run
			}
			b.addCost(of, n)
			return nil
		}, selectCalls(db, &l, table, some, `m.project_id, m.run_id, `, narrow)+` ORDER BY m.project_id, m.run_id`, l.Values...); err != nil {
			return err
		}
		tell()
	}
	return nil
}

// selectCalls selects the cost of calls of runs, by price and by more columns of m.
func selectCalls(db *sqldb.DB, l *sqldb.Args, table string, runs []store.Key, by, narrow string) string {
	return db.InPart(`SELECT `+by+priceColumns+`, `+callCostColumns+` FROM `+table+` m
		WHERE `+db.KeyCondition(l, "m.run_id", runs)+idRange(l, "m.run_id", runs)+narrow+` GROUP BY `+by+priceColumns, runs[0].ID)
}

// idRange limits IDs to the range of some keys, so that the planner knows their partitions.
func idRange(l *sqldb.Args, id string, keys []store.Key) string {
	return ` AND ` + id + ` BETWEEN ` + l.Add(slices.MinFunc(keys, sqldb.CompareKeyIDs).ID) + ` AND ` + l.Add(slices.MaxFunc(keys, sqldb.CompareKeyIDs).ID)
}

// pastCallsOf is callsOf for runs of one partition; empty if it is missing.
func pastCallsOf(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, runs []store.Key, narrow string, add func(run store.Key, of price, n callCost)) error {
	err := db.MapNoRowsOrPart(callsOf(ctx, db, q, "{model_calls}", runs, narrow, add))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// bill adds up calls by price.
type bill map[price]callCost

func (b bill) addCost(of price, n callCost) { b[of] = b[of].combine(n) }

// modelTotals returns the sum of each separate model.
func (b bill) modelTotals() map[string]callCost {
	models := map[string]callCost{}
	for of, n := range b {
		if of.model != store.OtherModels {
			models[of.model] = models[of.model].combine(n)
		}
	}
	return models
}

// limitModels returns the bill with the most expensive models separate, at most so many, and the others
// added up as one.
func (b bill) limitModels(most int) bill {
	models := b.modelTotals()
	if len(models) <= most {
		return b
	}
	names := slices.SortedFunc(maps.Keys(models), func(x, y string) int {
		a, b := models[x], models[y]
		return cmp.Or(cmp.Compare(b.nanos, a.nanos), cmp.Compare(b.usage.TotalTokens, a.usage.TotalTokens), cmp.Compare(x, y))
	})
	for _, name := range names[most:] {
		delete(models, name)
	}
	out := bill{}
	for of, n := range b {
		if _, apart := models[of.model]; !apart {
			of.model = store.OtherModels
		}
		out.addCost(of, n)
	}
	return out
}

// callList returns the bill by model, day and currency.
func (b bill) callList() []store.Calls {
	var out []store.Calls
	for of, n := range b {
		out = append(out, store.Calls{Model: of.model, Day: of.day, Number: n.calls, Usage: n.usage, Cost: store.Cost{Currency: of.currency, Nanos: n.nanos}})
	}
	slices.SortFunc(out, func(a, b store.Calls) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Day, b.Day), cmp.Compare(a.Cost.Currency, b.Cost.Currency))
	})
	return out
}

// RunCalls implements store.History.
func (s *Store) RunCalls(ctx context.Context, run store.Key) ([]store.Calls, error) {
	b := bill{}
	err := pastCallsOf(ctx, s.db, s.db.Reader(), []store.Key{run}, sqldb.SinceOrOpenCondition("m.run_id", "m.project_id"), func(_ store.Key, of price, n callCost) { b.addCost(of, n) })
	return b.callList(), sqldb.Wrap(err, "reading the model calls of run %s", run)
}

// usageRollup identifies a row of usage_rollups.
type usageRollup struct {
	rollup
	price
}

// primaryKey returns the primary key of the row, which is derived from all its fields.
func (u usageRollup) primaryKey() store.Key {
	of, hash := u.rollup.primaryKey(), sha256.New()
	hash.Write(of.ID[:])
	_ = binary.Write(hash, binary.BigEndian, u.day) // a hash never fails
	_ = binary.Write(hash, binary.BigEndian, int64(len(u.model)))
	hash.Write([]byte(u.model + string(u.currency)))
	return store.Key{ProjectID: of.ProjectID, ID: uuid.UUID(hash.Sum(nil)[:16])}
}

// usageSums has sums by usage rollup.
type usageSums map[usageRollup]callCost

func (b usageSums) addCost(of usageRollup, n callCost) { b[of] = b[of].combine(n) }

// addRunCost adds the cost of a run to rollups of these grains.
func (b usageSums) addRunCost(run pricedRun, grains []timewindow.Grain) {
	for of, n := range run.bill {
		for _, g := range grains {
			b.addCost(usageRollup{run.rollupFor(g), of}, n)
		}
	}
}

// writeRollups adds the sums to the stored rollups. The caller holds the lock of rollupsTurn.
func (b usageSums) writeRollups(ctx context.Context, tx *sqldb.Tx, grown growth) error {
	keys := map[store.Key]usageRollup{}
	for of := range b {
		keys[of.primaryKey()] = of
	}
	var numbers sqldb.RowBatch
	for _, key := range slices.SortedFunc(maps.Keys(keys), sqldb.CompareKeys) {
		r, n := keys[key], b[keys[key]]
		u := n.usage
		numbers.Add(key.ProjectID, key.ID, r.environment, r.agent, string(r.grain), r.beginsAt, r.testName, r.deployment, r.connector,
			string(r.status), r.outcome, r.model, int64(r.day), string(r.currency), n.calls, n.nanos, u.InputTokens, u.OutputTokens, u.ThinkingTokens,
			u.CachedInputTokens, u.TotalTokens)
	}
	return grown.insertRows(ctx, tx, numbers, `INSERT INTO usage_rollups AS u (project_id, id, environment_id, agent_name, grain, begins_at, test_name,
		deployment_id, connector_id, status, guardrail_outcome, model, day, currency, calls, cost_nanos, input_tokens, output_tokens,
		thinking_tokens, cached_input_tokens, total_tokens) VALUES `, `(%, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %)`,
		` ON CONFLICT (project_id, id) DO UPDATE SET calls = u.calls + excluded.calls, `+addToSums("u")+`
			RETURNING project_id, id, calls`, func(row sqldb.Scanner) (project uuid.UUID, fresh bool, err error) {
			var (
				key   store.Key
				calls int64
			)
			err = row.Scan(&key.ProjectID, &key.ID, &calls)
			return key.ProjectID, calls == b[keys[key]].calls, err
		})
}

// The columns of usage_rollups r for price and callCost, grouped by price.
const rollupPriceColumns = `r.model, r.day, r.currency`

var rollupCostColumns = `CAST(SUM(r.calls) AS bigint), ` + sumColumns("r")

// minBillEntries is the number of entries that a bill can have before it is reduced. Only a bill with very
// many models exceeds it.
const minBillEntries = 20_000

// addCalls adds calls. With very many models, only the most expensive ones stay separate, which
// limits the memory.
func (s *Computation) addCalls(of price, n callCost) {
	s.bill.addCost(of, n)
	if len(s.bill) > max(s.maxBillEntries, minBillEntries) {
		s.bill = s.bill.limitModels(store.MaxModels)
		s.maxBillEntries = 2 * len(s.bill)
	}
}

// maxPricesAtOnce is the maximum number of prices for adding up the calls of many runs in the database,
// because separating the runs costs more than finding them.
const maxPricesAtOnce = 1000

// addCost adds the cost of ended runs' calls. It reads the whole table, because a missing partition
// would abort the transaction.
func (s *Computation) addCost(ctx context.Context, q sqldb.Queryer, runs []store.Key) error {
	const table = "model_calls"
	add := func(_ store.Key, of price, n callCost) { s.addCalls(of, n) }
	for some := range slices.Chunk(runs, sqldb.MaxKeys) {
		sum, l := bill{}, sqldb.Args{}
		if err := sqldb.EachRow(ctx, q, func(row sqldb.Scanner) error {
			of, n, err := scanCallCost(row)
			sum.addCost(of, n)
			return err
		}, selectCalls(s.db, &l, table, some, ``, ``)+` LIMIT `+l.Add(maxPricesAtOnce), l.Values...); err != nil {
			return err
		}
		if len(sum) == maxPricesAtOnce || len(sum.modelTotals()) > store.MaxRunModels { // some calls of a run may be merged
			if err := callsOf(ctx, s.db, q, table, some, "", add); err != nil {
				return err
			}
			continue
		}
		for of, n := range sum {
			s.addCalls(of, n)
		}
	}
	return nil
}

// addUsageRollups adds usage rollups.
func (s *Computation) addUsageRollups(ctx context.Context, q sqldb.Queryer, of timewindow.Stretch) error {
	l := sqldb.Args{Values: []any{s.query.Environment.ProjectID, string(of.Grain), of.From, of.To}}
	return sqldb.EachRow(ctx, q, func(row sqldb.Scanner) error {
		p, n, err := scanCallCost(row)
		if err == nil {
			s.addCalls(p, n)
		}
		return err
	}, `SELECT `+rollupPriceColumns+`, `+rollupCostColumns+` FROM usage_rollups r
		WHERE r.project_id = $1 AND r.grain = $2 AND r.begins_at >= $3 AND r.begins_at < $4`+s.endedCondition(&l)+` GROUP BY `+rollupPriceColumns, l.Values...)
}

// usageRebuilder rebuilds usage rollups: an hour from its runs, as they are counted.
type usageRebuilder struct{ *runRebuilder }

func (usageRebuilder) rollupTables() (rollups, rows string) { return "usage_rollups", "ended_runs" }

// addCalls adds the cost of an hour's runs. If the partition of their calls is deleted, even before
// the partition of the runs, the hour stays unchanged.
func (k usageRebuilder) addCalls(ctx context.Context, tx *sqldb.Tx, runs []EndedRun, sums usageSums) error {
	of, keys := map[store.Key]EndedRun{}, make([]store.Key, len(runs))
	for i, run := range runs {
		of[run.Key], keys[i] = run, run.Key
	}
	return callsOf(ctx, k.db, tx, "{model_calls}", keys, "", func(run store.Key, p price, n callCost) {
		sums.addRunCost(pricedRun{of[run], bill{p: n}}, []timewindow.Grain{timewindow.Hourly})
	})
}

// rebuildPeriod counts no runs, because they are counted already.
func (k usageRebuilder) rebuildPeriod(ctx context.Context, tx *sqldb.Tx, g timewindow.Grain, begin int64, grown growth) (int64, error) {
	went, err := tx.Exec(ctx, `DELETE FROM usage_rollups WHERE project_id = $1 AND grain = $2 AND begins_at = $3`, k.project, string(g), begin)
	if err != nil {
		return 0, err
	}
	sums, of := usageSums{}, g.PeriodFrom(begin)
	grown.countRows(k.project, -went)
	if g == timewindow.Hourly {
		if err := k.eachPage(ctx, tx, of, func(runs []EndedRun) error { return k.addCalls(ctx, tx, runs, sums) }); err != nil {
			return 0, err
		}
		return 0, sums.writeRollups(ctx, tx, grown)
	}
	const apart = `r.environment_id, r.agent_name, r.test_name, r.deployment_id, r.connector_id, r.status, r.guardrail_outcome`
	if err := sqldb.EachRow(ctx, tx, func(row sqldb.Scanner) error {
		r := rollup{project: k.project, grain: g, beginsAt: begin}
		p, n, err := scanCallCost(row, &r.environment, &r.agent, &r.testName, &r.deployment, &r.connector, &r.status, &r.outcome)
		if err == nil {
			sums.addCost(usageRollup{r, p}, n)
		}
		return err
	}, `SELECT `+apart+`, `+rollupPriceColumns+`, `+rollupCostColumns+` FROM usage_rollups r
		WHERE r.project_id = $1 AND r.grain = $2 AND r.begins_at >= $3 AND r.begins_at < $4 GROUP BY `+apart+`, `+rollupPriceColumns, k.project, string(g.Smaller()), of.From, of.To); err != nil {
		return 0, err
	}
	return 0, sums.writeRollups(ctx, tx, grown)
}
