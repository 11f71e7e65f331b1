// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/agentplatform/agentplatform/store/sqlcore"
)

// preparedLimit is how many statements are kept; of those with lists of varying length
// there could be any number.
const preparedLimit = 256

// preparer is a connection, or a pool of them.
type preparer interface {
	sqlcore.Queryer
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// statements prepares each statement once, and keeps those that were used last.
type statements struct {
	conn  preparer
	mutex sync.Mutex
	kept  *simplelru.LRU[string, *statement]
}

// statement is one that is prepared. Its users and whether it is dropped are under the
// mutex of its statements: one that is dropped while somebody is about to run it is
// closed after that.
type statement struct {
	*sql.Stmt
	users   int
	dropped bool
}

func newStatements(conn preparer) *statements {
	kept, err := simplelru.NewLRU[string, *statement](preparedLimit, nil)
	if err != nil {
		panic("keeping at least one statement: " + err.Error()) // refuses sizes below 1 alone
	}
	return &statements{conn: conn, kept: kept}
}

// use is a prepared statement, to be released once it was run; what it returned may be
// read after that. It is nil for one that cannot be prepared: running it tells the error.
func (s *statements) use(ctx context.Context, query string) *statement {
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
	if ok { // another was quicker
		spare = stmt
	} else {
		if s.kept.Len() >= preparedLimit {
			_, oldest, _ := s.kept.RemoveOldest()
			spare = oldest.drop()
		}
		used = &statement{Stmt: stmt}
		s.kept.Add(query, used)
	}
	used.users++
	s.mutex.Unlock()
	closeSpare(spare)
	return used
}

// drop returns what is to be closed at once, if anything.
func (st *statement) drop() *sql.Stmt {
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

// closeSpare closes a statement that nobody will run any more.
func closeSpare(stmt *sql.Stmt) {
	if stmt != nil {
		_ = stmt.Close() // it is of no use, whatever becomes of it
	}
}

// ExecContext implements sqlcore.Queryer.
func (s *statements) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if stmt := s.use(ctx, query); stmt != nil {
		defer s.release(stmt)
		return stmt.ExecContext(ctx, args...)
	}
	return s.conn.ExecContext(ctx, query, args...)
}

// QueryContext implements sqlcore.Queryer.
func (s *statements) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if stmt := s.use(ctx, query); stmt != nil {
		defer s.release(stmt)
		return stmt.QueryContext(ctx, args...)
	}
	return s.conn.QueryContext(ctx, query, args...)
}

// QueryRowContext implements sqlcore.Queryer.
func (s *statements) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if stmt := s.use(ctx, query); stmt != nil {
		defer s.release(stmt)
		return stmt.QueryRowContext(ctx, args...)
	}
	return s.conn.QueryRowContext(ctx, query, args...)
}

// close gives the statements back.
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
