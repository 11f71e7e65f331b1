// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

const (
	// maxRolledUp is of how many transactions' runs one transaction adds the numbers at most, and
	// readAtOnce of how many runs these are read at a time.
	maxRolledUp = 128
	readAtOnce  = 128
	// maxRuns, maxCalls and maxBilled are of about how many runs it does so at most, of how many
	// calls that these have made, and of how many numbers these have by models, days and currencies.
	maxRuns   = 2000
	maxCalls  = 100_000
	maxBilled = 5000
)

// rollupsTurn is the lock of those who add numbers: rows are read, added to and written.
var rollupsTurn = uuid.MustParse("5f3a1c52-7a42-4c35-9be3-2d6f6e3d7c10")

// RollUp implements store.Housekeeping.
func (c *Core) RollUp(ctx context.Context, limit int) (int, error) {
	by := consumer[ended]{all: c.rollUp, trial: c.rollUpForTrial}
	n, err := c.consumeEnded(ctx, rollupsBox, c.rolling, c.rollingTurns, limit, maxRolledUp, by)
	return n, wrap(err, "rolling up runs")
}

// rollUp adds what rows of the outbox are about to the numbers, as much of it as is done at once.
// It is read before the transaction: others wait for who writes, and a part of history that is gone
// would end it. Of two who read the same, the one who takes the rows adds it.
func (c *Core) rollUp(ctx context.Context, rows []ended) error {
	var of ended
	for _, row := range rows {
		of.runs, of.connectorRuns = append(of.runs, row.runs...), append(of.connectorRuns, row.connectorRuns...)
	}
	runs, done, err := c.billedRuns(ctx, of.runs)
	if err != nil {
		return err
	}
	var connectorRuns []endedConnectorRun
	if len(done) == len(of.runs) {
		if connectorRuns, err = c.endedConnectorRuns(ctx, c.engine.Reader(), of.connectorRuns); err != nil {
			return err
		}
		done = append(done, of.connectorRuns...)
	}
	consumed := keySet(done)
	return c.inTurn(ctx, func(ctx context.Context, tx *Tx, grown growth) error {
		taken, err := rollupsBox.takeRows(ctx, c, tx, rows)
		if err != nil {
			return err
		}
		if len(taken) == 0 {
			return errOthers
		}
		own := map[store.Key]bool{}
		var mine ended // of what is done
		for i, row := range taken {
			for _, key := range slices.Concat(row.runs, row.connectorRuns) {
				own[key] = true
			}
			taken[i] = row.without(consumed)
			mine.runs = append(mine.runs, among(row.runs, consumed)...)
			mine.connectorRuns = append(mine.connectorRuns, among(row.connectorRuns, consumed)...)
		}
		if err := rollupsBox.put(ctx, tx, taken...); err != nil {
			return err
		}
		if err := c.checkGone(ctx, tx, "ended_runs", notAmong(mine.runs, runs), ""); err != nil {
			return err
		}
		if err := c.checkGone(ctx, tx, "ended_connector_runs", notAmong(mine.connectorRuns, connectorRuns), ""); err != nil {
			return err
		}
		if err := c.addUp(ctx, tx, slices.DeleteFunc(runs, func(run billed) bool { return !own[run.Key] }), grown); err != nil {
			return err
		}
		return addUpConnectorRuns(ctx, tx, slices.DeleteFunc(connectorRuns, func(run endedConnectorRun) bool { return !own[run.Key] }), grown)
	})
}

// rollUpForTrial adds a run that nobody has to the numbers, and keeps nothing of it.
func (c *Core) rollUpForTrial(ctx context.Context) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	key := store.Key{ProjectID: uuid.New(), ID: id}
	runs, _, err := c.billedRuns(ctx, []store.Key{key})
	if err != nil {
		return err
	}
	runs = append(runs, billed{tallied{measured: measured{Key: key, status: store.RunCompleted}}, bill{price{}: {calls: 1}}})
	return c.inTurn(ctx, func(ctx context.Context, tx *Tx, grown growth) error {
		if _, err := rollupsBox.takeRows(ctx, c, tx, []ended{{Key: key}}); err != nil {
			return err
		}
		if err := c.addUp(ctx, tx, runs, grown); err != nil {
			return err
		}
		return errTrial
	})
}

// billed is an ended run with what its calls cost.
type billed struct {
	tallied
	bill
}

// billedRuns reads the first of these runs, as many as are added up at once, and says which those
// are; some may be gone.
func (c *Core) billedRuns(ctx context.Context, ended []store.Key) (runs []billed, done []store.Key, err error) {
	calls, numbers := int64(0), 0
	for len(done) < min(len(ended), maxRuns) && calls < maxCalls && numbers < maxBilled {
		some := ended[len(done):min(len(done)+c.rolling.most(readAtOnce), len(ended))]
		done = ended[:len(done)+len(some)]
		all, err := c.talliedRuns(ctx, c.engine.Reader(), some, "", nil)
		if err != nil {
			return nil, nil, err
		}
		bills, keys := map[store.Key]bill{}, make([]store.Key, len(all))
		for i, run := range all {
			bills[run.Key], keys[i] = bill{}, run.Key
		}
		for _, same := range c.keysByPart("model_calls", keys) {
			if err := c.pastCallsOf(ctx, c.engine.Reader(), same, "", func(run store.Key, of price, n spent) {
				bills[run].add(of, n)
				calls, numbers = calls+n.calls, numbers+1
			}); err != nil {
				return nil, nil, err
			}
		}
		for _, run := range all {
			runs = append(runs, billed{run, bills[run.Key]})
		}
	}
	return runs, slices.Clone(done), nil
}

// talliedRuns reads ended runs, narrowed by a condition with these arguments. Those whose part
// of history is gone are left out.
func (c *Core) talliedRuns(ctx context.Context, q Queryer, ended []store.Key, narrow string, args []any) (runs []tallied, err error) {
	parts, err := c.heldByPart(ctx, q, "ended_runs", ended)
	if err != nil {
		return nil, err
	}
	for _, same := range parts {
		for some := range slices.Chunk(same, maxKeys) {
			l := list{args: slices.Clone(args)}
			past, err := pastRows(ctx, c, q, some[0].ID, scanTallied, `SELECT `+talliedColumns+` FROM {ended_runs} r
				WHERE `+c.keys(&l, "r.id", some)+narrow, l.args...)
			if err != nil {
				return nil, err
			}
			runs = append(runs, past...)
		}
	}
	return runs, nil
}

// maxKeys is how many rows are read by their keys at once.
const maxKeys = 1000

// rollup says what the numbers of a row are of.
type rollup struct {
	project, environment  uuid.UUID
	agent, testName       string
	deployment, connector uuid.UUID
	status                store.RunStatus
	outcome               string
	grain                 grain
	beginsAt              int64
}

func (t tallied) rollup(g grain) rollup {
	return rollup{
		t.ProjectID, t.environment, t.agent, t.testName, t.deployment, t.connector, t.status, t.outcome,
		g, g.floor(store.TimeOf(t.ID).UnixMicro()),
	}
}

// key is the primary key of the row, which follows from all that it is of.
func (r rollup) key() store.Key {
	hash := sha256.New()
	for _, id := range []uuid.UUID{r.environment, r.deployment, r.connector} {
		hash.Write(id[:])
	}
	_ = binary.Write(hash, binary.BigEndian, r.beginsAt) // a hash refuses nothing
	for _, text := range []string{r.agent, r.testName, string(r.status), r.outcome, string(r.grain)} {
		_ = binary.Write(hash, binary.BigEndian, int64(len(text)))
		hash.Write([]byte(text))
	}
	return store.Key{ProjectID: r.project, ID: uuid.UUID(hash.Sum(nil)[:16])}
}

// addUp adds runs to the numbers. Who does has the lock of rollupsTurn.
func (c *Core) addUp(ctx context.Context, tx *Tx, runs []billed, grown growth) error {
	of, more := map[store.Key]rollup{}, map[store.Key]*tally{}
	sums := bills{}
	for _, run := range runs {
		sums.addRun(run, grains)
		for _, g := range grains {
			r := run.rollup(g)
			key := r.key()
			if more[key] == nil {
				t, err := newTally()
				if err != nil {
					return err
				}
				of[key], more[key] = r, t
			}
			if err := more[key].run(run.measured); err != nil {
				return err
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(more), CompareKeys)
	stored, err := c.addStoredTallies(ctx, tx, keys, more)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if !stored[key] {
			grown.rows(key.ProjectID, 1)
		}
	}
	if err := writeTallies(ctx, tx, keys, of, more); err != nil {
		return err
	}
	if err := sums.write(ctx, tx, grown); err != nil {
		return err
	}
	return addTotals(ctx, tx, runs, grown)
}

// addStoredTallies adds to numbers what is stored of them, and says of which something is.
func (c *Core) addStoredTallies(ctx context.Context, tx *Tx, keys []store.Key, more map[store.Key]*tally) (stored map[store.Key]bool, err error) {
	stored = map[store.Key]bool{}
	for some := range slices.Chunk(keys, maxKeys) {
		var l list
		if _, err := collect(ctx, tx, func(row scanner) (none struct{}, err error) {
			var key store.Key
			before, sketch, err := scanTally(row, &key.ProjectID, &key.ID)
			if err != nil {
				return none, err
			}
			stored[key] = true
			return none, more[key].add(before, sketch)
		}, `SELECT project_id, id, `+tallyColumns+` FROM run_rollups WHERE `+c.keys(&l, "id", some), l.args...); err != nil {
			return nil, err
		}
	}
	return stored, nil
}

// The columns of run_rollups that hold numbers.
const tallyColumns = `runs, timed, duration_us, input_tokens, output_tokens, thinking_tokens, cached_input_tokens, total_tokens, durations`

// scanTally reads columns before these into destinations.
func scanTally(row scanner, before ...any) (t tally, sketch []byte, err error) {
	fields := append(before, &t.runs, &t.timed, &t.durations)
	fields = append(fields, usageFields(&t.usage)...)
	err = row.Scan(append(fields, &sketch)...)
	return t, sketch, err
}

// writeTallies writes numbers over those that are stored.
func writeTallies(ctx context.Context, tx *Tx, keys []store.Key, of map[store.Key]rollup, all map[store.Key]*tally) error {
	var numbers rows
	for _, key := range keys {
		r, t := of[key], all[key]
		u := t.usage
		numbers.add(key.ProjectID, key.ID, r.environment, r.agent, string(r.grain), r.beginsAt, r.testName, r.deployment, r.connector,
			string(r.status), r.outcome, t.runs, t.timed, t.durations, t.encoded(), u.InputTokens, u.OutputTokens, u.ThinkingTokens,
			u.CachedInputTokens, u.TotalTokens)
	}
	return numbers.insert(ctx, tx, `INSERT INTO run_rollups (project_id, id, environment_id, agent_name, grain, begins_at, test_name,
		deployment_id, connector_id, status, guardrail_outcome, runs, timed, duration_us, durations, input_tokens, output_tokens,
		thinking_tokens, cached_input_tokens, total_tokens) VALUES `, `(%, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %, %)`,
		` ON CONFLICT (project_id, id) DO UPDATE SET runs = excluded.runs, timed = excluded.timed, duration_us = excluded.duration_us,
			durations = excluded.durations, input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens,
			thinking_tokens = excluded.thinking_tokens, cached_input_tokens = excluded.cached_input_tokens, total_tokens = excluded.total_tokens`)
}

// total says what a row of agent_totals is of.
type total struct {
	environment     store.Key
	agent, testName string
}

func (t tallied) total() total {
	return total{store.Key{ProjectID: t.ProjectID, ID: t.environment}, t.agent, t.testName}
}

// addTotals adds runs to what their agents have had in all.
func addTotals(ctx context.Context, tx *Tx, runs []billed, grown growth) error {
	counts, last := map[total]int64{}, map[total]time.Time{}
	for _, run := range runs {
		of := run.total()
		counts[of]++
		if run.endedAt.After(last[of]) {
			last[of] = run.endedAt
		}
	}
	return insertTotals(ctx, tx, counts, last, grown)
}

// insertTotals adds to what agents have had in all.
func insertTotals(ctx context.Context, tx *Tx, counts map[total]int64, last map[total]time.Time, grown growth) error {
	var totals rows
	for of, count := range counts { // in any order, for nobody else writes them
		totals.add(of.environment.ProjectID, of.environment.ID, of.agent, of.testName, count, Instant(last[of]))
	}
	return grown.insert(ctx, tx, totals, `INSERT INTO agent_totals AS t (project_id, environment_id, agent_name, test_name, runs, last_ended_at) VALUES `,
		`(%, %, %, %, %, %)`, ` ON CONFLICT (project_id, environment_id, agent_name, test_name) DO UPDATE SET runs = t.runs + excluded.runs,
			last_ended_at = CASE WHEN excluded.last_ended_at > t.last_ended_at THEN excluded.last_ended_at ELSE t.last_ended_at END
			RETURNING project_id, environment_id, agent_name, test_name, runs`, func(row scanner) (project uuid.UUID, fresh bool, err error) {
			var (
				of   total
				runs int64
			)
			err = row.Scan(&of.environment.ProjectID, &of.environment.ID, &of.agent, &of.testName, &runs)
			return of.environment.ProjectID, runs == counts[of], err
		})
}
