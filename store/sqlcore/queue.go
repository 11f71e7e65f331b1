// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// RunningStatement counts the runs that runners hold.
const RunningStatement = `SELECT count(*) FROM open_runs r WHERE r.status = 'running'`

// QueueStatement has a row for each line of queued runs; what it counts is open alone.
// The first of a line is its oldest, for ids are ordered by time.
func QueueStatement(address string) string {
	return `WITH RECURSIVE ` + QueuedLines(address, QueuedAnywhere) + `
		SELECT EXISTS (SELECT 1 FROM environments e
				WHERE e.project_id = r.project_id AND e.id = r.environment_id AND e.live_deployment_id IS NOT NULL),
			EXISTS (SELECT 1 FROM runners w
				WHERE w.project_id = r.project_id AND w.environment_id = r.environment_id AND w.seen_at > now_us() - $1),
			r.class,
			(SELECT count(*) FROM (SELECT 1 AS one FROM open_runs n WHERE n.status = 'queued' AND n.blocked = FALSE AND n.project_id = r.project_id
				AND n.environment_id = r.environment_id AND n.class = r.class AND n.agent_name = r.agent_name AND n.fresh = r.fresh LIMIT $2) counted),
			now_us() - r.queued_at
		FROM q JOIN open_runs r ON r.` + address + ` = q.address`
}

// LinesStatement counts the lines of queued runs.
func LinesStatement(address string) string {
	return `WITH RECURSIVE ` + QueuedLines(address, QueuedAnywhere) + ` SELECT count(q.address) FROM q`
}

// countOf is how many runs of each line are counted where there are so many of these:
// however deep the queue is, counting it costs no more.
func countOf(lines int64) int64 {
	return max(min(store.MaxQueueCount, store.MaxQueueCounted/max(lines, 1)), 1)
}

// KeysStatement counts the concurrency keys that runs have and the runs that wait for
// one, by an index each and up to a limit.
var KeysStatement = `SELECT
	(SELECT count(*) FROM (SELECT 1 AS one FROM concurrency_slots s WHERE s.project_id >= '` + uuid.Nil.String() + `' LIMIT $1) held),
	(SELECT count(*) FROM (SELECT 1 AS one FROM open_runs b WHERE b.blocked AND b.project_id >= '` + uuid.Nil.String() + `' LIMIT $1) waiting)`

// QueueFigures implements store.Queue.
func (c *Core) QueueFigures(ctx context.Context) (store.QueueFigures, error) {
	figures := store.QueueFigures{Queued: map[store.QueueState]map[store.Class]store.QueueDepth{}}
	for _, state := range store.QueueStates {
		figures.Queued[state] = map[store.Class]store.QueueDepth{}
		for class := range store.Class(store.Classes) {
			figures.Queued[state][class] = store.QueueDepth{}
		}
	}
	var lines int64
	if err := c.engine.Reader().QueryRowContext(ctx, LinesStatement(c.address)).Scan(&lines); err != nil {
		return figures, wrap(err, "measuring the queue")
	}
	_, err := collect(ctx, c.engine.Reader(), func(row scanner) (none struct{}, err error) {
		var (
			live, present bool
			class         store.Class
			runs          int64
			oldest        int64
		)
		if err := row.Scan(&live, &present, &class, &runs, &oldest); err != nil {
			return none, err
		}
		state := queueState(live, present)
		depth := figures.Queued[state][class]
		depth.Runs += runs
		depth.Oldest = max(depth.Oldest, time.Duration(oldest)*time.Microsecond)
		figures.Queued[state][class] = depth
		return none, nil
	}, QueueStatement(c.address), store.RunnerPresence.Microseconds(), countOf(lines))
	if err != nil {
		return figures, wrap(err, "measuring the queue")
	}
	err = c.engine.Reader().QueryRowContext(ctx, RunningStatement).Scan(&figures.Running)
	if err == nil {
		err = c.engine.Reader().QueryRowContext(ctx, KeysStatement, store.MaxQueueCounted).Scan(&figures.KeysHeld, &figures.Blocked)
	}
	if err == nil {
		figures.OutboxAges, err = c.outboxAges(ctx)
	}
	if err == nil {
		err = c.engine.Reader().QueryRowContext(ctx, AsideStatement, store.MaxQueueCounted).Scan(&figures.OutboxAside)
	}
	if err == nil {
		err = c.engine.Reader().QueryRowContext(ctx, TickStatement).Scan(durationOf(&figures.TickAge))
	}
	return figures, wrap(err, "counting the runs that are under way")
}

// oldestPosted are the oldest rows that consumers may take: of each row the time when it was posted. Those
// of a consumer that has rows of two kinds are several.
var oldestPosted = map[store.OutboxConsumer][]string{
	store.ConsumerStorage:    {oldestOf(storage)},
	store.ConsumerDeliveries: {oldestOf(outbound), oldestOf(failures)},
	store.ConsumerRollups:    {oldestByProject("outbox_rollups")},
	store.ConsumerWords:      {oldestByProject("outbox_words")},
}

func oldestOf(consumer string) string {
	return `SELECT o.posted_at FROM outbox o WHERE o.consumer = '` + consumer + `' AND o.posted_at <= now_us() ORDER BY o.posted_at LIMIT 1`
}

// oldestByProject are the oldest rows of an outbox without an order of all projects' rows: of each project.
func oldestByProject(table string) string {
	next := `(SELECT o.project_id FROM ` + table + ` o WHERE o.posted_at <= now_us() AND o.project_id > `
	return `WITH RECURSIVE t (project_id) AS (
			SELECT ` + next + `'` + uuid.Nil.String() + `' ORDER BY o.project_id, o.posted_at LIMIT 1)
			UNION ALL
			SELECT ` + next + `t.project_id ORDER BY o.project_id, o.posted_at LIMIT 1) FROM t WHERE t.project_id IS NOT NULL)
		SELECT MIN((SELECT o.posted_at FROM ` + table + ` o WHERE o.project_id = t.project_id ORDER BY o.posted_at LIMIT 1)) AS posted_at
			FROM t WHERE t.project_id IS NOT NULL`
}

// OutboxStatement returns for each of store.OutboxConsumers the age of its oldest row, in microseconds.
var OutboxStatement = func() string {
	var ages []string
	for _, consumer := range store.OutboxConsumers {
		var first []string
		for _, statement := range oldestPosted[consumer] {
			first = append(first, `SELECT * FROM (`+statement+`) AS f`)
		}
		ages = append(ages, `COALESCE(now_us() - (SELECT MIN(f.posted_at) FROM (`+strings.Join(first, ` UNION ALL `)+`) AS f), 0)`)
	}
	return `SELECT ` + strings.Join(ages, `, `)
}()

// outboxAges reads what OutboxStatement returns.
func (c *Core) outboxAges(ctx context.Context) (map[store.OutboxConsumer]time.Duration, error) {
	ages, columns := make([]time.Duration, len(store.OutboxConsumers)), make([]any, len(store.OutboxConsumers))
	for i := range ages {
		columns[i] = durationOf(&ages[i])
	}
	err := c.engine.Reader().QueryRowContext(ctx, OutboxStatement).Scan(columns...)
	out := map[store.OutboxConsumer]time.Duration{}
	for i, consumer := range store.OutboxConsumers {
		out[consumer] = ages[i]
	}
	return out, err
}

// AsideStatement counts the rows that were set aside, of all outboxes, up to $1.
const AsideStatement = `SELECT COUNT(*) FROM (SELECT 1 AS one FROM outbox o WHERE o.failures > 0
	UNION ALL SELECT 1 AS one FROM outbox_rollups r WHERE r.failures > 0
	UNION ALL SELECT 1 AS one FROM outbox_words w WHERE w.failures > 0 LIMIT $1) AS f`

// TickStatement is how long the oldest tick is due; 0 where none is.
const TickStatement = `SELECT CASE WHEN m.due_at < now_us() THEN now_us() - m.due_at ELSE 0 END
	FROM (SELECT MIN(t.due_at) AS due_at FROM cron_ticks t WHERE t.active) m`

func queueState(live, runner bool) store.QueueState {
	switch {
	case !live:
		return store.QueueNoDeployment
	case !runner:
		return store.QueueNoRunner
	}
	return store.QueueClaimable
}
