// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/agentplatform/agentplatform/store/sqlcore"
)

// preparedLimit is how many statements are kept; those with lists of varying
// length could grow without end.
const preparedLimit = 256

// preparer is a connection, or a pool of them.
type preparer interface {
	sqlcore.Queryer
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// statements prepares each statement once.
type statements struct {
	conn     preparer
	mutex    sync.Mutex
	prepared map[string]*sql.Stmt
}

func newStatements(conn preparer) *statements {
	return &statements{conn: conn, prepared: map[string]*sql.Stmt{}}
}

// statement is nil for one that is not to be kept.
func (s *statements) statement(ctx context.Context, query string) *sql.Stmt {
	if stmt, known := s.get(query); known {
		return stmt
	}
	stmt, err := s.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil // running it tells the error
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if earlier, ok := s.prepared[query]; ok {
		_ = stmt.Close() // another was quicker
		return earlier
	}
	s.prepared[query] = stmt
	return stmt
}

// get says known, with nil, also when no more are kept.
func (s *statements) get(query string) (stmt *sql.Stmt, known bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	stmt, known = s.prepared[query]
	return stmt, known || len(s.prepared) >= preparedLimit
}

// ExecContext implements sqlcore.Queryer.
func (s *statements) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if stmt := s.statement(ctx, query); stmt != nil {
		return stmt.ExecContext(ctx, args...)
	}
	return s.conn.ExecContext(ctx, query, args...)
}

// QueryContext implements sqlcore.Queryer.
func (s *statements) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if stmt := s.statement(ctx, query); stmt != nil {
		return stmt.QueryContext(ctx, args...)
	}
	return s.conn.QueryContext(ctx, query, args...)
}

// QueryRowContext implements sqlcore.Queryer.
func (s *statements) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if stmt := s.statement(ctx, query); stmt != nil {
		return stmt.QueryRowContext(ctx, args...)
	}
	return s.conn.QueryRowContext(ctx, query, args...)
}

// close gives the statements back.
func (s *statements) close() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var errs []error
	for _, stmt := range s.prepared {
		errs = append(errs, stmt.Close())
	}
	s.prepared = map[string]*sql.Stmt{}
	return errors.Join(errs...)
}
