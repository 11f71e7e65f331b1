// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

// postgres is the server of this test binary and what was made on it.
var postgres struct {
	once   sync.Once
	server *server
	err    error

	numbered  atomic.Int64
	templates sync.Map // name → *template
}

// template is a database that others are copied from.
type template struct {
	once sync.Once
	name string
	err  error
}

// Postgres gives a fresh, empty database on the test binary's own PostgreSQL
// server, as a URL that pgx understands. It is dropped when the test ends. The
// server is durable (fsync and synchronous_commit are on), takes 200 connections
// and listens on loopback, so that other processes may use the database too.
//
// From Ginkgo call it with GinkgoTB().
func Postgres(tb testing.TB) (dsn string) {
	tb.Helper()
	return copyOf(tb, "template0")
}

// PostgresPrepared gives a fresh copy of a database that prepare has filled, once
// for the test binary and name: migrations need not run for every test. prepare
// must close its connections.
func PostgresPrepared(tb testing.TB, name string, prepare func(dsn string) error) (dsn string) {
	tb.Helper()
	entry, _ := postgres.templates.LoadOrStore(name, &template{})
	t := entry.(*template)
	t.once.Do(func() {
		s := startedServer(tb)
		t.name = fmt.Sprintf("template_%d", postgres.numbered.Add(1))
		if t.err = s.exec(tb.Context(), "CREATE DATABASE "+t.name+" TEMPLATE template0"); t.err == nil {
			t.err = prepare(s.dsn(t.name))
		}
	})
	if t.err != nil {
		tb.Fatalf("testenv: preparing database %q: %v", name, t.err)
	}
	return copyOf(tb, t.name)
}

// copyOf makes a database out of a template.
func copyOf(tb testing.TB, from string) string {
	tb.Helper()
	s := startedServer(tb)
	name := fmt.Sprintf("test_%d", postgres.numbered.Add(1))
	if err := s.exec(tb.Context(), "CREATE DATABASE "+name+" TEMPLATE "+from); err != nil {
		tb.Fatalf("testenv: creating database %q: %v", name, err)
	}
	tb.Cleanup(func() {
		// Not the test's context: that has ended by now.
		if err := s.exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			tb.Errorf("testenv: dropping database %q: %v", name, err)
		}
	})
	return s.dsn(name)
}

func startedServer(tb testing.TB) *server {
	tb.Helper()
	postgres.once.Do(func() { postgres.server, postgres.err = startServer() })
	if postgres.err != nil {
		tb.Fatalf("testenv: %v", postgres.err)
	}
	return postgres.server
}

// dsn is the URL of a database of the server.
func (s *server) dsn(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", s.password),
		Host:     "127.0.0.1:" + strconv.Itoa(s.port),
		Path:     database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// exec runs one statement as the server's administrator.
func (s *server) exec(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, s.dsn("postgres"))
	if err != nil {
		return fmt.Errorf("connecting to the test server: %w", err)
	}
	// Closing only ends the connection; the statement's own error matters.
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, statement); err != nil {
		verb, _, _ := strings.Cut(statement, " ")
		return fmt.Errorf("running %s: %w", verb, err)
	}
	return nil
}
