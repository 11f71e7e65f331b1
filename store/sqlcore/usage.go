// SPDX-License-Identifier: Apache-2.0

package sqlcore

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
)

// price identifies the calls of a model on a day in a currency.
type price struct {
	model    string
	day      store.Day
	currency store.Currency
}

// spent is a sum over calls.
type spent struct {
	calls, nanos int64
	usage        store.TokenUsage
}

func (s spent) plus(more spent) spent {
	return spent{s.calls + more.calls, store.Sum(s.nanos, more.nanos), s.usage.Plus(more.usage)}
}

// The columns of model calls m for price and spent.
const priceColumns = `m.model, m.at / 86400000000, m.currency`

var spentColumns = `count(*), ` + sumColumns("m")

// scanSpent reads price and spent, after the columns in before.
func scanSpent(row scanner, before ...any) (of price, n spent, err error) {
	fields := append(before, &of.model, &of.day, &of.currency, &n.calls, &n.nanos)
	return of, n, row.Scan(append(fields, usageFields(&n.usage)...)...)
}

// callsOf reads the cost of model calls of ended runs. table is model_calls, or {model_calls} if
// all runs are in one partition, which may be missing. narrow is a condition on the calls m. For a
// run with very many models, the most expensive ones stay separate.
func (c *Core) callsOf(ctx context.Context, q Queryer, table string, runs []store.Key, narrow string, add func(run store.Key, of price, n spent)) error {
	for some := range slices.Chunk(runs, maxKeys) {
		var (
			l    list
			last store.Key
			b    = bill{}
		)
		tell := func() {
			for of, n := range b.dearest(store.MaxRunModels) {
				add(last, of, n)
			}
			clear(b)
		}
		if _, err := collect(ctx, q, func(row scanner) (none struct{}, err error) {
			var run store.Key
			of, n, err := scanSpent(row, &run.ProjectID, &run.ID)
			if err != nil {
				return none, err
			}
			if run != last {
				tell()
				last = run
			}
			b.add(of, n)
			return none, nil
		}, c.selectCalls(&l, table, some, `m.project_id, m.run_id, `, narrow)+` ORDER BY m.project_id, m.run_id`, l.args...); err != nil {
			return err
		}
		tell()
	}
	return nil
}

// selectCalls selects the cost of calls of runs, by price and by more columns of m.
func (c *Core) selectCalls(l *list, table string, runs []store.Key, by, narrow string) string {
	return c.InPart(`SELECT `+by+priceColumns+`, `+spentColumns+` FROM `+table+` m
		WHERE `+c.keys(l, "m.run_id", runs)+l.between("m.run_id", runs)+narrow+` GROUP BY `+by+priceColumns, runs[0].ID)
}

// between limits IDs to the range of some keys, so that the planner knows their partitions.
func (l *list) between(id string, keys []store.Key) string {
	return ` AND ` + id + ` BETWEEN ` + l.add(slices.MinFunc(keys, compareKeyIDs).ID) + ` AND ` + l.add(slices.MaxFunc(keys, compareKeyIDs).ID)
}

// pastCallsOf is callsOf for runs of one partition; empty if it is missing.
func (c *Core) pastCallsOf(ctx context.Context, q Queryer, runs []store.Key, narrow string, add func(run store.Key, of price, n spent)) error {
	err := c.foundPart(c.callsOf(ctx, q, "{model_calls}", runs, narrow, add))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// bill adds up calls by price.
type bill map[price]spent

func (b bill) add(of price, n spent) { b[of] = b[of].plus(n) }

// modelTotals returns the sum of each separate model.
func (b bill) modelTotals() map[string]spent {
	models := map[string]spent{}
	for of, n := range b {
		if of.model != store.OtherModels {
			models[of.model] = models[of.model].plus(n)
		}
	}
	return models
}

// dearest returns the bill with the most expensive models separate, at most so many, and the others
// added up as one.
func (b bill) dearest(most int) bill {
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
		out.add(of, n)
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
func (c *Core) RunCalls(ctx context.Context, run store.Key) ([]store.Calls, error) {
	b := bill{}
	err := c.pastCallsOf(ctx, c.engine.Reader(), []store.Key{run}, sinceOrOpen("m.run_id", "m.project_id"), func(_ store.Key, of price, n spent) { b.add(of, n) })
	return b.callList(), wrap(err, "reading the model calls of run %s", run)
}

// usageRollup identifies a row of usage_rollups.
type usageRollup struct {
	rollup
	price
}

// key returns the primary key of the row, which is derived from all its fields.
func (u usageRollup) key() store.Key {
	of, hash := u.rollup.key(), sha256.New()
	hash.Write(of.ID[:])
	_ = binary.Write(hash, binary.BigEndian, u.day) // a hash never fails
	_ = binary.Write(hash, binary.BigEndian, int64(len(u.model)))
	hash.Write([]byte(u.model + string(u.currency)))
	return store.Key{ProjectID: of.ProjectID, ID: uuid.UUID(hash.Sum(nil)[:16])}
}

// bills are sums by usage rollup.
type bills map[usageRollup]spent

func (b bills) add(of usageRollup, n spent) { b[of] = b[of].plus(n) }

// addRunCost adds the cost of a run to rollups of these grains.
func (b bills) addRunCost(run billed, grains []grain) {
	for of, n := range run.bill {
		for _, g := range grains {
			b.add(usageRollup{run.rollup(g), of}, n)
		}
	}
}

// write adds the sums to the stored rollups. The caller holds the lock of rollupsTurn.
func (b bills) write(ctx context.Context, tx *Tx, grown growth) error {
	keys := map[store.Key]usageRollup{}
	for of := range b {
		keys[of.key()] = of
	}
	var numbers rows
	for _, key := range slices.SortedFunc(maps.Keys(keys), CompareKeys) {
		r, n := keys[key], b[keys[key]]
		u := n.usage
		numbers.add(key.ProjectID, key.ID, r.environment, r.agent, string(r.grain), r.beginsAt, r.testName, r.deployment, r.connector,
			string(r.status), r.outcome, r.model, int64(r.day), string(r.currency), n.calls, n.nanos, u.InputTokens, u.OutputTokens, u.ThinkingTokens,
			u.CachedInputTokens, u.TotalTokens)
	}
	return grown.insert(ctx, tx, numbers, `INSERT INTO usage_rollups AS u (project_id, id, environment_id, agent_name, grain, begins_at, test_name,
		deployment_id, connector_id, status, guardrail_outcome, model, day, currency, calls, cost_nanos, input_tokens, output_tokens,
		thinking_tokens, cached_input_tokens, total_tokens) VALUES `, `(%, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %)`,
		` ON CONFLICT (project_id, id) DO UPDATE SET calls = u.calls + excluded.calls, `+addToSums("u")+`
			RETURNING project_id, id, calls`, func(row scanner) (project uuid.UUID, fresh bool, err error) {
			var (
				key   store.Key
				calls int64
			)
			err = row.Scan(&key.ProjectID, &key.ID, &calls)
			return key.ProjectID, calls == b[keys[key]].calls, err
		})
}

// The columns of usage_rollups r for price and spent, grouped by price.
const rolledPrice = `r.model, r.day, r.currency`

var rolledSpent = `CAST(SUM(r.calls) AS bigint), ` + sumColumns("r")

// manyNumbers is a number of entries that a bill exceeds only with very many models.
const manyNumbers = 20_000

// addCalls adds calls. With very many models, only the most expensive ones stay separate, which
// limits the memory.
func (s *statistics) addCalls(of price, n spent) {
	s.bill.add(of, n)
	if len(s.bill) > max(s.many, manyNumbers) {
		s.bill = s.bill.dearest(store.MaxModels)
		s.many = 2 * len(s.bill)
	}
}

// atOnce is the maximum number of prices for adding up the calls of many runs in the database,
// because separating the runs costs more than finding them.
const atOnce = 1000

// addCost adds the cost of ended runs' calls. It reads the whole table, because a missing partition
// would abort the transaction.
func (s *statistics) addCost(ctx context.Context, q Queryer, runs []store.Key) error {
	const table = "model_calls"
	add := func(_ store.Key, of price, n spent) { s.addCalls(of, n) }
	for some := range slices.Chunk(runs, maxKeys) {
		sum, l := bill{}, list{}
		if _, err := collect(ctx, q, func(row scanner) (none struct{}, err error) {
			of, n, err := scanSpent(row)
			sum.add(of, n)
			return none, err
		}, s.selectCalls(&l, table, some, ``, ``)+` LIMIT `+l.add(atOnce), l.args...); err != nil {
			return err
		}
		if len(sum) == atOnce || len(sum.modelTotals()) > store.MaxRunModels { // some calls of a run may be merged
			if err := s.callsOf(ctx, q, table, some, "", add); err != nil {
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

// addSpent adds usage rollups.
func (s *statistics) addSpent(ctx context.Context, q Queryer, of stretch) error {
	l := list{args: []any{s.query.Environment.ProjectID, string(of.grain), of.from, of.to}}
	_, err := collect(ctx, q, func(row scanner) (none struct{}, err error) {
		p, n, err := scanSpent(row)
		if err == nil {
			s.addCalls(p, n)
		}
		return none, err
	}, `SELECT `+rolledPrice+`, `+rolledSpent+` FROM usage_rollups r
		WHERE r.project_id = $1 AND r.grain = $2 AND r.begins_at >= $3 AND r.begins_at < $4`+s.narrowEnded(&l)+` GROUP BY `+rolledPrice, l.args...)
	return err
}

// countingUsage rebuilds usage rollups: an hour from its runs, as they are counted.
type countingUsage struct{ *countingRuns }

func (k countingUsage) next(ctx context.Context, g grain, from int64) (int64, error) {
	return k.nextPeriod(ctx, "usage_rollups", g, from)
}

// addCalls adds the cost of an hour's runs. If the partition of their calls is deleted, even before
// the partition of the runs, the hour stays unchanged.
func (k countingUsage) addCalls(ctx context.Context, tx *Tx, runs []tallied, sums bills) error {
	of, keys := map[store.Key]tallied{}, make([]store.Key, len(runs))
	for i, run := range runs {
		of[run.Key], keys[i] = run, run.Key
	}
	return k.callsOf(ctx, tx, "{model_calls}", keys, "", func(run store.Key, p price, n spent) {
		sums.addRunCost(billed{of[run], bill{p: n}}, []grain{hourly})
	})
}

// count counts no runs, because they are counted already.
func (k countingUsage) count(ctx context.Context, tx *Tx, g grain, begin int64, grown growth) (int64, error) {
	went, err := tx.exec(ctx, `DELETE FROM usage_rollups WHERE project_id = $1 AND grain = $2 AND begins_at = $3`, k.project, string(g), begin)
	if err != nil {
		return 0, err
	}
	sums, of := bills{}, g.during(begin)
	grown.rows(k.project, -went)
	if g == hourly {
		if err := k.eachPage(ctx, tx, of, func(runs []tallied) error { return k.addCalls(ctx, tx, runs, sums) }); err != nil {
			return 0, err
		}
		return 0, sums.write(ctx, tx, grown)
	}
	const apart = `r.environment_id, r.agent_name, r.test_name, r.deployment_id, r.connector_id, r.status, r.guardrail_outcome`
	if _, err := collect(ctx, tx, func(row scanner) (none struct{}, err error) {
		r := rollup{project: k.project, grain: g, beginsAt: begin}
		p, n, err := scanSpent(row, &r.environment, &r.agent, &r.testName, &r.deployment, &r.connector, &r.status, &r.outcome)
		if err == nil {
			sums.add(usageRollup{r, p}, n)
		}
		return none, err
	}, `SELECT `+apart+`, `+rolledPrice+`, `+rolledSpent+` FROM usage_rollups r
		WHERE r.project_id = $1 AND r.grain = $2 AND r.begins_at >= $3 AND r.begins_at < $4 GROUP BY `+apart+`, `+rolledPrice, k.project, string(g.smallerGrain()), of.from, of.to); err != nil {
		return 0, err
	}
	return 0, sums.write(ctx, tx, grown)
}
