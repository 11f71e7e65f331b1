// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"slices"
	"time"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/runqueue"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storedbytes"
	"github.com/agentplatform/agentplatform/store/sweep"
)

const (
	// unmarkedBlobAge is the age at which an unmarked blob is deleted.
	unmarkedBlobAge = 24 * time.Hour
	// runnerAge is how long an absent runner is remembered.
	runnerAge = time.Hour
)

// SweepLeases implements store.Housekeeping. Running and suspended runs are few, so both statements
// read all of them.
func (c *Core) SweepLeases(ctx context.Context, limit int) (swept store.Swept, err error) {
	var failed []error
	for _, of := range []struct {
		name, what string
		do         func(ctx context.Context, limit int) (store.Swept, error)
	}{
		{lostRuns, "sweeping leases", c.sweepLost},
		{lateRuns, "sweeping runs that waited too long", c.sweepLate},
		{orphans, "sweeping runs of environments that are gone", c.sweepOrphans},
	} {
		c.skipped.BeginCall(of.name)
		some, err := of.do(ctx, limit)
		swept = swept.Plus(some)
		failed = append(failed, sqldb.Wrap(err, of.what))
	}
	return swept, sweep.JoinSetAside(failed...)
}

// Operations that skip open runs.
const (
	lostRuns = "lost"
	lateRuns = "late"
	orphans  = "orphans"
	tooOld   = "expired"
)

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
func (c *Core) sweepLost(ctx context.Context, limit int) (store.Swept, error) {
	return sweep.OpenRows[lostRun]{
		DB: c.DB, Skipped: c.skipped, Name: lostRuns, Columns: `r.project_id, r.id, r.token, r.open_tools, r.losses`, Table: `open_runs`,
		Where: `r.status = 'running' AND r.lease_until <= now_us()`, Order: `r.lease_until, r.project_id, r.id`,
		Scan: scanLost, Key: func(run lostRun) store.Key { return run.Run }, Move: c.endLost,
	}.Sweep(ctx, limit)
}

// endLost ends the claims on runs.
func (c *Core) endLost(ctx context.Context, tx *sqldb.Tx, runs []lostRun) (swept store.Swept, err error) {
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
	_, err = c.endRuns(ctx, tx, endings)
	return swept, err
}

// sweepLate resumes suspended runs that timed out.
func (c *Core) sweepLate(ctx context.Context, limit int) (store.Swept, error) {
	return sweep.RunsByKey(c.DB, c.skipped, lateRuns, `r.status = 'awaiting_approval' AND r.wake_at <= now_us()`, `r.wake_at, r.project_id, r.id`,
		func(ctx context.Context, tx *sqldb.Tx, runs []store.Key) (store.Swept, error) {
			for _, run := range runs {
				if err := c.resumeInline(ctx, tx, run, store.JournalEntry{Kind: store.JournalExpired}); err != nil {
					return store.Swept{}, err
				}
			}
			return store.Swept{Resumed: len(runs)}, nil
		}).Sweep(ctx, limit)
}

// sweepOrphans cancels queued runs of deleted environments. The walk is joined in the written
// order, which SQLite keeps for a cross join only.
func (c *Core) sweepOrphans(ctx context.Context, limit int) (swept store.Swept, err error) {
	gone, err := sqldb.Collect(ctx, c.engine.Reader(), sqldb.ScanKey, `WITH RECURSIVE `+runqueue.WalkQueues(c.Address, runqueue.InAllProjects)+`
		SELECT DISTINCT r.project_id, r.environment_id FROM q CROSS JOIN open_runs r WHERE r.`+c.Address+` = q.address AND NOT EXISTS
		(SELECT 1 FROM environments e WHERE e.project_id = r.project_id AND e.id = r.environment_id)`)
	if err != nil {
		return swept, err
	}
	var failed []error
	for _, environment := range gone {
		if swept.Cancelled >= limit || ctx.Err() != nil {
			break
		}
		some, err := c.sweepOrphansOf(ctx, environment, limit-swept.Cancelled)
		swept = swept.Plus(some)
		failed = append(failed, err)
	}
	return swept, sweep.JoinSetAside(failed...)
}

// sweepOrphansOf cancels the runs of one environment.
func (c *Core) sweepOrphansOf(ctx context.Context, environment store.Key, limit int) (swept store.Swept, err error) {
	var failed []error
	// Blocked runs first, so that no key is handed over.
	for _, which := range []struct{ where, order string }{{`r.blocked`, ``}, {`r.blocked = FALSE`, `r.class, r.agent_name, r.fresh, r.id`}} {
		if swept.Cancelled >= limit || ctx.Err() != nil {
			break
		}
		some, err := sweep.RunsByKey(c.DB, c.skipped, orphans, `NOT EXISTS (SELECT 1 FROM environments e WHERE e.project_id = $2 AND e.id = $3)
				AND r.project_id = $2 AND r.environment_id = $3 AND r.status = 'queued' AND `+which.where, which.order,
			func(ctx context.Context, tx *sqldb.Tx, runs []store.Key) (store.Swept, error) {
				return store.Swept{Cancelled: len(runs)}, c.cancelDeleted(ctx, tx, runs)
			}, environment.ProjectID, environment.ID).Sweep(ctx, limit-swept.Cancelled)
		swept = swept.Plus(some)
		failed = append(failed, err)
	}
	return swept, sweep.JoinSetAside(failed...)
}

// cancelDeleted cancels runs of deleted environments.
func (c *Core) cancelDeleted(ctx context.Context, tx *sqldb.Tx, runs []store.Key) error {
	endings := make([]Ending, len(runs))
	for i, run := range runs {
		endings[i] = Ending{Run: run, Status: store.RunCancelled, Code: runerror.EnvironmentDeleted, Error: "the environment was deleted"}
	}
	_, err := c.endRuns(ctx, tx, endings)
	return err
}

// cancelOpen cancels the running, suspended and queued runs of an environment, as many as fit into
// one transaction. The sweep cancels the rest, which no runner can claim.
func (c *Core) cancelOpen(ctx context.Context, tx *sqldb.Tx, environment store.Key) error {
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
			AND status = `+of.status+` ORDER BY `+of.order+` LIMIT $3 `+c.Exclusive, environment.ProjectID, environment.ID, of.limit)
		if err != nil {
			return sqldb.Wrap(err, "finding open runs")
		}
		for part := range slices.Chunk(ids, sqldb.MaxIDs) {
			if err := c.cancelDeleted(ctx, tx, sqldb.KeysFromIDs(environment.ProjectID, part)); err != nil {
				return err
			}
		}
	}
	return nil
}

// SweepExpired implements store.Housekeeping. Each kind has its own short transactions, because a
// request may wait for a key that one of them deletes. A row that cannot be deleted blocks no other.
func (c *Core) SweepExpired(ctx context.Context, limit int) (total int, err error) {
	var failed []error
	for _, of := range c.expiredKinds() {
		of.DB, of.Skipped = c.DB, c.skipped
		n, err := of.Sweep(ctx, min(limit, sqldb.MaxIDs))
		total += n
		failed = append(failed, sqldb.Wrap(err, "deleting %s", of.What))
	}
	var absent int64
	err = c.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) (err error) {
		absent, err = tx.Exec(ctx, `DELETE FROM runners WHERE (project_id, environment_id, id) IN
			(SELECT project_id, environment_id, id FROM runners WHERE seen_at < now_us() - $1 LIMIT $2)`,
			runnerAge.Microseconds(), min(limit, sqldb.MaxIDs))
		return err
	})
	if err == nil {
		total += int(absent)
	}
	n, blobErr := c.sweepBlobs(ctx, looseBlobs, `r.mark = '' AND r.created_at < now_us() - $2`, limit, unmarkedBlobAge.Microseconds())
	failed = append(failed, sqldb.Wrap(err, "deleting runners"), sqldb.Wrap(blobErr, "deleting %s", looseBlobs))
	return total + n, sweep.JoinSetAside(failed...)
}

// expiredKinds are the kinds of rows that expire.
func (c *Core) expiredKinds() []sweep.Expired {
	return []sweep.Expired{
		{
			What: "idempotency keys", Table: "idempotency_keys", ID: "connector_run_id", Where: `r.expires_at <= now_us()`, Order: `r.expires_at`,
			Drop: func(ctx context.Context, tx *sqldb.Tx, narrow string, l sqldb.Args) (int64, error) {
				return tx.Exec(ctx, `DELETE FROM idempotency_keys WHERE (project_id, connector_id, key) IN
					(SELECT r.project_id, r.connector_id, r.key FROM idempotency_keys r
						WHERE r.expires_at <= now_us()`+narrow+` ORDER BY r.expires_at LIMIT $1 `+c.SkipLocked+`)`, l.Values...)
			},
		},
		{
			What: "rejections", Table: "rejections", ID: "connector_id", Where: `r.last_at < now_us() - $2`, Order: `r.last_at`,
			Args: []any{(store.RejectionDays * sqldb.Day).Microseconds()},
			Drop: func(ctx context.Context, tx *sqldb.Tx, narrow string, l sqldb.Args) (int64, error) {
				return tx.Exec(ctx, `DELETE FROM rejections WHERE (project_id, connector_id) IN
					(SELECT r.project_id, r.connector_id FROM rejections r
						WHERE r.last_at < now_us() - $2`+narrow+` ORDER BY r.last_at LIMIT $1 `+c.SkipLocked+`)`, l.Values...)
			},
		},
		{
			What: "replays", Table: "replays", ID: "id", Where: `r.ended_at < now_us() - $2`, Order: `r.ended_at`,
			Args: []any{store.ReplayAge.Microseconds()},
			Drop: func(ctx context.Context, tx *sqldb.Tx, narrow string, l sqldb.Args) (int64, error) {
				return tx.Exec(ctx, `DELETE FROM replays WHERE (project_id, id) IN
					(SELECT r.project_id, r.id FROM replays r
						WHERE r.ended_at < now_us() - $2`+narrow+` ORDER BY r.ended_at LIMIT $1 `+c.SkipLocked+`)`, l.Values...)
			},
		},
		{What: "uploads", Table: "uploads", ID: "blob_id", Where: `r.kept_until <= now_us()`, Order: `r.kept_until`, Drop: c.DropUploads},
		{What: "bundles", Table: "bundles", ID: "blob_id", Where: `r.kept_until <= now_us()`, Order: `r.kept_until`, Drop: c.DropBundles},
	}
}

// CountStored implements store.Housekeeping.
func (c *Core) CountStored(ctx context.Context, limit int) (n int, err error) {
	var waits bool
	err = c.engine.Reader().QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM outbox WHERE consumer = '`+storedbytes.Consumer+`')`).Scan(&waits)
	if err != nil || !waits {
		return 0, sqldb.Wrap(err, "reading uncounted rows")
	}
	err = c.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		bytes := map[sqldb.ProjectDay]int64{}
		n = 0
		_, err := sqldb.Collect(ctx, tx, func(row sqldb.Scanner) (none struct{}, err error) {
			var (
				of   store.Key
				more int64
			)
			err = row.Scan(&of.ProjectID, &of.ID, &more)
			bytes[sqldb.ProjectDay{Project: of.ProjectID, Day: sqldb.DayOf(of.ID)}] += more
			n++
			return none, err
		}, `DELETE FROM outbox WHERE (project_id, consumer, ended_id) IN (SELECT project_id, consumer, ended_id FROM outbox
			WHERE consumer = '`+storedbytes.Consumer+`' ORDER BY posted_at LIMIT $1 `+c.SkipLocked+`) RETURNING project_id, ended_id, bytes`, limit)
		if err != nil {
			return err
		}
		return storedbytes.AddByDay(ctx, tx, bytes)
	})
	if err != nil {
		return 0, sqldb.Wrap(err, "counting stored bytes") // nothing was counted
	}
	return n, nil
}
