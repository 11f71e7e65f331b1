// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// RunningStatement counts the runs that runners hold.
const RunningStatement = `SELECT count(*) FROM open_runs r WHERE r.status = 'running'`

// QueueStatement has a row for each agent and class with queued runs; what it counts
// is open alone.
func QueueStatement(address string) string {
	return `WITH RECURSIVE ` + QueuedLines(address, QueuedAnywhere) + `
		SELECT EXISTS (SELECT 1 FROM environments e
				WHERE e.project_id = r.project_id AND e.id = r.environment_id AND e.live_deployment_id IS NOT NULL),
			EXISTS (SELECT 1 FROM runners w
				WHERE w.project_id = r.project_id AND w.environment_id = r.environment_id AND w.seen_at > now_us() - $1),
			r.class,
			(SELECT count(*) FROM (SELECT 1 AS one FROM open_runs n WHERE n.status = 'queued' AND NOT n.blocked AND n.project_id = r.project_id
				AND n.environment_id = r.environment_id AND n.class = r.class AND n.agent_name = r.agent_name LIMIT $2) counted),
			now_us() - r.queued_at,
			COALESCE((SELECT now_us() - n.queued_at FROM open_runs n WHERE n.status = 'queued' AND NOT n.blocked AND n.project_id = r.project_id
				AND n.environment_id = r.environment_id AND n.class = r.class AND n.agent_name = r.agent_name AND n.fresh
				ORDER BY n.id LIMIT 1), 0)
		FROM q JOIN open_runs r ON r.` + address + ` = q.address`
}

// QueueFigures implements store.Queue. The first run of an agent and class is its
// oldest, for ids are ordered by time, but for one that was handed back.
func (c *Core) QueueFigures(ctx context.Context) (store.QueueFigures, error) {
	figures := store.QueueFigures{Queued: map[store.QueueState]map[store.Class]store.QueueDepth{}}
	for _, state := range store.QueueStates {
		figures.Queued[state] = map[store.Class]store.QueueDepth{}
		for class := range store.Class(store.Classes) {
			figures.Queued[state][class] = store.QueueDepth{}
		}
	}
	_, err := collect(ctx, c.engine.Reader(), func(row scanner) (none struct{}, err error) {
		var (
			live, present bool
			class         store.Class
			runs          int64
			head, fresh   int64
		)
		if err := row.Scan(&live, &present, &class, &runs, &head, &fresh); err != nil {
			return none, err
		}
		state := queueState(live, present)
		depth := figures.Queued[state][class]
		depth.Runs += runs
		depth.Oldest = max(depth.Oldest, time.Duration(max(head, fresh))*time.Microsecond)
		figures.Queued[state][class] = depth
		return none, nil
	}, QueueStatement(c.address), store.RunnerPresence.Microseconds(), store.MaxQueueCount)
	if err != nil {
		return figures, wrap(err, "measuring the queue")
	}
	err = c.engine.Reader().QueryRowContext(ctx, RunningStatement).Scan(&figures.Running)
	if err == nil {
		err = c.engine.Reader().QueryRowContext(ctx, OutboxStatement).Scan(durationOf(&figures.OutboxAge))
	}
	return figures, wrap(err, "counting the runs that are under way")
}

// OutboxStatement is the age of the oldest row that a consumer has not taken.
const OutboxStatement = `SELECT COALESCE(now_us() - (SELECT o.posted_at FROM outbox o
	WHERE o.consumer = '` + storage + `' ORDER BY o.posted_at LIMIT 1), 0)`

func queueState(live, runner bool) store.QueueState {
	switch {
	case !live:
		return store.QueueNoDeployment
	case !runner:
		return store.QueueNoRunner
	}
	return store.QueueClaimable
}
