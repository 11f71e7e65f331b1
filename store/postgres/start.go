// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlcore"
)

const (
	// maxStarts is how many claims share a transaction, startTimeout bounds one.
	maxStarts    = 32
	startTimeout = 10 * time.Second
	// lockPatience is how long those wait for another transaction's lock.
	lockPatience = 50 * time.Millisecond
)

// startStatement starts the runs that were decided on, unless the pool has another
// version by now: then it has no row, and one with nothing but NULL when none of them
// is queued any more. The status is asked for in a way that no index answers: the planner
// may take the queue for so short that it reads all of it instead of looking for ids.
var startStatement = `WITH pool AS (
	UPDATE pools SET version = version + 1, served = $4, turns = $5
	WHERE project_id = $1 AND environment_id = $2 AND version = $3 RETURNING version
), r AS (
	UPDATE open_runs u SET status = 'running', attempt = u.attempt + 1, token = ((u.attempt + 1) << ` + strconv.Itoa(sqlcore.TokenBits) + `) | g.salt,
		runner_id = $6, lease_until = now_us() + $7::bigint, started_at = COALESCE(u.started_at, now_us()), deployment_id = g.deployment_id
	FROM pool, unnest($8::uuid[], $9::uuid[], $10::bigint[]) AS g (id, deployment_id, salt)
	WHERE u.project_id = $1 AND u.id = g.id AND u.status || '' = 'queued' AND u.blocked = FALSE RETURNING u.*
) SELECT pool.version, COALESCE(r.id IS NOT NULL, FALSE), ` + sqlcore.StartedColumns + `
FROM pool LEFT JOIN r ON TRUE LEFT JOIN deployments d ON d.project_id = r.project_id AND d.id = r.deployment_id`

// starting is what a claim has decided on, and what came of it.
type starting struct {
	claim store.Claim
	sqlcore.Start
	done chan struct{} // closed when it was tried with others
	// overtaken says that another one of the environment was carried out meanwhile.
	overtaken bool

	// What the statements said.
	current bool
	started []*store.Claimed // in the order of Runs, nil where one is not queued any more
	inputs  map[uuid.UUID]sqlcore.Input
	err     error
}

// Start implements sqlcore.Engine. Claims of different environments that come at the same
// moment share a round trip and a commit. Those hardly wait for locks: for what is in the
// way of one, that one waits by itself.
func (e engine) Start(ctx context.Context, c store.Claim, s sqlcore.Start) (runs []store.Claimed, current bool, err error) {
	own := &starting{claim: c, Start: s, done: make(chan struct{})}
	if e.starts.enter(own) {
		e.startNext(context.WithoutCancel(ctx))
		go e.startWaiting(context.WithoutCancel(ctx))
	}
	select {
	case <-own.done:
	case <-ctx.Done(): // what it may start all the same is handed again
		e.starts.leave(own)
		return nil, false, context.Cause(ctx)
	}
	switch {
	case own.overtaken:
		return nil, false, nil
	case hasCode(own.err, lockTimedOut, undefinedTable, deadlock, serializationFailure):
		own.err = e.startAlone(ctx, own)
	}
	return own.claimed(), own.current, own.err
}

// starts are claims that wait to be carried out together (group commit). The committer of
// webhookgw/ingress, the ends of webhookgw/dispatch and the writer of store/sqlite do the
// same for other writes.
type starts struct {
	mutex   sync.Mutex
	waiting []*starting
	busy    bool
}

// enter adds a claim to those that wait; first says that nobody carries them out yet.
func (s *starts) enter(own *starting) (first bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.waiting = append(s.waiting, own)
	first, s.busy = !s.busy, true
	return first
}

// leave keeps a claim from being carried out, unless it is by now.
func (s *starts) leave(own *starting) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(other *starting) bool { return other == own })
}

// take takes some of those that wait; none ends the work of who carries them out. Of an
// environment there is one, for it makes the others out of date.
func (s *starts) take() (batch []*starting) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	environments := map[store.Key]bool{}
	s.waiting = slices.DeleteFunc(s.waiting, func(own *starting) bool {
		if len(batch) == maxStarts || environments[own.claim.Environment] {
			return false
		}
		environments[own.claim.Environment] = true
		batch = append(batch, own)
		return true
	})
	s.busy = len(batch) > 0
	// Two transactions that lock pools in one order do not wait for each other.
	slices.SortFunc(batch, func(a, b *starting) int { return sqlcore.CompareKeys(a.claim.Environment, b.claim.Environment) })
	return batch
}

// overtake ends the wait of those that were decided on as one that was carried out: the
// pool has another version by now.
func (s *starts) overtake(by *starting) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(own *starting) bool {
		own.overtaken = own.claim.Environment == by.claim.Environment && own.Version == by.Version
		if own.overtaken {
			close(own.done)
		}
		return own.overtaken
	})
}

// startWaiting carries out what waits, until nothing does.
func (e engine) startWaiting(ctx context.Context) {
	for e.startNext(ctx) {
	}
}

// startNext carries out a batch of what waits, and says whether there was one.
func (e engine) startNext(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	batch := e.starts.take()
	if len(batch) == 0 {
		return false
	}
	err := e.start(ctx, lockPatience, true, batch...)
	for _, own := range batch {
		if own.err = err; err == nil && own.current {
			e.starts.overtake(own)
		}
		close(own.done)
	}
	return true
}

// startAlone carries out a claim in a transaction of its own. Where a part of history with
// an input is not there, the inputs are read apart.
func (e engine) startAlone(ctx context.Context, own *starting) error {
	err := again(func() error { return e.start(ctx, 0, true, own) })
	if !hasCode(err, undefinedTable) {
		return err
	}
	if err := again(func() error { return e.start(ctx, 0, false, own) }); err != nil {
		return err
	}
	own.inputs, err = e.Inputs(ctx, e.db, own.claim.Environment.ProjectID, own.inputIDs())
	return err
}

// start reads the inputs of claims and sends a statement for each, in one round trip and
// one transaction. patience is how long each waits for a lock; 0 is as long as ctx.
func (e engine) start(ctx context.Context, patience time.Duration, withInputs bool, batch ...*starting) error {
	var queue pgx.Batch
	if patience > 0 {
		queue.Queue(`SELECT set_config('lock_timeout', $1, TRUE)`, strconv.FormatInt(patience.Milliseconds(), 10))
	}
	if withInputs { // first: what is sent by now holds no lock
		for _, own := range batch {
			own.inputs = map[uuid.UUID]sqlcore.Input{}
			for _, same := range e.ByPart("inputs", own.inputIDs()) {
				queue.Queue(e.InPart(sqlcore.InputStatement, same[0]), own.claim.Environment.ProjectID, uuids(same)).Query(own.readInputs)
			}
		}
	}
	for _, own := range batch {
		own.queue(&queue)
	}
	return e.pools[0].SendBatch(ctx, &queue).Close()
}

func (s *starting) queue(queue *pgx.Batch) {
	s.current, s.started = false, make([]*store.Claimed, len(s.Runs))
	run, deployment := make([]pgtype.UUID, len(s.Runs)), make([]pgtype.UUID, len(s.Runs))
	for i, w := range s.Runs {
		run[i], deployment[i] = known(w.ID), known(w.Deployment)
	}
	c := s.claim
	queue.Queue(startStatement, c.Environment.ProjectID, c.Environment.ID, s.Version, s.Pool.Served,
		sqlcore.Turns(s.Pool.Turns), sqlcore.Text(c.RunnerID), c.Lease.Microseconds(), run, deployment, s.Salts).Query(s.readStarted)
}

func (s *starting) readStarted(rows pgx.Rows) error {
	for rows.Next() {
		s.current = true
		claimed, ok, err := scanStarted(rows)
		if err != nil {
			return err
		}
		if ok {
			s.started[s.Order(claimed.Run.ID)] = &claimed
		}
	}
	return rows.Err()
}

func (s *starting) readInputs(rows pgx.Rows) error {
	for rows.Next() {
		in, err := sqlcore.ScanInput(rows)
		if err != nil {
			return err
		}
		s.inputs[in.ID] = in
	}
	return rows.Err()
}

func (s *starting) inputIDs() []uuid.UUID {
	ids := make([]uuid.UUID, len(s.Runs))
	for i, w := range s.Runs {
		ids[i] = w.Input
	}
	return ids
}

// claimed are the runs that were started, with their inputs.
func (s *starting) claimed() (runs []store.Claimed) {
	if s.err != nil {
		return nil
	}
	for i, claimed := range s.started {
		if claimed == nil {
			continue
		}
		in := s.inputs[s.Runs[i].Input]
		claimed.Input, claimed.InputBlob, claimed.ContentType, claimed.Files, claimed.Headers = in.Data, in.Blob, in.ContentType, in.Files, in.Headers
		runs = append(runs, *claimed)
	}
	return runs
}

func uuids(ids []uuid.UUID) []pgtype.UUID {
	out := make([]pgtype.UUID, len(ids))
	for i, id := range ids {
		out[i] = known(id)
	}
	return out
}

// startedRow is a row of startStatement but for its first two columns.
type startedRow struct{ rows pgx.Rows }

// Scan implements sqlcore's scanner.
func (r startedRow) Scan(dest ...any) error {
	var (
		version int64
		ok      bool
	)
	return r.rows.Scan(append([]any{&version, &ok}, dest...)...)
}

func scanStarted(rows pgx.Rows) (claimed store.Claimed, ok bool, err error) {
	values, err := rows.Values()
	if err != nil {
		return claimed, false, fmt.Errorf("reading a claimed run: %w", err)
	}
	if ok, _ = values[1].(bool); !ok {
		return claimed, false, nil
	}
	claimed, _, err = sqlcore.ScanStarted(startedRow{rows})
	return claimed, true, err
}
