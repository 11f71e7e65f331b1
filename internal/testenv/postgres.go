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

// postgres is the server of this test binary and its databases.
var postgres struct {
	once   sync.Once
	server *server
	err    error

	numbered  atomic.Int64
	templates sync.Map // name → *template
}

// template is a database that is copied.
type template struct {
	once sync.Once
	name string
	err  error
}

// Postgres returns a fresh, empty database on the test binary's own PostgreSQL server, as a URL for
// pgx. It is dropped at the end of the test. The server is durable (fsync and synchronous_commit
// are on), accepts 200 connections and listens on loopback, so that other processes can use the
// database.
//
// In Ginkgo, call it with GinkgoTB().
func Postgres(tb testing.TB) (dsn string) {
	tb.Helper()
	return copyTemplate(tb, "template0")
}

// PostgresPrepared returns a fresh copy of a database that prepare fills once per test binary and
// name, so that migrations do not run for each test. prepare must close its connections.
func PostgresPrepared(tb testing.TB, name string, prepare func(dsn string) error) (dsn string) {
	tb.Helper()
	entry, _ := postgres.templates.LoadOrStore(name, &template{})
	t := entry.(*template)
	t.once.Do(func() {
		s := startedServer(tb)
		t.name = fmt.Sprintf("template_%d", postgres.numbered.Add(1))
		if t.err = s.execAdmin(tb.Context(), "CREATE DATABASE "+t.name+" TEMPLATE template0"); t.err == nil {
			t.err = prepare(s.databaseURL(t.name))
		}
	})
	if t.err != nil {
		tb.Fatalf("testenv: preparing database %q: %v", name, t.err)
	}
	return copyTemplate(tb, t.name)
}

// copyTemplate creates a database from a template.
func copyTemplate(tb testing.TB, from string) string {
	tb.Helper()
	s := startedServer(tb)
	name := fmt.Sprintf("test_%d", postgres.numbered.Add(1))
	if err := s.execAdmin(tb.Context(), "CREATE DATABASE "+name+" TEMPLATE "+from); err != nil {
		tb.Fatalf("testenv: creating database %q: %v", name, err)
	}
	tb.Cleanup(func() {
		// The test's context has already ended.
		if err := s.execAdmin(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			tb.Errorf("testenv: dropping database %q: %v", name, err)
		}
	})
	return s.databaseURL(name)
}

func startedServer(tb testing.TB) *server {
	tb.Helper()
	postgres.once.Do(func() { postgres.server, postgres.err = startServer() })
	if postgres.err != nil {
		tb.Fatalf("testenv: %v", postgres.err)
	}
	return postgres.server
}

// databaseURL returns the URL of a database of the server.
func (s *server) databaseURL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", s.password),
		Host:     "127.0.0.1:" + strconv.Itoa(s.port),
		Path:     database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// execAdmin executes one statement as the server's administrator.
func (s *server) execAdmin(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, s.databaseURL("postgres"))
	if err != nil {
		return fmt.Errorf("connecting to the test server: %w", err)
	}
	// Only the statement's error matters.
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, statement); err != nil {
		verb, _, _ := strings.Cut(statement, " ")
		return fmt.Errorf("running %s: %w", verb, err)
	}
	return nil
}
