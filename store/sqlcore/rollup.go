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

// maxRolledUp is of how many transactions' runs one transaction adds the numbers at most.
const maxRolledUp = 128

// rollupsTurn is the lock of those who add numbers: rows are read, added to and written.
var rollupsTurn = uuid.MustParse("5f3a1c52-7a42-4c35-9be3-2d6f6e3d7c10")

// RollUp implements store.Housekeeping, by transactions of some rows each, so that none is long.
func (c *Core) RollUp(ctx context.Context, limit int) (n int, err error) {
	for n < limit {
		some, err := c.rollUpSome(ctx, limit-n)
		n += some
		if err != nil || some == 0 {
			return n, err
		}
	}
	return n, nil
}

// rollUpSome does so in one transaction.
func (c *Core) rollUpSome(ctx context.Context, limit int) (n int, err error) {
	var waits bool
	err = c.engine.Reader().QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM outbox_rollups)`).Scan(&waits)
	if err != nil || !waits {
		return 0, wrap(err, "looking for runs that are not rolled up")
	}
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		taken, err := collect(ctx, tx, scanEnded, `DELETE FROM outbox_rollups WHERE (project_id, ended_id) IN (SELECT project_id, ended_id FROM outbox_rollups
			ORDER BY posted_at LIMIT $1 `+c.skipLocked+`) RETURNING project_id, run_ids, connector_run_ids`, min(limit, maxRolledUp))
		if n = len(taken); err != nil || n == 0 {
			return err
		}
		if err := c.engine.Lock(ctx, tx, rollupsTurn); err != nil {
			return err
		}
		var of ended
		for _, row := range taken {
			of.runs, of.connectorRuns = append(of.runs, row.runs...), append(of.connectorRuns, row.connectorRuns...)
		}
		runs, err := c.talliedRuns(ctx, tx, of.runs, "", nil)
		if err != nil {
			return err
		}
		if err := c.addUp(ctx, tx, runs); err != nil {
			return err
		}
		return c.addUpConnectorRuns(ctx, tx, of.connectorRuns)
	})
	if err != nil {
		return 0, wrap(err, "rolling up runs") // none was
	}
	return n, nil
}

// ended are the runs and connector runs of rows of the outbox.
type ended struct{ runs, connectorRuns []store.Key }

func scanEnded(row scanner) (of ended, err error) {
	var (
		project             uuid.UUID
		runs, connectorRuns []uuid.UUID
	)
	err = row.Scan(&project, idList{&runs}, idList{&connectorRuns})
	return ended{keysOf(project, runs), keysOf(project, connectorRuns)}, err
}

// scanEndedIDs reads one column of ids of a row of the outbox.
func scanEndedIDs(row scanner) (ended []store.Key, err error) {
	var (
		project uuid.UUID
		ids     []uuid.UUID
	)
	err = row.Scan(&project, idList{&ids})
	return keysOf(project, ids), err
}

// talliedRuns reads ended runs, narrowed by a condition with these arguments. Those whose part
// of history is gone are left out.
func (c *Core) talliedRuns(ctx context.Context, q Queryer, ended []store.Key, narrow string, args []any) (runs []tallied, err error) {
	for _, same := range c.keysByPart("ended_runs", ended) {
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
func (c *Core) addUp(ctx context.Context, tx *Tx, runs []tallied) error {
	of, more := map[store.Key]rollup{}, map[store.Key]*tally{}
	for _, run := range runs {
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
			if err := more[key].run(run); err != nil {
				return err
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(more), CompareKeys)
	if err := c.addStoredTallies(ctx, tx, keys, more); err != nil {
		return err
	}
	if err := writeTallies(ctx, tx, keys, of, more); err != nil {
		return err
	}
	sums := bills{}
	if err := c.addCalls(ctx, tx, runs, grains, sums); err != nil {
		return err
	}
	if err := sums.write(ctx, tx); err != nil {
		return err
	}
	return addTotals(ctx, tx, runs)
}

// addStoredTallies adds to numbers what is stored of them.
func (c *Core) addStoredTallies(ctx context.Context, tx *Tx, keys []store.Key, more map[store.Key]*tally) error {
	for some := range slices.Chunk(keys, maxKeys) {
		var l list
		if _, err := collect(ctx, tx, func(row scanner) (none struct{}, err error) {
			var key store.Key
			before, sketch, err := scanTally(row, &key.ProjectID, &key.ID)
			if err != nil {
				return none, err
			}
			return none, more[key].add(before, sketch)
		}, `SELECT project_id, id, `+tallyColumns+` FROM run_rollups WHERE `+c.keys(&l, "id", some), l.args...); err != nil {
			return err
		}
	}
	return nil
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
func addTotals(ctx context.Context, tx *Tx, runs []tallied) error {
	counts, last := map[total]int64{}, map[total]time.Time{}
	for _, run := range runs {
		of := run.total()
		counts[of]++
		if run.endedAt.After(last[of]) {
			last[of] = run.endedAt
		}
	}
	return insertTotals(ctx, tx, counts, last)
}

// insertTotals adds to what agents have had in all.
func insertTotals(ctx context.Context, tx *Tx, counts map[total]int64, last map[total]time.Time) error {
	var totals rows
	for of, count := range counts { // in any order, for nobody else writes them
		totals.add(of.environment.ProjectID, of.environment.ID, of.agent, of.testName, count, Instant(last[of]))
	}
	return totals.insert(ctx, tx, `INSERT INTO agent_totals AS t (project_id, environment_id, agent_name, test_name, runs, last_ended_at) VALUES `,
		`(%, %, %, %, %, %)`, ` ON CONFLICT (project_id, environment_id, agent_name, test_name) DO UPDATE SET runs = t.runs + excluded.runs,
			last_ended_at = CASE WHEN excluded.last_ended_at > t.last_ended_at THEN excluded.last_ended_at ELSE t.last_ended_at END`)
}
