// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentplatform/agentplatform/store"
)

const (
	// standstill is how long the server lets a transaction stand still: the locks of a
	// process that is frozen keep others waiting no longer.
	standstill = "60s"
	// planCacheMode is the setting that says for which arguments statements are planned.
	planCacheMode = "plan_cache_mode"
	// besideTimeout is how long another session is waited for, beside which the one of a
	// connection is looked at.
	besideTimeout = 2 * time.Second
)

// planning is how the statements of every connection are planned. All of them are
// made to find their rows by an index: the planner is not to think otherwise of a
// table that was empty when it looked, nor of a list whose length it has to guess. A
// sort or an aggregate of a list is its own affair. A join looks for each row by the
// index too, instead of keeping all rows that may match. Compiling would cost more than
// it saves.
const planning = `SELECT set_config('enable_seqscan', 'off', FALSE), set_config('enable_hashjoin', 'off', FALSE),
	set_config('enable_mergejoin', 'off', FALSE), set_config('enable_bitmapscan', 'off', FALSE),
	set_config('enable_material', 'off', FALSE), set_config('jit', 'off', FALSE)`

// errShared says that a connection has no session of its own.
var errShared = fmt.Errorf("%w: a pooler between here and PostgreSQL gives each transaction whatever session is free, as PgBouncer does with pool_mode=transaction: "+
	"the store prepares statements, sets how they are planned, listens and locks in sessions that must stay; set pool_mode=session, or name the server itself in the DSN", store.ErrAway)

// errReplica says that a connection leads to a server that has what is written later, if at all.
var errReplica = fmt.Errorf("%w: the server is a replica, where what was accepted may not be yet; name the primary in the DSN", store.ErrAway)

// sessions begins those of connections.
type sessions struct {
	// withTimeout is Options'.
	withTimeout func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc)

	mutex sync.Mutex
	// stay: behind the pooler that there is, each connection has one of its own.
	stay bool
}

// begin refuses a replica, a server that loses what it has confirmed, and a session that is not the
// connection's own; it sets right what a session would do otherwise. Nothing of it is a
// parameter of the connection's start, of which poolers refuse most, or leave them out.
func (s *sessions) begin(ctx context.Context, conn *pgx.Conn, planMode string) error {
	if err := s.check(ctx, conn); err != nil {
		return err
	}
	var (
		fsync, commit string
		replica       bool
	)
	if err := conn.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('synchronous_commit'), pg_is_in_recovery()`, pgx.QueryExecModeExec).
		Scan(&fsync, &commit, &replica); err != nil {
		return fmt.Errorf("reading the server's durability: %w", err)
	}
	if replica {
		return errReplica
	}
	if fsync != "on" {
		return fmt.Errorf("%w: the server runs with fsync=off: it loses accepted webhooks when it crashes; set fsync=on", store.ErrAway)
	}
	if _, err := conn.Exec(ctx, planning+`, set_config('`+planCacheMode+`', $1, FALSE), set_config('idle_in_transaction_session_timeout', $2, FALSE)`,
		pgx.QueryExecModeExec, planMode, standstill); err != nil {
		return fmt.Errorf("setting how statements are planned: %w", err)
	}
	if commit == "off" || commit == "local" || commit == "remote_write" {
		if _, err := conn.Exec(ctx, `SET synchronous_commit = on`); err != nil {
			return fmt.Errorf("setting synchronous_commit: %w", err)
		}
	}
	return nil
}

// check is errShared of a connection whose session others get between its transactions.
func (s *sessions) check(ctx context.Context, conn *pgx.Conn) error {
	own, err := backend(ctx, conn)
	if err != nil {
		return err
	}
	if own == conn.PgConn().PID() {
		return nil // the server itself has greeted us
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.stay {
		return nil
	}
	if own, err = backend(ctx, conn); err != nil { // again: nobody of this process is in between
		return err
	}
	s.stay, err = s.stays(ctx, conn, own)
	return err
}

// stays looks at a connection whose session was own beside another connection: while that is
// in a transaction, and once it is not, when both have another turn. Of two sessions that stay
// neither is the other's, nor ever another one. It is false, without an error, where no other
// session is to be had.
func (s *sessions) stays(ctx context.Context, conn *pgx.Conn, own uint32) (bool, error) {
	beside, cancel := s.withTimeout(ctx, besideTimeout)
	defer cancel()
	other, err := pgx.ConnectConfig(beside, conn.Config())
	if err != nil {
		return false, nil //nolint:nilerr // the pooler has no room, which says nothing
	}
	defer func() {
		leaving, cancel := s.withTimeout(context.WithoutCancel(ctx), besideTimeout)
		defer cancel()
		_ = other.Close(leaving) // it is of no use any more
	}()
	tx, err := other.Begin(beside)
	if err != nil {
		return false, nil //nolint:nilerr // as above
	}
	theirs, err := backend(beside, other)
	if err != nil {
		return false, nil //nolint:nilerr // as above
	}
	during, err := backend(ctx, conn)
	if err != nil {
		return false, err
	}
	_ = tx.Rollback(beside) // there is nothing to lose
	again, err := backend(beside, other)
	if err != nil {
		return false, nil //nolint:nilerr // as above
	}
	after, err := backend(ctx, conn)
	if err != nil {
		return false, err
	}
	if during != own || again != theirs || after != own {
		return false, errShared
	}
	return true, nil
}

// backend is the process that serves a connection at the moment.
func backend(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	// Not prepared: that may be another transaction, in another session.
	if err := conn.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeExec).Scan(&pid); err != nil {
		return 0, fmt.Errorf("asking which session a connection has: %w", err)
	}
	return pid, nil
}
