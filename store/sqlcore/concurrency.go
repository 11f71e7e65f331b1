// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/crontick"
	"github.com/agentplatform/agentplatform/store/openrun"
	"github.com/agentplatform/agentplatform/store/replayjob"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Concurrency keys: the slot of a key belongs to one open run from its acceptance to its end. The
// other open runs with the key are blocked. A transaction that changes the holder of a slot locks
// it until the commit, so a run that is accepted and a run that ends always see each other. Slots
// are locked in one order to prevent deadlocks.

const (
	// slotRows is the maximum number of slots per statement. There is one statement for each
	// length.
	slotRows = 32
	// maxEvaluatedKeys is the maximum number of keys that one claim evaluates, because it holds their inputs
	// in memory.
	maxEvaluatedKeys = 64
)

// contender is a queued run that needs the slot of its key.
type contender struct {
	environment uuid.UUID
	agent, key  string
	run         store.Key
	drop        bool
}

// compareSlots orders contenders by their slots.
func compareSlots(a, b contender) int {
	return cmp.Or(sqldb.CompareIDs(a.run.ProjectID, b.run.ProjectID), sqldb.CompareIDs(a.environment, b.environment),
		strings.Compare(a.agent, b.agent), strings.Compare(a.key, b.key))
}

// contends reports whether an accepted run needs a slot.
func contends(run store.EventRun) bool {
	return run.ErrorCode == "" && !run.Concurrency.Unknown && run.Concurrency.Text != ""
}

// Settles reports whether an accepted event needs more than its rows; see Settle.
func Settles(e store.Event) bool {
	return EndsAtOnce(e) || e.Tick != nil || e.Step != nil || len(e.Files) > 0 || slices.ContainsFunc(e.Runs, contends)
}

// KeyColumns returns the concurrency key of a run for its row, nil if it is not evaluated, and
// whether the run starts as blocked.
func KeyColumns(run store.EventRun) (key *string, blocked bool) {
	if run.Concurrency.Unknown {
		return nil, false
	}
	text := sqldb.Text(run.Concurrency.Text)
	return &text, contends(run)
}

// Settle advances the ticks and bulk replays of accepted events, ends the parts of events that end
// at once, and gives free slots to their runs, in the accepting transaction.
func (c *Core) Settle(ctx context.Context, tx *sqldb.Tx, events []store.Event, admissions []store.Admission) error {
	var contenders []contender
	if err := crontick.Take(ctx, c.DB, tx, events); err != nil {
		return err
	}
	if err := replayjob.TakeSteps(ctx, tx, events); err != nil {
		return err
	}
	if err := c.endAtOnce(ctx, tx, events, admissions); err != nil {
		return err
	}
	for i, e := range events {
		for n, run := range e.Runs {
			if contends(run) {
				contenders = append(contenders, contender{
					environment: e.EnvironmentID, agent: sqldb.Text(run.AgentName), key: sqldb.Text(run.Concurrency.Text),
					run: store.Key{ProjectID: e.ProjectID, ID: admissions[i].RunIDs[n]}, drop: run.Concurrency.Drop,
				})
			}
		}
	}
	return c.takeSlots(ctx, tx, contenders)
}

// takeSlots gives free slots to blocked runs. If several runs need a slot, the oldest gets it. Runs
// that do not wait are cancelled.
func (c *Core) takeSlots(ctx context.Context, tx *sqldb.Tx, contenders []contender) error {
	if len(contenders) == 0 {
		return nil
	}
	slices.SortFunc(contenders, func(a, b contender) int {
		return cmp.Or(compareSlots(a, b), sqldb.CompareIDs(a.run.ID, b.run.ID))
	})
	oldest := slices.CompactFunc(slices.Clone(contenders), func(a, b contender) bool { return compareSlots(a, b) == 0 })
	holders := map[store.Key]bool{}
	for part := range slices.Chunk(oldest, slotRows) {
		if err := takePart(ctx, tx, part, holders); err != nil {
			return sqldb.Wrap(err, "taking concurrency keys")
		}
	}
	var (
		first   []store.Key
		dropped []openrun.Ending
	)
	for _, r := range contenders {
		switch {
		case holders[r.run]:
			first = append(first, r.run)
		case r.drop:
			dropped = append(dropped, openrun.Ending{
				Run: r.run, Only: store.RunQueued, Status: store.RunCancelled, Code: runerror.ConcurrencyDropped,
				Error: "another open run of the agent has the concurrency key",
			})
		}
	}
	if _, err := c.unblock(ctx, tx, first); err != nil {
		return err
	}
	_, err := c.EndRuns(ctx, tx, dropped)
	return err
}

// takePart locks slots and takes the free ones. It records the holders.
func takePart(ctx context.Context, tx *sqldb.Tx, part []contender, holders map[store.Key]bool) error {
	var l sqldb.Args
	rows := make([]string, len(part))
	for i, r := range part {
		rows[i] = "(" + l.Add(r.run.ProjectID) + ", " + l.Add(r.environment) + ", " + l.Add(r.agent) + ", " + l.Add(r.key) + ", " + l.Add(r.run.ID) + ")"
	}
	held, err := sqldb.Collect(ctx, tx, sqldb.ScanKey, `INSERT INTO concurrency_slots AS s (project_id, environment_id, agent_name, key, run_id)
		VALUES `+strings.Join(rows, ", ")+` ON CONFLICT (project_id, environment_id, agent_name, key)
		DO UPDATE SET run_id = s.run_id RETURNING project_id, run_id`, l.Values...)
	for _, holder := range held {
		holders[holder] = true
	}
	return err
}

// unblock makes runs with slots visible to claims. It returns the runs that are still open.
func (c *Core) unblock(ctx context.Context, tx *sqldb.Tx, runs []store.Key) (open []store.Key, err error) {
	for part := range slices.Chunk(runs, sqldb.MaxIDs) {
		var l sqldb.Args
		those, err := sqldb.Collect(ctx, tx, sqldb.ScanKey, `UPDATE open_runs SET blocked = FALSE WHERE `+c.KeyCondition(&l, "id", part)+`
			RETURNING project_id, id`, l.Values...)
		if err != nil {
			return nil, sqldb.Wrap(err, "unblocking runs")
		}
		open = append(open, those...)
	}
	return open, nil
}

// handOver gives the slots of ended runs to the oldest waiting runs, in the transaction that ended
// them.
func (c *Core) handOver(ctx context.Context, tx *sqldb.Tx, ended []openrun.EndedRun) error {
	var keyed []store.Key
	for _, run := range ended {
		if run.Keyed {
			keyed = append(keyed, run.Run)
		}
	}
	for part := range slices.Chunk(keyed, sqldb.MaxIDs) {
		var l sqldb.Args
		held, err := sqldb.Collect(ctx, tx, sqldb.ScanKey, `SELECT project_id, run_id FROM concurrency_slots WHERE `+c.KeyCondition(&l, "run_id", part)+`
			ORDER BY project_id, environment_id, agent_name, key `+c.Exclusive, l.Values...)
		for len(held) > 0 && err == nil {
			held, err = c.passSlots(ctx, tx, held)
		}
		if err != nil {
			return sqldb.Wrap(err, "handing over concurrency keys")
		}
	}
	return nil
}

// passSlots gives the slots of runs to the next runs. A slot without waiting runs is deleted. It returns
// the next runs that have ended meanwhile. The caller must pass on their slots again. The slots are locked
// first, because a statement that waits for a lock does not see the runs that were accepted meanwhile.
func (c *Core) passSlots(ctx context.Context, tx *sqldb.Tx, held []store.Key) (gone []store.Key, err error) {
	var l sqldb.Args
	environments := map[store.Key]uuid.UUID{} // by next run
	if _, err := sqldb.Collect(ctx, tx, func(row sqldb.Scanner) (none struct{}, err error) {
		var (
			next        store.Key
			environment uuid.UUID
		)
		err = row.Scan(&next.ProjectID, &next.ID, &environment)
		environments[next] = environment
		return none, err
	}, `UPDATE concurrency_slots AS s SET run_id = COALESCE((SELECT r.id FROM open_runs r WHERE r.project_id = s.project_id
			AND r.environment_id = s.environment_id AND r.agent_name = s.agent_name AND r.concurrency_key = s.key AND r.blocked
			ORDER BY r.id LIMIT 1), s.run_id)
		WHERE `+c.KeyCondition(&l, "run_id", held)+` RETURNING project_id, run_id, environment_id`, l.Values...); err != nil {
		return nil, err
	}
	for _, run := range held { // slots without a next run
		delete(environments, run)
	}
	if len(environments) < len(held) {
		var l sqldb.Args
		if _, err := tx.Exec(ctx, `DELETE FROM concurrency_slots WHERE `+c.KeyCondition(&l, "run_id", held), l.Values...); err != nil {
			return nil, err
		}
	}
	next := slices.SortedFunc(maps.Keys(environments), sqldb.CompareKeys)
	open, err := c.unblock(ctx, tx, next)
	for _, run := range open {
		tx.Hint(store.TopicQueued, store.Key{ProjectID: run.ProjectID, ID: environments[run]})
	}
	return slices.DeleteFunc(next, func(run store.Key) bool { return slices.Contains(open, run) }), err
}

// evaluateKeys evaluates the keys of queued runs that were accepted without a live deployment, and
// gives them free slots.
func (c *Core) evaluateKeys(ctx context.Context, environment store.Key, runs []openrun.Waiting) error {
	if c.evaluate == nil {
		return errors.New("this process evaluates no concurrency keys")
	}
	runs = slices.SortedFunc(slices.Values(runs[:min(len(runs), maxEvaluatedKeys)]), func(a, b openrun.Waiting) int { return sqldb.CompareIDs(a.ID, b.ID) })
	ids := make([]uuid.UUID, len(runs))
	for i, w := range runs {
		ids[i] = w.Input
	}
	inputs, err := runrow.Inputs(ctx, c.DB, c.engine.Reader(), environment.ProjectID, ids)
	if err != nil {
		return sqldb.Wrap(err, "reading the inputs of runs without a key")
	}
	keys, problems := make([]store.ConcurrencyKey, len(runs)), make([]error, len(runs))
	for i, w := range runs {
		input := inputs[w.Input].Data
		keys[i], problems[i] = w.Concurrency.KeyOf(input, c.evaluate(input))
	}
	return c.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		var (
			contenders []contender
			failed     []openrun.Ending
		)
		for i, w := range runs {
			run := store.Key{ProjectID: environment.ProjectID, ID: w.ID}
			if problems[i] != nil {
				failed = append(failed, openrun.Ending{
					Run: run, Only: store.RunQueued, Status: store.RunFailed, Code: runerror.KeyUnavailable,
					Error: store.Cut(sqldb.Text(problems[i].Error()), store.MaxError),
				})
				continue
			}
			key := sqldb.Text(keys[i].Text)
			n, err := tx.Exec(ctx, `UPDATE open_runs SET concurrency_key = $3, blocked = $4
				WHERE project_id = $1 AND id = $2 AND concurrency_key IS NULL AND status || '' = 'queued'`, run.ProjectID, run.ID, key, key != "")
			if err != nil {
				return sqldb.Wrap(err, "recording the concurrency key of run %s", run)
			}
			if n == 1 && key != "" {
				contenders = append(contenders, contender{environment: environment.ID, agent: w.Agent, key: key, run: run, drop: keys[i].Drop})
			}
		}
		if err := c.takeSlots(ctx, tx, contenders); err != nil {
			return err
		}
		_, err := c.EndRuns(ctx, tx, failed)
		return err
	})
}
