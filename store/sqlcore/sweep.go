// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

const (
	// orphanAge is how old a blob is that nothing refers to when it goes.
	orphanAge = 24 * time.Hour
	// runnerAge is how long a runner is remembered that is not seen.
	runnerAge = time.Hour
)

// queuedEnvironments walks the index of queued runs from one environment to the
// next, so that it costs what there are environments, not runs.
const queuedEnvironments = `WITH RECURSIVE q (environment_id) AS (
		SELECT * FROM (SELECT environment_id FROM agent_runs WHERE status = 'queued' ORDER BY environment_id LIMIT 1) first
		UNION ALL
		SELECT (SELECT r.environment_id FROM agent_runs r WHERE r.status = 'queued' AND r.environment_id > q.environment_id
			ORDER BY r.environment_id LIMIT 1) FROM q WHERE q.environment_id IS NOT NULL
	) SELECT environment_id FROM q WHERE environment_id IS NOT NULL `

// SweepLeases implements store.Housekeeping.
func (c *Core) SweepLeases(ctx context.Context, limit int) (int, error) {
	expired, err := c.sweepRuns(ctx, limit,
		`SELECT id FROM agent_runs WHERE status = 'running' AND lease_until <= now_us() ORDER BY id LIMIT $1 `,
		func(ctx context.Context, tx *Tx, in string, ids []any) error {
			_, err := giveBack(ctx, tx, store.MaxAttempts, `lease_until <= now_us() AND id IN `+in, ids...)
			return err
		})
	if err != nil {
		return expired, wrap(err, "sweeping leases")
	}
	orphans, err := c.sweepOrphans(ctx, limit)
	return expired + orphans, wrap(err, "sweeping runs of environments that are gone")
}

// sweepRuns picks runs and moves them in one transaction; it opens none when
// there is nothing to pick.
func (c *Core) sweepRuns(ctx context.Context, limit int, pick string,
	move func(ctx context.Context, tx *Tx, in string, ids []any) error, args ...any,
) (n int, err error) {
	args = append([]any{limit}, args...)
	if ids, err := collect(ctx, c.engine.Reader(), scanID, pick, args...); err != nil || len(ids) == 0 {
		return 0, err
	}
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		ids, err := collect(ctx, tx, scanID, pick+c.skipLocked, args...)
		if n = len(ids); err != nil || n == 0 {
			return err
		}
		var l list
		in := l.ids(ids)
		return move(ctx, tx, in, l.args)
	})
	return n, err
}

func (c *Core) sweepOrphans(ctx context.Context, limit int) (n int, err error) {
	gone, err := collect(ctx, c.engine.Reader(), scanID,
		queuedEnvironments+`AND NOT EXISTS (SELECT 1 FROM environments e WHERE e.id = q.environment_id)`)
	for _, environment := range gone {
		if err != nil || n >= limit {
			break
		}
		var swept int
		swept, err = c.sweepRuns(ctx, limit-n, `SELECT r.id FROM agent_runs r
			WHERE r.status = 'queued' AND r.environment_id = $2
				AND NOT EXISTS (SELECT 1 FROM environments e WHERE e.id = r.environment_id)
			ORDER BY r.id LIMIT $1 `,
			func(ctx context.Context, tx *Tx, in string, ids []any) error {
				return cancelRuns(ctx, tx, `status = 'queued' AND id IN `+in, ids...)
			}, environment)
		n += swept
	}
	return n, err
}

// SweepExpired implements store.Housekeeping.
func (c *Core) SweepExpired(ctx context.Context, limit int) (int, error) {
	var total int
	err := c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		keys, err := tx.exec(ctx, `DELETE FROM idempotency_keys WHERE (connector_id, key) IN
			(SELECT connector_id, key FROM idempotency_keys WHERE expires_at <= now_us() ORDER BY expires_at LIMIT $1)`, limit)
		if err != nil {
			return wrap(err, "deleting idempotency keys")
		}
		runners, err := tx.exec(ctx, `DELETE FROM runners WHERE seen_at < now_us() - $1`, runnerAge.Microseconds())
		if err != nil {
			return wrap(err, "deleting runners")
		}
		orphans, err := collect(ctx, tx, scanID, `SELECT b.id FROM blobs b WHERE b.created_at < now_us() - $1
			AND NOT EXISTS (SELECT 1 FROM connector_runs c WHERE c.input_blob = b.id)
			AND NOT EXISTS (SELECT 1 FROM bundles u WHERE u.blob_id = b.id) ORDER BY b.created_at LIMIT $2`,
			orphanAge.Microseconds(), min(limit, chunk))
		if err != nil {
			return wrap(err, "finding blobs that nothing refers to")
		}
		total = int(keys) + int(runners) + len(orphans)
		return dropBlobs(ctx, tx, orphans)
	})
	return total, wrap(err, "sweeping what has expired")
}
