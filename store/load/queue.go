// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/outbox"
	"github.com/agentplatform/agentplatform/store/runqueue"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storedbytes"
)

// runningStatement counts the runs on runners.
const runningStatement = `SELECT count(*) FROM open_runs r WHERE r.status = 'running'`

// queueStatement returns a row for each queue. It counts open runs only. The first run of a queue
// is its oldest, because IDs are ordered by time.
func queueStatement(address string) string {
	return `WITH RECURSIVE ` + runqueue.WalkQueues(address, runqueue.InAllProjects) + `
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

// queueCountStatement counts the queues.
func queueCountStatement(address string) string {
	return `WITH RECURSIVE ` + runqueue.WalkQueues(address, runqueue.InAllProjects) + ` SELECT count(q.address) FROM q`
}

// countOf returns the maximum count per queue for this number of queues. So the cost of counting
// does not grow with the backlog.
func countOf(queues int64) int64 {
	return max(min(store.MaxQueueCount, store.MaxQueueCounted/max(queues, 1)), 1)
}

// keysStatement counts the concurrency keys of open runs and the runs that wait for one, with an
// index each and up to a limit.
var keysStatement = `SELECT
	(SELECT count(*) FROM (SELECT 1 AS one FROM concurrency_slots s WHERE s.project_id >= '` + uuid.Nil.String() + `' LIMIT $1) held),
	(SELECT count(*) FROM (SELECT 1 AS one FROM open_runs b WHERE b.blocked AND b.project_id >= '` + uuid.Nil.String() + `' LIMIT $1) waiting)`

// figureTimeout limits the measurement of a figure, so that a slow one hides no other.
const figureTimeout = time.Second

// QueueFigures implements store.Queue.
func (s *Store) QueueFigures(ctx context.Context) (figures store.QueueFigures, err error) {
	read := func(ctx context.Context, statement string, into ...any) error {
		return s.db.Reader().QueryRowContext(ctx, statement).Scan(into...)
	}
	limited := func(ctx context.Context, statement string, into ...any) error {
		return s.db.Reader().QueryRowContext(ctx, statement, store.MaxQueueCounted).Scan(into...)
	}
	measure := map[store.QueueFigure]func(ctx context.Context) error{
		store.FigureQueued:  func(ctx context.Context) (err error) { figures.Queued, err = s.countQueued(ctx); return err },
		store.FigureRunning: func(ctx context.Context) error { return read(ctx, runningStatement, &figures.Running) },
		store.FigureKeys: func(ctx context.Context) error {
			return limited(ctx, keysStatement, &figures.KeysHeld, &figures.Blocked)
		},
		store.FigureOutbox:   func(ctx context.Context) (err error) { figures.OutboxAges, err = s.outboxAges(ctx); return err },
		store.FigureSetAside: func(ctx context.Context) error { return limited(ctx, asideStatement, &figures.OutboxAside) },
		store.FigureTicks:    func(ctx context.Context) error { return read(ctx, tickStatement, sqldb.ScanDuration(&figures.TickAge)) },
	}
	var failed []error
	for _, figure := range store.AllQueueFigures {
		ctx, cancel := context.WithTimeout(ctx, figureTimeout)
		err := measure[figure](ctx)
		cancel()
		if err != nil {
			figures.Missing = append(figures.Missing, figure)
			failed = append(failed, sqldb.Wrap(err, "measuring the queue: %s", figure))
		}
	}
	return figures, errors.Join(failed...)
}

// countQueued counts the queued runs of each state and class.
func (s *Store) countQueued(ctx context.Context) (map[store.QueueState]map[store.Class]store.QueueDepth, error) {
	queued := map[store.QueueState]map[store.Class]store.QueueDepth{}
	for _, state := range store.QueueStates {
		queued[state] = map[store.Class]store.QueueDepth{}
		for class := range store.Class(store.Classes) {
			queued[state][class] = store.QueueDepth{}
		}
	}
	var queues int64
	if err := s.db.Reader().QueryRowContext(ctx, queueCountStatement(s.db.Address)).Scan(&queues); err != nil {
		return nil, err
	}
	err := sqldb.EachRow(ctx, s.db.Reader(), func(row sqldb.Scanner) error {
		var (
			live, present bool
			class         store.Class
			runs          int64
			oldest        int64
		)
		if err := row.Scan(&live, &present, &class, &runs, &oldest); err != nil {
			return err
		}
		state := queueState(live, present)
		depth := queued[state][class]
		depth.Runs += runs
		depth.Oldest = max(depth.Oldest, time.Duration(oldest)*time.Microsecond)
		queued[state][class] = depth
		return nil
	}, queueStatement(s.db.Address), store.RunnerPresence.Microseconds(), countOf(queues))
	return queued, err
}

// oldestPosted select the posting times of the oldest rows that consumers may take. A consumer with
// two kinds of rows has several.
var oldestPosted = map[store.OutboxConsumer][]string{
	store.ConsumerStorage:    {oldestOf(storedbytes.Consumer)},
	store.ConsumerDeliveries: {oldestOf(outbox.Deliveries), oldestOf(outbox.FailureNotices)},
	store.ConsumerRollups:    {oldestByProject("outbox_rollups")},
	store.ConsumerWords:      {oldestByProject("outbox_words")},
	store.ConsumerTraces:     {`SELECT o.ended_at AS posted_at FROM outbox_traces o WHERE o.ended_at <= now_us() ORDER BY o.ended_at LIMIT 1`},
}

func oldestOf(consumer string) string {
	return `SELECT o.posted_at FROM outbox o WHERE o.consumer = '` + consumer + `' AND o.posted_at <= now_us() ORDER BY o.posted_at LIMIT 1`
}

// oldestByProject selects the oldest row per project of an outbox whose index starts with the
// project.
func oldestByProject(table string) string {
	next := `(SELECT o.project_id FROM ` + table + ` o WHERE o.posted_at <= now_us() AND o.project_id > `
	return `WITH RECURSIVE t (project_id) AS (
			SELECT ` + next + `'` + uuid.Nil.String() + `' ORDER BY o.project_id, o.posted_at LIMIT 1)
			UNION ALL
			SELECT ` + next + `t.project_id ORDER BY o.project_id, o.posted_at LIMIT 1) FROM t WHERE t.project_id IS NOT NULL)
		SELECT MIN((SELECT o.posted_at FROM ` + table + ` o WHERE o.project_id = t.project_id ORDER BY o.posted_at LIMIT 1)) AS posted_at
			FROM t WHERE t.project_id IS NOT NULL`
}

// outboxStatement returns the age of the oldest row of each of store.OutboxConsumers, in
// microseconds.
var outboxStatement = func() string {
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

// outboxAges reads the result of outboxStatement.
func (s *Store) outboxAges(ctx context.Context) (map[store.OutboxConsumer]time.Duration, error) {
	ages, columns := make([]time.Duration, len(store.OutboxConsumers)), make([]any, len(store.OutboxConsumers))
	for i := range ages {
		columns[i] = sqldb.ScanDuration(&ages[i])
	}
	err := s.db.Reader().QueryRowContext(ctx, outboxStatement).Scan(columns...)
	out := map[store.OutboxConsumer]time.Duration{}
	for i, consumer := range store.OutboxConsumers {
		out[consumer] = ages[i]
	}
	return out, err
}

// asideStatement counts the rows in all outboxes that are set aside, up to $1.
const asideStatement = `SELECT COUNT(*) FROM (SELECT 1 AS one FROM outbox o WHERE o.failures > 0
	UNION ALL SELECT 1 AS one FROM outbox_rollups r WHERE r.failures > 0
	UNION ALL SELECT 1 AS one FROM outbox_words w WHERE w.failures > 0 LIMIT $1) AS f`

// tickStatement returns how long the oldest tick has been due; 0 without any.
const tickStatement = `SELECT CASE WHEN m.due_at < now_us() THEN now_us() - m.due_at ELSE 0 END
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
