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

// What comes after an environment q in the index of queued runs: the next one of
// its project, else the first one of the next project.
const (
	nextEnvironment = ` FROM agent_runs r WHERE r.status = 'queued' AND r.project_id = q.project_id
		AND r.environment_id > q.environment_id ORDER BY r.environment_id LIMIT 1`
	nextProject = ` FROM agent_runs r WHERE r.status = 'queued' AND r.project_id > q.project_id
		ORDER BY r.project_id, r.environment_id LIMIT 1`
)

// queuedEnvironments walks the index of queued runs from one environment to the
// next, so that it costs what there are environments, not runs. The last row of q
// is empty.
const queuedEnvironments = `q (project_id, environment_id) AS (
		SELECT * FROM (SELECT r.project_id, r.environment_id FROM agent_runs r WHERE r.status = 'queued'
			ORDER BY r.project_id, r.environment_id LIMIT 1) first
		UNION ALL
		SELECT COALESCE((SELECT r.project_id` + nextEnvironment + `), (SELECT r.project_id` + nextProject + `)),
			COALESCE((SELECT r.environment_id` + nextEnvironment + `), (SELECT r.environment_id` + nextProject + `))
		FROM q WHERE q.environment_id IS NOT NULL
	) `

// SweepLeases implements store.Housekeeping.
func (c *Core) SweepLeases(ctx context.Context, limit int) (swept store.Swept, err error) {
	n, err := c.sweepRuns(ctx, limit,
		`SELECT project_id, id FROM agent_runs WHERE status = 'running' AND lease_until <= now_us()
			ORDER BY lease_until, project_id, id LIMIT $1 `,
		func(ctx context.Context, tx *Tx, runs []store.Key) error {
			ended, failed, err := giveBack(ctx, tx, store.MaxAttempts, runs, `lease_until <= now_us()`)
			swept = store.Swept{GivenBack: ended - failed, Failed: failed}
			return err
		})
	switch {
	case err != nil:
		return store.Swept{}, wrap(err, "sweeping leases")
	case n == 0:
		swept = store.Swept{} // what a transaction did that was rolled back
	}
	swept.Cancelled, err = c.sweepOrphans(ctx, limit)
	return swept, wrap(err, "sweeping runs of environments that are gone")
}

// sweepRuns picks runs and moves them in one transaction; it opens none when
// there is nothing to pick.
func (c *Core) sweepRuns(ctx context.Context, limit int, pick string,
	move func(ctx context.Context, tx *Tx, runs []store.Key) error, args ...any,
) (n int, err error) {
	args = append([]any{limit}, args...)
	if runs, err := collect(ctx, c.engine.Reader(), scanKey, pick, args...); err != nil || len(runs) == 0 {
		return 0, err
	}
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		runs, err := collect(ctx, tx, scanKey, pick+c.skipLocked, args...)
		if n = len(runs); err != nil || n == 0 {
			return err
		}
		return move(ctx, tx, runs)
	})
	return n, err
}

func (c *Core) sweepOrphans(ctx context.Context, limit int) (n int, err error) {
	gone, err := collect(ctx, c.engine.Reader(), scanKey, `WITH RECURSIVE `+queuedEnvironments+`
		SELECT q.project_id, q.environment_id FROM q WHERE q.environment_id IS NOT NULL AND NOT EXISTS
		(SELECT 1 FROM environments e WHERE e.project_id = q.project_id AND e.id = q.environment_id)`)
	for _, environment := range gone {
		if err != nil || n >= limit {
			break
		}
		var swept int
		swept, err = c.sweepRuns(ctx, limit-n, `SELECT r.project_id, r.id FROM agent_runs r
			WHERE r.status = 'queued' AND r.project_id = $2 AND r.environment_id = $3
				AND NOT EXISTS (SELECT 1 FROM environments e WHERE e.project_id = r.project_id AND e.id = r.environment_id)
			ORDER BY r.id LIMIT $1 `,
			func(ctx context.Context, tx *Tx, runs []store.Key) error {
				l := list{args: []any{environment.ProjectID}}
				condition := l.keys("id", runs)
				return cancelRuns(ctx, tx, environment.ProjectID, `status = 'queued' AND `+condition, l.args[1:]...)
			}, environment.ProjectID, environment.ID)
		n += swept
	}
	return n, err
}

// SweepExpired implements store.Housekeeping.
func (c *Core) SweepExpired(ctx context.Context, limit int) (int, error) {
	var total int
	err := c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		keys, err := tx.exec(ctx, `DELETE FROM idempotency_keys WHERE (project_id, connector_id, key) IN
			(SELECT project_id, connector_id, key FROM idempotency_keys
				WHERE expires_at <= now_us() ORDER BY expires_at LIMIT $1)`, limit)
		if err != nil {
			return wrap(err, "deleting idempotency keys")
		}
		runners, err := tx.exec(ctx, `DELETE FROM runners WHERE seen_at < now_us() - $1`, runnerAge.Microseconds())
		if err != nil {
			return wrap(err, "deleting runners")
		}
		orphans, err := collect(ctx, tx, scanKey, `SELECT b.project_id, b.id FROM blobs b WHERE b.created_at < now_us() - $1
			AND NOT EXISTS (SELECT 1 FROM connector_runs c WHERE c.project_id = b.project_id AND c.input_blob = b.id)
			AND NOT EXISTS (SELECT 1 FROM bundles u WHERE u.project_id = b.project_id AND u.blob_id = b.id) ORDER BY b.created_at LIMIT $2`,
			orphanAge.Microseconds(), min(limit, chunk))
		if err != nil {
			return wrap(err, "finding blobs that nothing refers to")
		}
		total = int(keys) + int(runners) + len(orphans)
		return dropBlobs(ctx, tx, orphans)
	})
	return total, wrap(err, "sweeping what has expired")
}
