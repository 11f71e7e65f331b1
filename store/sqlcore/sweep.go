// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

const (
	// looseAge is how old a blob is that nothing keeps when it goes.
	looseAge = 24 * time.Hour
	// runnerAge is how long a runner is remembered that is not seen.
	runnerAge = time.Hour
)

// SweepLeases implements store.Housekeeping. What runs or waits is little, so both
// statements look at all of it.
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
		c.asides.turn(of.name)
		some, err := of.do(ctx, limit)
		swept = swept.Plus(some)
		failed = append(failed, wrap(err, of.what))
	}
	return swept, joinAsides(failed...)
}

// What open runs are set aside for.
const (
	lostRuns = "lost"
	lateRuns = "late"
	orphans  = "orphans"
	tooOld   = "expired"
)

// lostRun is a run whose claim expired.
type lostRun struct {
	store.Lease
	open, losses int64
}

func scanLost(row scanner) (r lostRun, err error) {
	err = row.Scan(&r.Run.ProjectID, &r.Run.ID, &r.Token, &r.open, &r.losses)
	return r, err
}

// sweepLost ends claims that expired. Those whose tool was in flight fail, and those
// that were lost too often.
func (c *Core) sweepLost(ctx context.Context, limit int) (store.Swept, error) {
	return openSweep[lostRun]{
		Core: c, name: lostRuns, columns: `r.project_id, r.id, r.token, r.open_tools, r.losses`, table: `open_runs`,
		where: `r.status = 'running' AND r.lease_until <= now_us()`, order: `r.lease_until, r.project_id, r.id`,
		scan: scanLost, key: func(run lostRun) store.Key { return run.Run }, move: c.endLost,
	}.sweep(ctx, limit)
}

// endLost ends the claims on runs.
func (c *Core) endLost(ctx context.Context, tx *Tx, runs []lostRun) (swept store.Swept, err error) {
	var endings []Ending
	for _, run := range runs {
		switch {
		case run.open > 0:
			endings = append(endings, interrupted(run.Run, nil))
		case run.losses+1 >= store.MaxLosses:
			endings = append(endings, Ending{
				Run: run.Run, Status: store.RunFailed, Code: store.RunErrorRunnerLost,
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
	_, err = c.end(ctx, tx, endings)
	return swept, err
}

// sweepLate resumes suspended runs whose time is over.
func (c *Core) sweepLate(ctx context.Context, limit int) (store.Swept, error) {
	return c.keysOnly(lateRuns, `r.status = 'awaiting_approval' AND r.wake_at <= now_us()`, `r.wake_at, r.project_id, r.id`,
		func(ctx context.Context, tx *Tx, runs []store.Key) (store.Swept, error) {
			for _, run := range runs {
				if err := c.resume(ctx, tx, run, store.JournalEntry{Kind: store.JournalExpired}); err != nil {
					return store.Swept{}, err
				}
			}
			return store.Swept{Resumed: len(runs)}, nil
		}).sweep(ctx, limit)
}

// sweepOrphans cancels queued runs of environments that are gone. The walk is joined in
// the order in which it is written, which SQLite keeps for a cross join alone.
func (c *Core) sweepOrphans(ctx context.Context, limit int) (swept store.Swept, err error) {
	gone, err := collect(ctx, c.engine.Reader(), scanKey, `WITH RECURSIVE `+QueuedLines(c.address, QueuedAnywhere)+`
		SELECT DISTINCT r.project_id, r.environment_id FROM q CROSS JOIN open_runs r WHERE r.`+c.address+` = q.address AND NOT EXISTS
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
	return swept, joinAsides(failed...)
}

// sweepOrphansOf cancels those of one environment.
func (c *Core) sweepOrphansOf(ctx context.Context, environment store.Key, limit int) (swept store.Swept, err error) {
	var failed []error
	// The blocked first: then nobody is handed a key.
	for _, which := range []struct{ where, order string }{{`r.blocked`, ``}, {`r.blocked = FALSE`, `r.class, r.agent_name, r.fresh, r.id`}} {
		if swept.Cancelled >= limit || ctx.Err() != nil {
			break
		}
		some, err := c.keysOnly(orphans, `NOT EXISTS (SELECT 1 FROM environments e WHERE e.project_id = $2 AND e.id = $3)
				AND r.project_id = $2 AND r.environment_id = $3 AND r.status = 'queued' AND `+which.where, which.order,
			func(ctx context.Context, tx *Tx, runs []store.Key) (store.Swept, error) {
				return store.Swept{Cancelled: len(runs)}, c.cancelGone(ctx, tx, runs)
			}, environment.ProjectID, environment.ID).sweep(ctx, limit-swept.Cancelled)
		swept = swept.Plus(some)
		failed = append(failed, err)
	}
	return swept, joinAsides(failed...)
}

// cancelGone cancels runs of environments that are gone.
func (c *Core) cancelGone(ctx context.Context, tx *Tx, runs []store.Key) error {
	endings := make([]Ending, len(runs))
	for i, run := range runs {
		endings[i] = Ending{Run: run, Status: store.RunCancelled, Code: store.RunErrorEnvironmentGone, Error: "the environment was deleted"}
	}
	_, err := c.end(ctx, tx, endings)
	return err
}

// cancelOpen cancels the runs of an environment that run, wait or are queued, as many
// as fit into one transaction: the sweep cancels the rest, of which no runner claims any.
func (c *Core) cancelOpen(ctx context.Context, tx *Tx, environment store.Key) error {
	for _, of := range []struct {
		status, order string // as in its index
		limit         int
	}{
		{`'queued' AND blocked`, `agent_name, concurrency_key, id`, chunk}, // first: then nobody is handed a key
		{`'running'`, `environment_id, id`, store.MaxCandidates},           // as many as places
		{`'awaiting_approval'`, `wake_at`, store.MaxCandidates},
		{`'queued' AND blocked = FALSE`, `class, agent_name, fresh, id`, chunk},
	} {
		ids, err := collect(ctx, tx, scanID, `SELECT id FROM open_runs WHERE project_id = $1 AND environment_id = $2
			AND status = `+of.status+` ORDER BY `+of.order+` LIMIT $3 `+c.exclusive, environment.ProjectID, environment.ID, of.limit)
		if err != nil {
			return wrap(err, "finding open runs")
		}
		for part := range slices.Chunk(ids, chunk) {
			if err := c.cancelGone(ctx, tx, keysOf(environment.ProjectID, part)); err != nil {
				return err
			}
		}
	}
	return nil
}

func keysOf(project uuid.UUID, ids []uuid.UUID) []store.Key {
	keys := make([]store.Key, len(ids))
	for i, id := range ids {
		keys[i] = store.Key{ProjectID: project, ID: id}
	}
	return keys
}

// SweepExpired implements store.Housekeeping. Each kind has transactions of its own:
// they are short, for a request may wait for a key that one deletes.
func (c *Core) SweepExpired(ctx context.Context, limit int) (total int, err error) {
	var failed []error
	for _, sweep := range []struct {
		what string
		do   func(ctx context.Context, tx *Tx) (int64, error)
	}{
		{"idempotency keys", func(ctx context.Context, tx *Tx) (int64, error) {
			return tx.exec(ctx, `DELETE FROM idempotency_keys WHERE (project_id, connector_id, key) IN
				(SELECT project_id, connector_id, key FROM idempotency_keys
					WHERE expires_at <= now_us() ORDER BY expires_at LIMIT $1 `+c.skipLocked+`)`, min(limit, chunk))
		}},
		{"runners", func(ctx context.Context, tx *Tx) (int64, error) {
			return tx.exec(ctx, `DELETE FROM runners WHERE (project_id, environment_id, id) IN
				(SELECT project_id, environment_id, id FROM runners WHERE seen_at < now_us() - $1 LIMIT $2)`,
				runnerAge.Microseconds(), min(limit, chunk))
		}},
		{"rejections", func(ctx context.Context, tx *Tx) (int64, error) {
			return tx.exec(ctx, `DELETE FROM rejections WHERE (project_id, connector_id) IN
				(SELECT project_id, connector_id FROM rejections
					WHERE last_at < now_us() - $1 ORDER BY last_at LIMIT $2 `+c.skipLocked+`)`,
				(store.RejectionDays * day).Microseconds(), min(limit, chunk))
		}},
		{"replays", func(ctx context.Context, tx *Tx) (int64, error) {
			return tx.exec(ctx, `DELETE FROM replays WHERE (project_id, id) IN
				(SELECT project_id, id FROM replays
					WHERE ended_at < now_us() - $1 ORDER BY ended_at LIMIT $2 `+c.skipLocked+`)`,
				store.ReplayAge.Microseconds(), min(limit, chunk))
		}},
		{"uploads", func(ctx context.Context, tx *Tx) (int64, error) {
			return c.dropUploads(ctx, tx, min(limit, chunk))
		}},
		{"bundles", func(ctx context.Context, tx *Tx) (int64, error) {
			return c.dropBundles(ctx, tx, min(limit, chunk))
		}},
		{"blobs that nothing keeps", func(ctx context.Context, tx *Tx) (int64, error) {
			loose, err := collect(ctx, tx, scanSized, `SELECT project_id, id, size FROM blobs
				WHERE mark = '' AND created_at < now_us() - $1 ORDER BY created_at LIMIT $2 `+c.skipLocked,
				looseAge.Microseconds(), min(limit, chunk))
			if err != nil {
				return 0, err
			}
			return int64(len(loose)), c.dropBlobs(ctx, tx, someOf(loose))
		}},
	} {
		var n int64
		if err := c.Write(ctx, func(ctx context.Context, tx *Tx) (err error) {
			n, err = sweep.do(ctx, tx)
			return err
		}); err != nil {
			failed = append(failed, wrap(err, "deleting %s", sweep.what))
			continue
		}
		total += int(n)
	}
	return total, errors.Join(failed...)
}

// Now implements store.Housekeeping.
func (c *Core) Now(ctx context.Context) (time.Time, error) {
	var us int64
	err := c.engine.Reader().QueryRowContext(ctx, `SELECT now_us()`).Scan(&us)
	return time.UnixMicro(us), wrap(err, "reading the store's clock")
}

// storage is the consumer of the outbox that counts stored bytes.
const storage = "storage"

// CountStored implements store.Housekeeping.
func (c *Core) CountStored(ctx context.Context, limit int) (n int, err error) {
	var waits bool
	err = c.engine.Reader().QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM outbox WHERE consumer = '`+storage+`')`).Scan(&waits)
	if err != nil || !waits {
		return 0, wrap(err, "looking for what is stored and not counted")
	}
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		bytes := map[projectDay]int64{}
		n = 0
		_, err := collect(ctx, tx, func(row scanner) (none struct{}, err error) {
			var (
				of   store.Key
				more int64
			)
			err = row.Scan(&of.ProjectID, &of.ID, &more)
			bytes[projectDay{of.ProjectID, DayOf(of.ID)}] += more
			n++
			return none, err
		}, `DELETE FROM outbox WHERE (project_id, consumer, ended_id) IN (SELECT project_id, consumer, ended_id FROM outbox
			WHERE consumer = '`+storage+`' ORDER BY posted_at LIMIT $1 `+c.skipLocked+`) RETURNING project_id, ended_id, bytes`, limit)
		if err != nil {
			return err
		}
		return addStoredOn(ctx, tx, bytes)
	})
	if err != nil {
		return 0, wrap(err, "counting what is stored") // nothing was counted
	}
	return n, nil
}
