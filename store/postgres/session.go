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
	// standstill is how long the server keeps an idle transaction, so that the locks of a frozen
	// process end.
	standstill = "60s"
	// planCacheMode is the setting for generic or custom plans.
	planCacheMode = "plan_cache_mode"
	// besideTimeout limits the wait for the second session that is needed to check the session of a
	// connection.
	besideTimeout = 2 * time.Second
)

// planning sets the planner of every connection. All statements are built to find their rows by an
// index. The planner must not choose otherwise because a table was empty, or because it has to
// guess the length of a list. Sorting or aggregating a list remains possible. A join also uses the
// index for each row, instead of hashing all rows that may match. JIT would cost more than it
// saves.
const planning = `SELECT set_config('enable_seqscan', 'off', FALSE), set_config('enable_hashjoin', 'off', FALSE),
	set_config('enable_mergejoin', 'off', FALSE), set_config('enable_bitmapscan', 'off', FALSE),
	set_config('enable_material', 'off', FALSE), set_config('jit', 'off', FALSE)`

// errShared means that the connection has no session of its own.
var errShared = fmt.Errorf("%w: a pooler between here and PostgreSQL gives each transaction whatever session is free, as PgBouncer does with pool_mode=transaction: "+
	"the store prepares statements, sets how they are planned, listens and locks in sessions that must stay; set pool_mode=session, or name the server itself in the DSN", store.ErrAway)

// errReplica means that the connection leads to a server that gets writes later, if at all.
var errReplica = fmt.Errorf("%w: the server is a replica, which may lack accepted rows; name the primary in the DSN", store.ErrAway)

// sessions prepares the sessions of connections.
type sessions struct {
	// withTimeout is Options.withTimeout.
	withTimeout func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc)

	mutex sync.Mutex
	// stay means that the pooler gives each connection a session of its own.
	stay bool
}

// prepareSession rejects a replica, a server that loses confirmed commits, and a shared session, and sets
// the session's parameters. It uses no startup parameters, because poolers reject or drop most of
// them.
func (s *sessions) prepareSession(ctx context.Context, conn *pgx.Conn, planMode string) error {
	if err := s.checkShared(ctx, conn); err != nil {
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
		return fmt.Errorf("setting the planner parameters: %w", err)
	}
	if commit == "off" || commit == "local" || commit == "remote_write" {
		if _, err := conn.Exec(ctx, `SET synchronous_commit = on`); err != nil {
			return fmt.Errorf("setting synchronous_commit: %w", err)
		}
	}
	return nil
}

// checkShared returns errShared if other clients use the connection's session between its transactions.
func (s *sessions) checkShared(ctx context.Context, conn *pgx.Conn) error {
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
	if own, err = backend(ctx, conn); err != nil { // again: no other connection of this process is in between
		return err
	}
	s.stay, err = s.keepsSession(ctx, conn, own)
	return err
}

// keepsSession compares the session of a connection with that of a second connection: while the second one
// is in a transaction, and afterwards, when both are used again. With sessions of their own,
// neither gets the session of the other or a third one. It returns false, without an error, if no
// second session is available.
func (s *sessions) keepsSession(ctx context.Context, conn *pgx.Conn, own uint32) (bool, error) {
	beside, cancel := s.withTimeout(ctx, besideTimeout)
	defer cancel()
	other, err := pgx.ConnectConfig(beside, conn.Config())
	if err != nil {
		return false, nil //nolint:nilerr // the pooler has no free session, which proves nothing
	}
	defer func() {
		leaving, cancel := s.withTimeout(context.WithoutCancel(ctx), besideTimeout)
		defer cancel()
		_ = other.Close(leaving) // it is not needed any more
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

// backend returns the server process that serves a connection now.
func backend(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	// Not prepared: preparing may be another transaction, in another session.
	if err := conn.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeExec).Scan(&pid); err != nil {
		return 0, fmt.Errorf("reading the session of a connection: %w", err)
	}
	return pid, nil
}
