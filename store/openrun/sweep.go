// SPDX-License-Identifier: Apache-2.0

package openrun

import (
	"context"
	"slices"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/runqueue"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/sweep"
)

// SweepLeases implements store.Housekeeping. Running and suspended runs are few, so both statements
// read all of them.
func (s *Store) SweepLeases(ctx context.Context, limit int) (swept store.Swept, err error) {
	var failed []error
	for _, of := range []struct {
		what    string
		skipped *sweep.Skipped
		do      func(ctx context.Context, limit int) (store.Swept, error)
	}{
		{"sweeping leases", &s.lost, s.sweepLost},
		{"sweeping runs that waited too long", &s.late, s.sweepLate},
		{"sweeping runs of environments that are gone", &s.orphans, s.sweepOrphans},
	} {
		of.skipped.BeginCall()
		some, err := of.do(ctx, limit)
		swept = swept.Plus(some)
		failed = append(failed, sqldb.Wrap(err, of.what))
	}
	return swept, sweep.JoinSetAside(failed...)
}

// lostRun is a run with an expired claim.
type lostRun struct {
	store.Lease
	open, losses int64
}

func scanLost(row sqldb.Scanner) (r lostRun, err error) {
	err = row.Scan(&r.Run.ProjectID, &r.Run.ID, &r.Token, &r.open, &r.losses)
	return r, err
}

// sweepLost ends expired claims. Runs with a tool in flight fail, and so do runs that were lost too
// often.
func (s *Store) sweepLost(ctx context.Context, limit int) (store.Swept, error) {
	return sweep.OpenRows[lostRun]{
		DB: s.db, Skipped: &s.lost, Columns: `r.project_id, r.id, r.token, r.open_tools, r.losses`, Table: `open_runs`,
		Where: `r.status = 'running' AND r.lease_until <= now_us()`, Order: `r.lease_until, r.project_id, r.id`,
		Scan: scanLost, Key: func(run lostRun) store.Key { return run.Run }, Move: s.endLost,
	}.Sweep(ctx, limit)
}

// endLost ends the claims on runs.
func (s *Store) endLost(ctx context.Context, tx *sqldb.Tx, runs []lostRun) (swept store.Swept, err error) {
	var endings []Ending
	for _, run := range runs {
		switch {
		case run.open > 0:
			endings = append(endings, interruptedEnding(run.Run, nil))
		case run.losses+1 >= store.MaxLosses:
			endings = append(endings, Ending{
				Run: run.Run, Status: store.RunFailed, Code: runerror.RunnerLost,
				Error: "its runner was lost again and again; the agent may need more memory than runners have",
			})
		default:
			if err := requeue(ctx, tx, run.Run, `losses = losses + 1`); err != nil {
				return swept, err
			}
			swept.GivenBack++
		}
	}
	swept.Failed = len(endings)
	_, err = s.EndRuns(ctx, tx, endings)
	return swept, err
}

// sweepLate resumes suspended runs that timed out.
func (s *Store) sweepLate(ctx context.Context, limit int) (store.Swept, error) {
	return sweep.RunsByKey(s.db, &s.late, `r.status = 'awaiting_approval' AND r.wake_at <= now_us()`, `r.wake_at, r.project_id, r.id`,
		func(ctx context.Context, tx *sqldb.Tx, runs []store.Key) (store.Swept, error) {
			for _, run := range runs {
				if err := s.resumeInline(ctx, tx, run, store.JournalEntry{Kind: store.JournalExpired}); err != nil {
					return store.Swept{}, err
				}
			}
			return store.Swept{Resumed: len(runs)}, nil
		}).Sweep(ctx, limit)
}

// sweepOrphans cancels queued runs of deleted environments. The walk is joined in the written
// order, which SQLite keeps for a cross join only.
func (s *Store) sweepOrphans(ctx context.Context, limit int) (swept store.Swept, err error) {
	gone, err := sqldb.Collect(ctx, s.db.Reader(), sqldb.ScanKey, `WITH RECURSIVE `+runqueue.WalkQueues(s.db.Address, runqueue.InAllProjects)+`
		SELECT DISTINCT r.project_id, r.environment_id FROM q CROSS JOIN open_runs r WHERE r.`+s.db.Address+` = q.address AND NOT EXISTS
		(SELECT 1 FROM environments e WHERE e.project_id = r.project_id AND e.id = r.environment_id)`)
	if err != nil {
		return swept, err
	}
	var failed []error
	for _, environment := range gone {
		if swept.Cancelled >= limit || ctx.Err() != nil {
			break
		}
		some, err := s.sweepOrphansOf(ctx, environment, limit-swept.Cancelled)
		swept = swept.Plus(some)
		failed = append(failed, err)
	}
	return swept, sweep.JoinSetAside(failed...)
}

// sweepOrphansOf cancels the runs of one environment.
func (s *Store) sweepOrphansOf(ctx context.Context, environment store.Key, limit int) (swept store.Swept, err error) {
	var failed []error
	// Blocked runs first, so that no key is handed over.
	for _, which := range []struct{ where, order string }{{`r.blocked`, ``}, {`r.blocked = FALSE`, `r.class, r.agent_name, r.fresh, r.id`}} {
		if swept.Cancelled >= limit || ctx.Err() != nil {
			break
		}
		some, err := sweep.RunsByKey(s.db, &s.orphans, `NOT EXISTS (SELECT 1 FROM environments e WHERE e.project_id = $2 AND e.id = $3)
				AND r.project_id = $2 AND r.environment_id = $3 AND r.status = 'queued' AND `+which.where, which.order,
			func(ctx context.Context, tx *sqldb.Tx, runs []store.Key) (store.Swept, error) {
				return store.Swept{Cancelled: len(runs)}, s.cancelDeleted(ctx, tx, runs)
			}, environment.ProjectID, environment.ID).Sweep(ctx, limit-swept.Cancelled)
		swept = swept.Plus(some)
		failed = append(failed, err)
	}
	return swept, sweep.JoinSetAside(failed...)
}

// cancelDeleted cancels runs of deleted environments.
func (s *Store) cancelDeleted(ctx context.Context, tx *sqldb.Tx, runs []store.Key) error {
	endings := make([]Ending, len(runs))
	for i, run := range runs {
		endings[i] = Ending{Run: run, Status: store.RunCancelled, Code: runerror.EnvironmentDeleted, Error: "the environment was deleted"}
	}
	_, err := s.EndRuns(ctx, tx, endings)
	return err
}

// CancelOpen cancels the running, suspended and queued runs of an environment, as many as fit into
// one transaction. The sweep cancels the rest, which no runner can claim.
func (s *Store) CancelOpen(ctx context.Context, tx *sqldb.Tx, environment store.Key) error {
	for _, of := range []struct {
		status, order string // as in its index
		limit         int
	}{
		{`'queued' AND blocked`, `agent_name, concurrency_key, id`, sqldb.MaxIDs}, // first, so that no key is handed over
		{`'running'`, `environment_id, id`, store.MaxCandidates},                  // as many as slots
		{`'awaiting_approval'`, `wake_at`, store.MaxCandidates},
		{`'queued' AND blocked = FALSE`, `class, agent_name, fresh, id`, sqldb.MaxIDs},
	} {
		ids, err := sqldb.Collect(ctx, tx, sqldb.ScanUUID, `SELECT id FROM open_runs WHERE project_id = $1 AND environment_id = $2
			AND status = `+of.status+` ORDER BY `+of.order+` LIMIT $3 `+s.db.Exclusive, environment.ProjectID, environment.ID, of.limit)
		if err != nil {
			return sqldb.Wrap(err, "finding open runs")
		}
		for part := range slices.Chunk(ids, sqldb.MaxIDs) {
			if err := s.cancelDeleted(ctx, tx, sqldb.KeysFromIDs(environment.ProjectID, part)); err != nil {
				return err
			}
		}
	}
	return nil
}
