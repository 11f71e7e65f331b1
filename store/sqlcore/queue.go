// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// Statements of QueueFigures. The first has a row for each environment with queued
// runs; their indexes hold open runs alone, so both cost what is open.
const (
	QueueStatement = `WITH RECURSIVE ` + queuedEnvironments + `
		SELECT EXISTS (SELECT 1 FROM environments e
				WHERE e.project_id = q.project_id AND e.id = q.environment_id AND e.live_deployment_id IS NOT NULL),
			EXISTS (SELECT 1 FROM runners w
				WHERE w.project_id = q.project_id AND w.environment_id = q.environment_id AND w.seen_at > now_us() - $1),
			(SELECT count(*) FROM (SELECT 1 AS one FROM agent_runs r WHERE r.status = 'queued'
				AND r.project_id = q.project_id AND r.environment_id = q.environment_id LIMIT $2) counted),
			COALESCE((SELECT now_us() - r.queued_at FROM agent_runs r WHERE r.status = 'queued'
				AND r.project_id = q.project_id AND r.environment_id = q.environment_id ORDER BY r.id LIMIT 1), 0)
		FROM q WHERE q.environment_id IS NOT NULL`
	RunningStatement = `SELECT count(*) FROM agent_runs r WHERE r.status = 'running'`
)

// QueueFigures implements store.Queue. It walks the index of queued runs from one
// environment to the next; the first run of each is its oldest, for ids are
// ordered by time.
func (c *Core) QueueFigures(ctx context.Context) (store.QueueFigures, error) {
	figures := store.QueueFigures{Queued: map[store.QueueState]store.QueueDepth{}}
	for _, state := range store.QueueStates {
		figures.Queued[state] = store.QueueDepth{}
	}
	_, err := collect(ctx, c.engine.Reader(), func(row scanner) (none struct{}, err error) {
		var (
			live, present bool
			runs          int64
			oldest        int64
		)
		if err := row.Scan(&live, &present, &runs, &oldest); err != nil || runs == 0 {
			return none, err // claimed in between
		}
		state := queueState(live, present)
		depth := figures.Queued[state]
		depth.Runs += runs
		depth.Oldest = max(depth.Oldest, time.Duration(oldest)*time.Microsecond)
		figures.Queued[state] = depth
		return none, nil
	}, QueueStatement, store.RunnerPresence.Microseconds(), store.MaxQueueCount)
	if err != nil {
		return figures, wrap(err, "measuring the queue")
	}
	err = c.engine.Reader().QueryRowContext(ctx, RunningStatement).Scan(&figures.Running)
	return figures, wrap(err, "counting the runs that are under way")
}

func queueState(live, runner bool) store.QueueState {
	switch {
	case !live:
		return store.QueueNoDeployment
	case !runner:
		return store.QueueNoRunner
	}
	return store.QueueClaimable
}
