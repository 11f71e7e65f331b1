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

// price is what calls of models are told apart by.
type price struct {
	model    string
	day      store.Day
	currency store.Currency
}

// spent are numbers of calls, which add up.
type spent struct {
	calls, nanos int64
	usage        store.TokenUsage
}

func (s spent) plus(more spent) spent {
	return spent{s.calls + more.calls, store.Sum(s.nanos, more.nanos), s.usage.Plus(more.usage)}
}

// The columns of calls of models m, of which there are price and numbers.
const priceColumns = `m.model, m.at / 86400000000, m.currency`

var spentColumns = `count(*), ` + sumsOf("m")

// scanSpent reads price and numbers, and columns before these into destinations.
func scanSpent(row scanner, before ...any) (of price, n spent, err error) {
	fields := append(before, &of.model, &of.day, &of.currency, &n.calls, &n.nanos)
	return of, n, row.Scan(append(fields, usageFields(&n.usage)...)...)
}

// callsOf reads what calls of models of ended runs have cost; table is model_calls, or {model_calls}
// where all runs are of one part of history, which may not be there; narrow is a condition on their
// calls m. Of a run that has called very many models, the dearest are told apart.
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

// selectCalls selects what calls of runs have cost, by their prices and by columns m before these.
func (c *Core) selectCalls(l *list, table string, runs []store.Key, by, narrow string) string {
	return c.InPart(`SELECT `+by+priceColumns+`, `+spentColumns+` FROM `+table+` m
		WHERE `+c.keys(l, "m.run_id", runs)+l.between("m.run_id", runs)+narrow+` GROUP BY `+by+priceColumns, runs[0].ID)
}

// between narrows ids to those from the first of some keys to the last: so a planner knows of which
// parts of history these are.
func (l *list) between(id string, keys []store.Key) string {
	return ` AND ` + id + ` BETWEEN ` + l.add(slices.MinFunc(keys, compareKeyIDs).ID) + ` AND ` + l.add(slices.MaxFunc(keys, compareKeyIDs).ID)
}

// pastCallsOf is callsOf of runs of one part of history; where that is not there it reads none.
func (c *Core) pastCallsOf(ctx context.Context, q Queryer, runs []store.Key, narrow string, add func(run store.Key, of price, n spent)) error {
	err := c.foundPart(c.callsOf(ctx, q, "{model_calls}", runs, narrow, add))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// bill adds up calls by their prices.
type bill map[price]spent

func (b bill) add(of price, n spent) { b[of] = b[of].plus(n) }

// models are the numbers of each model, without those that are not told apart any more.
func (b bill) models() map[string]spent {
	models := map[string]spent{}
	for of, n := range b {
		if of.model != store.OtherModels {
			models[of.model] = models[of.model].plus(n)
		}
	}
	return models
}

// dearest are they with so many models apart at most, those that have cost most, and the others
// added up as one.
func (b bill) dearest(most int) bill {
	models := b.models()
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

// calls are they by model, day and currency.
func (b bill) calls() []store.Calls {
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
	return b.calls(), wrap(err, "reading what the calls of models of run %s cost", run)
}

// usageRollup says what a row of usage_rollups is of.
type usageRollup struct {
	rollup
	price
}

// key is the primary key of the row, which follows from all that it is of.
func (u usageRollup) key() store.Key {
	of, hash := u.rollup.key(), sha256.New()
	hash.Write(of.ID[:])
	_ = binary.Write(hash, binary.BigEndian, u.day) // a hash refuses nothing
	_ = binary.Write(hash, binary.BigEndian, int64(len(u.model)))
	hash.Write([]byte(u.model + string(u.currency)))
	return store.Key{ProjectID: of.ProjectID, ID: uuid.UUID(hash.Sum(nil)[:16])}
}

// bills are numbers by what they are of.
type bills map[usageRollup]spent

func (b bills) add(of usageRollup, n spent) { b[of] = b[of].plus(n) }

// addRun adds what a run has cost, as rollups of these grains.
func (b bills) addRun(run billed, grains []grain) {
	for of, n := range run.bill {
		for _, g := range grains {
			b.add(usageRollup{run.rollup(g), of}, n)
		}
	}
}

// write adds them to the numbers that are stored. Who does has the lock of rollupsTurn.
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
		` ON CONFLICT (project_id, id) DO UPDATE SET calls = u.calls + excluded.calls, `+addsTo("u")+`
			RETURNING project_id, id, calls`, func(row scanner) (project uuid.UUID, fresh bool, err error) {
			var (
				key   store.Key
				calls int64
			)
			err = row.Scan(&key.ProjectID, &key.ID, &calls)
			return key.ProjectID, calls == b[keys[key]].calls, err
		})
}

// The columns of usage_rollups r that hold price and numbers, added up by the former.
const rolledPrice = `r.model, r.day, r.currency`

var rolledSpent = `CAST(SUM(r.calls) AS bigint), ` + sumsOf("r")

// manyNumbers are more numbers of models, days and currencies than a bill has but where it has very
// many models.
const manyNumbers = 20_000

// addCalls adds calls. Of very many models the dearest so far stay apart: what is remembered is
// bounded.
func (s *statistics) addCalls(of price, n spent) {
	s.bill.add(of, n)
	if len(s.bill) > max(s.many, manyNumbers) {
		s.bill = s.bill.dearest(store.MaxModels)
		s.many = 2 * len(s.bill)
	}
}

// atOnce is of how many prices calls of many runs are added up at once, by the database: to tell
// their runs apart costs more than to find them.
const atOnce = 1000

// addCost adds what calls of ended runs have cost. These are looked for in all of history, for a
// part that is not there any more ends a transaction.
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
		if len(sum) == atOnce || len(sum.models()) > store.MaxRunModels { // not all of one run may be told apart
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

// addSpent adds rollups of what calls cost.
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

// countingUsage counts anew what calls of models cost: an hour by its runs, as they are counted.
type countingUsage struct{ *countingRuns }

func (k countingUsage) next(ctx context.Context, g grain, from int64) (int64, error) {
	return k.nextOf(ctx, "usage_rollups", g, from)
}

// addCalls adds what runs of an hour have cost. Where the part of history is gone that had their
// calls, be it before that of the runs, the hour stays as it is counted.
func (k countingUsage) addCalls(ctx context.Context, tx *Tx, runs []tallied, sums bills) error {
	of, keys := map[store.Key]tallied{}, make([]store.Key, len(runs))
	for i, run := range runs {
		of[run.Key], keys[i] = run, run.Key
	}
	return k.callsOf(ctx, tx, "{model_calls}", keys, "", func(run store.Key, p price, n spent) {
		sums.addRun(billed{of[run], bill{p: n}}, []grain{hourly})
	})
}

// count counts no runs: they are counted already.
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
		WHERE r.project_id = $1 AND r.grain = $2 AND r.begins_at >= $3 AND r.begins_at < $4 GROUP BY `+apart+`, `+rolledPrice, k.project, string(g.below()), of.from, of.to); err != nil {
		return 0, err
	}
	return 0, sums.write(ctx, tx, grown)
}
