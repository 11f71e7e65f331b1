// SPDX-License-Identifier: Apache-2.0

// Package concurrency has the slots of concurrency keys. The slot of a key belongs to one open run from its acceptance to its end. The
// other open runs with the key are blocked. A transaction that changes the holder of a slot locks
// it until the commit, so a run that is accepted and a run that ends always see each other. Slots
// are locked in one order to prevent deadlocks.
package concurrency

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// slotRows is the maximum number of slots per statement. There is one statement for each
// length.
const slotRows = 32

// Contender is a queued run that needs the slot of its key.
type Contender struct {
	Environment uuid.UUID
	Agent, Key  string
	Run         store.Key
	// Drop means that the run does not wait for the slot.
	Drop bool
}

// compareSlots orders contenders by their slots.
func compareSlots(a, b Contender) int {
	return cmp.Or(sqldb.CompareIDs(a.Run.ProjectID, b.Run.ProjectID), sqldb.CompareIDs(a.Environment, b.Environment),
		strings.Compare(a.Agent, b.Agent), strings.Compare(a.Key, b.Key))
}

// Contends reports whether an accepted run needs a slot.
func Contends(run store.EventRun) bool {
	return run.ErrorCode == "" && !run.Concurrency.Unknown && run.Concurrency.Text != ""
}

// KeyColumns returns the concurrency key of a run for its row, nil if it is not evaluated, and
// whether the run starts as blocked.
func KeyColumns(run store.EventRun) (key *string, blocked bool) {
	if run.Concurrency.Unknown {
		return nil, false
	}
	text := sqldb.Text(run.Concurrency.Text)
	return &text, Contends(run)
}

// ContendersOf returns the runs of accepted events that need a slot.
func ContendersOf(events []store.Event, admissions []store.Admission) (contenders []Contender) {
	for i, e := range events {
		for n, run := range e.Runs {
			if Contends(run) {
				contenders = append(contenders, Contender{
					Environment: e.EnvironmentID, Agent: sqldb.Text(run.AgentName), Key: sqldb.Text(run.Concurrency.Text),
					Run: store.Key{ProjectID: e.ProjectID, ID: admissions[i].RunIDs[n]}, Drop: run.Concurrency.Drop,
				})
			}
		}
	}
	return contenders
}

// TakeSlots gives free slots to blocked runs. If several runs need a slot, the oldest gets it. It returns the runs without a
// slot that do not wait, which the caller cancels.
func TakeSlots(ctx context.Context, db *sqldb.DB, tx *sqldb.Tx, contenders []Contender) (dropped []store.Key, err error) {
	if len(contenders) == 0 {
		return nil, nil
	}
	slices.SortFunc(contenders, func(a, b Contender) int {
		return cmp.Or(compareSlots(a, b), sqldb.CompareIDs(a.Run.ID, b.Run.ID))
	})
	oldest := slices.CompactFunc(slices.Clone(contenders), func(a, b Contender) bool { return compareSlots(a, b) == 0 })
	holders := map[store.Key]bool{}
	for part := range slices.Chunk(oldest, slotRows) {
		if err := takePart(ctx, tx, part, holders); err != nil {
			return nil, sqldb.Wrap(err, "taking concurrency keys")
		}
	}
	var first []store.Key
	for _, r := range contenders {
		switch {
		case holders[r.Run]:
			first = append(first, r.Run)
		case r.Drop:
			dropped = append(dropped, r.Run)
		}
	}
	_, err = unblock(ctx, db, tx, first)
	return dropped, err
}

// takePart locks slots and takes the free ones. It records the holders.
func takePart(ctx context.Context, tx *sqldb.Tx, part []Contender, holders map[store.Key]bool) error {
	var l sqldb.Args
	rows := make([]string, len(part))
	for i, r := range part {
		rows[i] = "(" + l.Add(r.Run.ProjectID) + ", " + l.Add(r.Environment) + ", " + l.Add(r.Agent) + ", " + l.Add(r.Key) + ", " + l.Add(r.Run.ID) + ")"
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
func unblock(ctx context.Context, db *sqldb.DB, tx *sqldb.Tx, runs []store.Key) (open []store.Key, err error) {
	for part := range slices.Chunk(runs, sqldb.MaxIDs) {
		var l sqldb.Args
		those, err := sqldb.Collect(ctx, tx, sqldb.ScanKey, `UPDATE open_runs SET blocked = FALSE WHERE `+db.KeyCondition(&l, "id", part)+`
			RETURNING project_id, id`, l.Values...)
		if err != nil {
			return nil, sqldb.Wrap(err, "unblocking runs")
		}
		open = append(open, those...)
	}
	return open, nil
}

// HandOver gives the slots of ended runs to the oldest waiting runs, in the transaction that ended
// them.
func HandOver(ctx context.Context, db *sqldb.DB, tx *sqldb.Tx, keyed []store.Key) error {
	for part := range slices.Chunk(keyed, sqldb.MaxIDs) {
		var l sqldb.Args
		held, err := sqldb.Collect(ctx, tx, sqldb.ScanKey, `SELECT project_id, run_id FROM concurrency_slots WHERE `+db.KeyCondition(&l, "run_id", part)+`
			ORDER BY project_id, environment_id, agent_name, key `+db.Exclusive, l.Values...)
		for len(held) > 0 && err == nil {
			held, err = passSlots(ctx, db, tx, held)
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
func passSlots(ctx context.Context, db *sqldb.DB, tx *sqldb.Tx, held []store.Key) (gone []store.Key, err error) {
	var l sqldb.Args
	environments := map[store.Key]uuid.UUID{} // by next run
	if err := sqldb.CollectMap(ctx, tx, environments, func(row sqldb.Scanner) (next store.Key, environment uuid.UUID, err error) {
		err = row.Scan(&next.ProjectID, &next.ID, &environment)
		return next, environment, err
	}, `UPDATE concurrency_slots AS s SET run_id = COALESCE((SELECT r.id FROM open_runs r WHERE r.project_id = s.project_id
			AND r.environment_id = s.environment_id AND r.agent_name = s.agent_name AND r.concurrency_key = s.key AND r.blocked
			ORDER BY r.id LIMIT 1), s.run_id)
		WHERE `+db.KeyCondition(&l, "run_id", held)+` RETURNING project_id, run_id, environment_id`, l.Values...); err != nil {
		return nil, err
	}
	for _, run := range held { // slots without a next run
		delete(environments, run)
	}
	if len(environments) < len(held) {
		var l sqldb.Args
		if _, err := tx.Exec(ctx, `DELETE FROM concurrency_slots WHERE `+db.KeyCondition(&l, "run_id", held), l.Values...); err != nil {
			return nil, err
		}
	}
	next := slices.SortedFunc(maps.Keys(environments), sqldb.CompareKeys)
	open, err := unblock(ctx, db, tx, next)
	for _, run := range open {
		tx.Hint(store.TopicQueued, store.Key{ProjectID: run.ProjectID, ID: environments[run]})
	}
	return slices.DeleteFunc(next, func(run store.Key) bool { return slices.Contains(open, run) }), err
}
