// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/agentplatform/agentplatform/store/sqldb"
)

// preparedLimit is the number of prepared statements that are kept, because lists of varying length
// create any number.
const preparedLimit = 256

// preparer is a connection or a pool of connections.
type preparer interface {
	sqldb.Queryer
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// statements prepares each statement once, and keeps the most recently used ones.
type statements struct {
	conn  preparer
	mutex sync.Mutex
	kept  *simplelru.LRU[string, *statement]
}

// statement is a prepared statement. The mutex of its statements guards its users and whether it
// was dropped. A dropped statement that is in use is closed afterwards.
type statement struct {
	*sql.Stmt
	users   int
	dropped bool
}

func newStatements(conn preparer) *statements {
	kept, err := simplelru.NewLRU[string, *statement](preparedLimit, nil)
	if err != nil {
		panic("keeping at least one statement: " + err.Error()) // rejects only sizes below 1
	}
	return &statements{conn: conn, kept: kept}
}

// preparedStatement returns a prepared statement. The caller releases it after running it, and may read the
// results later. It is nil if the statement cannot be prepared. Running it then returns the error.
func (s *statements) preparedStatement(ctx context.Context, query string) *statement {
	s.mutex.Lock()
	known, ok := s.kept.Get(query)
	if ok {
		known.users++
	}
	s.mutex.Unlock()
	if ok {
		return known
	}
	stmt, err := s.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil
	}
	s.mutex.Lock()
	used, ok := s.kept.Get(query)
	var spare *sql.Stmt
	if ok { // another goroutine was faster
		spare = stmt
	} else {
		if s.kept.Len() >= preparedLimit {
			_, oldest, _ := s.kept.RemoveOldest()
			spare = oldest.dropUnused()
		}
		used = &statement{Stmt: stmt}
		s.kept.Add(query, used)
	}
	used.users++
	s.mutex.Unlock()
	closeSpare(spare)
	return used
}

// dropUnused returns the statement to close now, if any.
func (st *statement) dropUnused() *sql.Stmt {
	st.dropped = true
	if st.users > 0 {
		return nil
	}
	return st.Stmt
}

// release ends the use of a statement.
func (s *statements) release(st *statement) {
	s.mutex.Lock()
	st.users--
	last := st.dropped && st.users == 0
	s.mutex.Unlock()
	if last {
		closeSpare(st.Stmt)
	}
}

// closeSpare closes a statement that is not needed.
func closeSpare(stmt *sql.Stmt) {
	if stmt != nil {
		_ = stmt.Close() // not needed, whatever the result
	}
}

// ExecContext implements sqldb.Queryer.
func (s *statements) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if stmt := s.preparedStatement(ctx, query); stmt != nil {
		defer s.release(stmt)
		return stmt.ExecContext(ctx, args...)
	}
	return s.conn.ExecContext(ctx, query, args...)
}

// QueryContext implements sqldb.Queryer.
func (s *statements) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if stmt := s.preparedStatement(ctx, query); stmt != nil {
		defer s.release(stmt)
		return stmt.QueryContext(ctx, args...)
	}
	return s.conn.QueryContext(ctx, query, args...)
}

// QueryRowContext implements sqldb.Queryer.
func (s *statements) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if stmt := s.preparedStatement(ctx, query); stmt != nil {
		defer s.release(stmt)
		return stmt.QueryRowContext(ctx, args...)
	}
	return s.conn.QueryRowContext(ctx, query, args...)
}

// close closes all statements.
func (s *statements) close() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var errs []error
	for _, st := range s.kept.Values() {
		st.dropped = true
		errs = append(errs, st.Close())
	}
	s.kept.Purge()
	return errors.Join(errs...)
}
