// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// preparedLimit is how many statements a connection keeps; those with lists of
// varying length could grow without end.
const preparedLimit = 256

// statements is a connection that prepares each statement once.
type statements struct {
	conn     *sql.Conn
	prepared map[string]*sql.Stmt
}

// statement is nil for one that is not to be kept.
func (s *statements) statement(ctx context.Context, query string) *sql.Stmt {
	if stmt, ok := s.prepared[query]; ok {
		return stmt
	}
	if len(s.prepared) >= preparedLimit {
		return nil
	}
	stmt, err := s.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil // running it tells the error
	}
	s.prepared[query] = stmt
	return stmt
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

// close gives the statements back and drops the connection, so that no
// transaction survives it.
func (s *statements) close() error {
	var errs []error
	for _, stmt := range s.prepared {
		errs = append(errs, stmt.Close())
	}
	err := s.conn.Raw(func(any) error { return driver.ErrBadConn })
	if errors.Is(err, driver.ErrBadConn) {
		err = nil
	}
	return errors.Join(append(errs, err)...)
}
