// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// chunk is how many rows one statement with a list of ids names at most.
const chunk = 500

// Heartbeat implements store.Dispatch.
func (c *Core) Heartbeat(ctx context.Context, leases []store.Lease, lease time.Duration) ([]store.Lease, error) {
	held := map[store.Lease]bool{}
	for part := range slices.Chunk(leases, chunk) {
		err := c.Write(ctx, func(ctx context.Context, tx *Tx) error {
			l := list{args: []any{lease.Microseconds()}}
			renewed, err := collect(ctx, tx, func(row scanner) (h store.Lease, err error) {
				err = row.Scan(&h.Run.ProjectID, &h.Run.ID, &h.Token)
				return h, err
			}, `UPDATE agent_runs SET lease_until = now_us() + $1 WHERE status = 'running' AND `+l.leases(part)+`
				RETURNING project_id, id, fencing_token`, l.args...)
			for _, h := range renewed {
				held[h] = true
			}
			return err
		})
		if err != nil {
			return nil, wrap(err, "renewing leases")
		}
	}
	var lost []store.Lease
	for _, l := range leases {
		if !held[l] {
			lost = append(lost, l)
		}
	}
	return lost, nil
}

// AppendJournal implements store.Dispatch.
func (c *Core) AppendJournal(ctx context.Context, l store.Lease, entries []store.JournalEntry) error {
	entries, err := boundedJournal(entries)
	if err != nil {
		return wrap(err, "appending to the journal of run %s", l.Run)
	}
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		var length int64
		// Not a change: it locks the row, so that a claim waits.
		err := found(tx.QueryRowContext(ctx, `UPDATE agent_runs SET fencing_token = fencing_token
			WHERE project_id = $1 AND id = $2 AND fencing_token = $3 AND status = 'running' RETURNING journal_length`,
			l.Run.ProjectID, l.Run.ID, l.Token).Scan(&length))
		switch {
		case errors.Is(err, store.ErrNotFound):
			return fenced(ctx, tx, l)
		case err != nil:
			return err
		}
		return WriteJournal(ctx, tx, l, length, entries)
	})
	return wrap(err, "appending to the journal of run %s", l.Run)
}

// fenced is why no running run has this claim.
func fenced(ctx context.Context, q Queryer, l store.Lease) error {
	var exists int
	if err := q.QueryRowContext(ctx, `SELECT 1 FROM agent_runs WHERE project_id = $1 AND id = $2`,
		l.Run.ProjectID, l.Run.ID).Scan(&exists); err != nil {
		return found(err)
	}
	return store.ErrFenced
}

// WriteJournal appends entries to the journal of a run that the transaction
// has locked and that has length entries.
func WriteJournal(ctx context.Context, tx *Tx, l store.Lease, length int64, entries []store.JournalEntry) error {
	before, open := length, 0
	for _, e := range entries {
		switch {
		case e.Sequence > length+1:
			return store.ErrConflict // a gap
		case e.Sequence <= before:
			if err := repeated(ctx, tx, l, e); err != nil {
				return err
			}
			continue
		}
		if _, err := tx.exec(ctx, `INSERT INTO journal (project_id, run_id, sequence, token, kind, data, unsafe)
			VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			l.Run.ProjectID, l.Run.ID, e.Sequence, l.Token, string(e.Kind), JSON(e.Data), e.Unsafe); err != nil {
			return err
		}
		length = e.Sequence
		open += OpenedTools(e)
	}
	if length == before {
		return nil
	}
	_, err := tx.exec(ctx, `UPDATE agent_runs SET journal_length = $3,
		open_tools = CASE WHEN open_tools + $4 > 0 THEN open_tools + $4 ELSE 0 END WHERE project_id = $1 AND id = $2`,
		l.Run.ProjectID, l.Run.ID, length, open)
	return err
}

// repeated refuses an entry whose place another claim has filled.
func repeated(ctx context.Context, tx *Tx, l store.Lease, e store.JournalEntry) error {
	var token int64
	err := tx.QueryRowContext(ctx, `SELECT token FROM journal WHERE project_id = $1 AND run_id = $2 AND sequence = $3`,
		l.Run.ProjectID, l.Run.ID, e.Sequence).Scan(&token)
	if err == nil && token != l.Token {
		err = store.ErrConflict
	}
	return found(err)
}

// OpenedTools is by how much an entry changes the number of unsafe tools in flight.
func OpenedTools(e store.JournalEntry) int {
	switch {
	case !e.Unsafe:
		return 0
	case e.Kind == store.JournalToolStarted:
		return 1
	case e.Kind == store.JournalToolResult:
		return -1
	}
	return 0
}

// Release implements store.Dispatch.
func (c *Core) Release(ctx context.Context, l store.Lease) error {
	err := c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		n, _, err := giveBack(ctx, tx, math.MaxInt32, []store.Key{l.Run}, `fencing_token = $1`, l.Token)
		if err != nil || n == 1 {
			return err
		}
		var (
			status store.RunStatus
			code   store.RunErrorCode
			token  int64
		)
		err = tx.QueryRowContext(ctx, `SELECT status, error_code, fencing_token FROM agent_runs
			WHERE project_id = $1 AND id = $2`, l.Run.ProjectID, l.Run.ID).Scan(&status, &code, &token)
		switch released := status == store.RunQueued || code == store.RunErrorToolInterrupted; {
		case err != nil:
			return found(err)
		case token == l.Token && released:
			return nil // a repetition
		}
		return store.ErrFenced
	})
	return wrap(err, "releasing run %s", l.Run)
}

// giveBack ends the claims of running runs that meet a condition; those that
// were claimed as often as allowed fail. It returns how many claims ended, and how
// many of their runs failed.
func giveBack(ctx context.Context, tx *Tx, attempts int, which []store.Key, condition string, args ...any) (ended, failed int, err error) {
	type moved struct {
		project, environment uuid.UUID
		connectorRun         *uuid.UUID
		status               store.RunStatus
	}
	of := list{args: args}
	worn := `fencing_token >= ` + of.add(attempts)
	runs, err := collect(ctx, tx, func(row scanner) (m moved, err error) {
		err = row.Scan(&m.project, &m.environment, &m.connectorRun, &m.status)
		return m, err
	}, `UPDATE agent_runs SET lease_until = NULL,
			status = CASE WHEN open_tools > 0 OR `+worn+` THEN 'failed' ELSE 'queued' END,
			error_code = CASE WHEN open_tools > 0 THEN '`+string(store.RunErrorToolInterrupted)+`'
				WHEN `+worn+` THEN '`+string(store.RunErrorRunnerLost)+`' ELSE error_code END,
			error = CASE WHEN open_tools > 0 THEN 'a tool was in flight when its runner was lost; '
				|| 'it is not declared idempotent, so it is not called again'
				WHEN `+worn+` THEN 'its runner was lost again and again; the agent may need more memory than runners have'
				ELSE error END,
			ended_at = CASE WHEN open_tools > 0 OR `+worn+` THEN now_us() END, open_tools = 0
		WHERE status = 'running' AND `+condition+` AND `+of.keys("id", which)+`
		RETURNING project_id, environment_id, connector_run_id, status`, of.args...)
	if err != nil {
		return 0, 0, wrap(err, "ending claims")
	}
	lost := map[store.Key]int{}
	for _, m := range runs {
		if m.status == store.RunQueued {
			tx.Hint(store.TopicQueued, store.Key{ProjectID: m.project, ID: m.environment})
			continue
		}
		failed++
		if m.connectorRun != nil {
			lost[store.Key{ProjectID: m.project, ID: *m.connectorRun}]++
		}
	}
	return len(runs), failed, CloseConnectorRuns(ctx, tx, lost)
}

// cancelRuns cancels the runs of the project that a condition names, of an
// environment that is gone; its arguments begin at $2.
func cancelRuns(ctx context.Context, tx *Tx, project uuid.UUID, condition string, args ...any) error {
	of, err := collect(ctx, tx, func(row scanner) (id *uuid.UUID, err error) {
		err = row.Scan(&id)
		return id, err
	}, `UPDATE agent_runs SET status = 'cancelled', error_code = '`+string(store.RunErrorEnvironmentGone)+`',
			error = 'the environment was deleted', ended_at = now_us(), lease_until = NULL, open_tools = 0
		WHERE project_id = $1 AND `+condition+` RETURNING connector_run_id`, append([]any{project}, args...)...)
	if err != nil {
		return wrap(err, "cancelling runs")
	}
	lost := map[store.Key]int{}
	for _, id := range of {
		if id != nil {
			lost[store.Key{ProjectID: project, ID: *id}]++
		}
	}
	return CloseConnectorRuns(ctx, tx, lost)
}

// CloseConnectorRuns counts runs that ended without completing: so many of each
// connector run.
func CloseConnectorRuns(ctx context.Context, tx *Tx, lost map[store.Key]int) error {
	byCount := map[int][]store.Key{}
	for key, n := range lost {
		byCount[n] = append(byCount[n], key)
	}
	for n, keys := range byCount {
		slices.SortFunc(keys, compareKeys)
		for part := range slices.Chunk(keys, chunk) {
			l := list{args: []any{n}}
			ended, err := collect(ctx, tx, scanKey, `UPDATE connector_runs SET open_runs = open_runs - $1,
					failed_runs = failed_runs + $1,
					status = CASE WHEN open_runs > $1 THEN status ELSE 'failed' END,
					ended_at = CASE WHEN open_runs > $1 THEN ended_at ELSE now_us() END
				WHERE `+l.keys("id", part)+` RETURNING project_id, CASE WHEN open_runs = 0 THEN id END`, l.args...)
			if err != nil {
				return wrap(err, "ending connector runs")
			}
			for _, key := range ended {
				if key.ID != uuid.Nil {
					tx.Hint(store.TopicDone, key)
				}
			}
		}
	}
	return nil
}
