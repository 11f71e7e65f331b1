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
	"github.com/agentplatform/agentplatform/store/openrun"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

const (
	// maxStarts is the maximum number of claims per transaction. startTimeout limits the
	// transaction.
	maxStarts    = 32
	startTimeout = 10 * time.Second
	// lockPatience is how long they wait for a lock of another transaction.
	lockPatience = 50 * time.Millisecond
)

// startStatement starts the chosen runs, unless the version of the pool has changed: then it
// returns no row. If none of the runs is queued any more, it returns one row of NULLs. The
// condition on the status cannot use an index, because the planner may underestimate the queue and
// read all of it instead of looking up IDs. The second condition on the ID is for the same reason: it
// makes a lookup of the IDs cheap in every order of the joins.
var startStatement = `WITH pool AS (
	UPDATE pools SET version = version + 1, served = $4, turns = $5
	WHERE project_id = $1 AND environment_id = $2 AND version = $3 RETURNING version
), r AS (
	UPDATE open_runs u SET status = 'running', attempt = u.attempt + 1, token = ((u.attempt + 1) << ` + strconv.Itoa(openrun.TokenBits) + `) | g.salt,
		runner_id = $6, lease_until = now_us() + $7::bigint, started_at = COALESCE(u.started_at, now_us()), deployment_id = g.deployment_id
	FROM pool, unnest($8::uuid[], $9::uuid[], $10::bigint[]) AS g (id, deployment_id, salt)
	WHERE u.project_id = $1 AND u.id = g.id AND u.id = ANY ($8::uuid[]) AND u.status || '' = 'queued' AND u.blocked = FALSE RETURNING u.*
) SELECT pool.version, COALESCE(r.id IS NOT NULL, FALSE), ` + openrun.StartedColumns + `
FROM pool LEFT JOIN r ON TRUE LEFT JOIN deployments d ON d.project_id = r.project_id AND d.id = r.deployment_id`

// pendingStart is the decision of a claim, with its result.
type pendingStart struct {
	claim store.Claim
	openrun.Start
	done chan struct{} // closed after the batch was tried
	// overtaken means that another claim of the environment was started meanwhile.
	overtaken bool

	// The results of the statements.
	current bool
	started []*store.Claimed // in the order of Runs, nil for a run that is no longer queued
	inputs  map[uuid.UUID]runrow.Input
	err     error
}

// Start implements openrun.Engine. Claims of different environments that arrive together share a
// round trip and a commit. These hardly wait for locks. If a claim is blocked, it alone waits for
// the lock.
func (e engine) Start(ctx context.Context, c store.Claim, s openrun.Start) (runs []store.Claimed, current bool, err error) {
	own := &pendingStart{claim: c, Start: s, done: make(chan struct{})}
	if e.starts.addWaiting(own) {
		e.startNext(context.WithoutCancel(ctx))
		go e.startWaiting(context.WithoutCancel(ctx))
	}
	select {
	case <-own.done:
	case <-ctx.Done(): // runs that it may start nevertheless are returned again
		e.starts.removeWaiting(own)
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

// startQueue has the claims that wait for a batch (group commit). The committer of webhookgw/ingress, the
// completions of webhookgw/dispatch and the writer of store/sqlite do the same for other writes.
type startQueue struct {
	mutex   sync.Mutex
	waiting []*pendingStart
	busy    bool
}

// addWaiting adds a waiting claim. first means that no batch is in progress.
func (s *startQueue) addWaiting(own *pendingStart) (first bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.waiting = append(s.waiting, own)
	first, s.busy = !s.busy, true
	return first
}

// removeWaiting removes a claim, unless it has been started.
func (s *startQueue) removeWaiting(own *pendingStart) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(other *pendingStart) bool { return other == own })
}

// nextBatch returns the next batch, with one claim per environment, because it makes the others stale.
// If there is none, it ends the work of the caller.
func (s *startQueue) nextBatch() (batch []*pendingStart) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	environments := map[store.Key]bool{}
	s.waiting = slices.DeleteFunc(s.waiting, func(own *pendingStart) bool {
		if len(batch) == maxStarts || environments[own.claim.Environment] {
			return false
		}
		environments[own.claim.Environment] = true
		batch = append(batch, own)
		return true
	})
	s.busy = len(batch) > 0
	// Locking pools in one order prevents deadlocks between two transactions.
	slices.SortFunc(batch, func(a, b *pendingStart) int { return sqldb.CompareKeys(a.claim.Environment, b.claim.Environment) })
	return batch
}

// overtake ends the wait of claims of the same environment, because the version of the pool has
// changed.
func (s *startQueue) overtake(by *pendingStart) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(own *pendingStart) bool {
		own.overtaken = own.claim.Environment == by.claim.Environment && own.Version == by.Version
		if own.overtaken {
			close(own.done)
		}
		return own.overtaken
	})
}

// startWaiting starts batches until no claim waits.
func (e engine) startWaiting(ctx context.Context) {
	for e.startNext(ctx) {
	}
}

// startNext starts a batch, and reports whether there was one.
func (e engine) startNext(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	batch := e.starts.nextBatch()
	if len(batch) == 0 {
		return false
	}
	err := e.startBatch(ctx, lockPatience, true, batch...)
	for _, own := range batch {
		if own.err = err; err == nil && own.current {
			e.starts.overtake(own)
		}
		close(own.done)
	}
	return true
}

// startAlone starts a claim in a transaction of its own. If the partition of an input is missing,
// it reads the inputs separately.
func (e engine) startAlone(ctx context.Context, own *pendingStart) error {
	err := retryConflicts(func() error { return e.startBatch(ctx, 0, true, own) })
	if !hasCode(err, undefinedTable) {
		return err
	}
	if err := retryConflicts(func() error { return e.startBatch(ctx, 0, false, own) }); err != nil {
		return err
	}
	own.inputs, err = runrow.Inputs(ctx, e.DB, e.db, own.claim.Environment.ProjectID, own.inputIDs())
	return err
}

// startBatch reads the inputs of claims and sends a statement for each, in one round trip and one
// transaction. patience is how long each waits for a lock; 0 means as long as ctx.
func (e engine) startBatch(ctx context.Context, patience time.Duration, withInputs bool, batch ...*pendingStart) error {
	var queue pgx.Batch
	if patience > 0 {
		queue.Queue(`SELECT set_config('lock_timeout', $1, TRUE)`, strconv.FormatInt(patience.Milliseconds(), 10))
	}
	if withInputs { // first, while no lock is held
		for _, own := range batch {
			own.inputs = map[uuid.UUID]runrow.Input{}
			for _, same := range e.IDsByPart("inputs", own.inputIDs()) {
				queue.Queue(e.InPart(runrow.InputStatement, same[0]), own.claim.Environment.ProjectID, pgUUIDs(same)).Query(own.readInputs)
			}
		}
	}
	for _, own := range batch {
		own.addTo(&queue)
	}
	return e.pools[0].SendBatch(ctx, &queue).Close()
}

func (s *pendingStart) addTo(queue *pgx.Batch) {
	s.current, s.started = false, make([]*store.Claimed, len(s.Runs))
	run, deployment := make([]pgtype.UUID, len(s.Runs)), make([]pgtype.UUID, len(s.Runs))
	for i, w := range s.Runs {
		run[i], deployment[i] = validUUID(w.ID), validUUID(w.Deployment)
	}
	c := s.claim
	queue.Queue(startStatement, c.Environment.ProjectID, c.Environment.ID, s.Version, s.Pool.Served,
		openrun.EncodeLastAgents(s.Pool.LastAgents), sqldb.Text(c.RunnerID), c.Lease.Microseconds(), run, deployment, s.Salts).Query(s.readStarted)
}

func (s *pendingStart) readStarted(rows pgx.Rows) error {
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

func (s *pendingStart) readInputs(rows pgx.Rows) error {
	for rows.Next() {
		in, err := runrow.ScanInput(rows)
		if err != nil {
			return err
		}
		s.inputs[in.ID] = in
	}
	return rows.Err()
}

func (s *pendingStart) inputIDs() []uuid.UUID {
	ids := make([]uuid.UUID, len(s.Runs))
	for i, w := range s.Runs {
		ids[i] = w.Input
	}
	return ids
}

// claimed returns the started runs with their inputs.
func (s *pendingStart) claimed() (runs []store.Claimed) {
	if s.err != nil {
		return nil
	}
	for i, claimed := range s.started {
		if claimed == nil {
			continue
		}
		s.inputs[s.Runs[i].Input].AddTo(claimed)
		runs = append(runs, *claimed)
	}
	return runs
}

func pgUUIDs(ids []uuid.UUID) []pgtype.UUID {
	out := make([]pgtype.UUID, len(ids))
	for i, id := range ids {
		out[i] = validUUID(id)
	}
	return out
}

// startedRow is a row of startStatement without its first two columns.
type startedRow struct{ rows pgx.Rows }

// Scan implements sqldb.Scanner.
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
	claimed, _, err = openrun.ScanStarted(startedRow{rows})
	return claimed, true, err
}
