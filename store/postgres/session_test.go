// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// poolerPID is in the greeting of a pooler, and no process of a server.
const poolerPID = 1 << 30

// pooler stands between clients and a server as PgBouncer does: it refuses parameters that
// it does not know, and its greetings name no process of the server.
type pooler struct {
	net.Listener
	dsn string
	// next, where each transaction gets whatever session is free, says which of so many, at
	// which take since fill; the last one was used last. nil where a session stays.
	next func(free, takes int) int

	mutex sync.Mutex
	free  []*pgconn.HijackedConn
	takes int
	all   []net.Conn
}

// poolerBefore is a pooler before a database, and the DSN by way of it.
func poolerBefore(t *testing.T, dsn string, next func(free, takes int) int) (*pooler, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &pooler{Listener: listener, dsn: dsn, next: next}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			client, err := p.Accept()
			if err != nil {
				return // the test is over
			}
			p.keep(client)
			served.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.mutex.Lock()
		for _, conn := range p.all {
			_ = conn.Close()
		}
		p.mutex.Unlock()
		served.Wait()
	})
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.Host = listener.Addr().String()
	return p, u.String()
}

// keep closes a connection with the test.
func (p *pooler) keep(conn net.Conn) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.all = append(p.all, conn)
}

// take is a free session, or a new one.
func (p *pooler) take() (*pgconn.HijackedConn, error) {
	p.mutex.Lock()
	if n := len(p.free); n > 0 {
		p.takes++
		i := p.next(n, p.takes)
		taken := p.free[i]
		p.free = slices.Delete(p.free, i, i+1)
		p.mutex.Unlock()
		return taken, nil
	}
	p.mutex.Unlock()
	conn, err := pgconn.Connect(context.Background(), p.dsn)
	if err != nil {
		return nil, err
	}
	made, err := conn.Hijack()
	if err != nil {
		return nil, err
	}
	p.keep(made.Conn)
	return made, nil
}

func (p *pooler) release(session *pgconn.HijackedConn) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.free = append(p.free, session)
}

// serve carries the messages of a client, a request at a time.
func (p *pooler) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }() // the client has gone, or is refused
	client := pgproto3.NewBackend(conn, conn)
	if !greet(client) {
		return
	}
	var session *pgconn.HijackedConn
	for {
		message, err := client.Receive()
		if _, leaves := message.(*pgproto3.Terminate); leaves || err != nil {
			if session != nil {
				_ = session.Conn.Close()
			}
			return
		}
		if session == nil {
			if session, err = p.take(); err != nil {
				return
			}
		}
		session.Frontend.Send(message)
		switch message.(type) {
		case *pgproto3.Query, *pgproto3.Sync:
		default:
			continue
		}
		status, err := answer(client, session)
		if err != nil {
			return
		}
		if p.next != nil && status == 'I' {
			p.release(session) // before the client knows
			session = nil
		}
		if client.Flush() != nil {
			return
		}
	}
}

// greet lets a client in that asks for no more than PgBouncer gives.
func greet(client *pgproto3.Backend) bool {
	message, err := client.ReceiveStartupMessage()
	start, ok := message.(*pgproto3.StartupMessage)
	if err != nil || !ok {
		return false
	}
	for name := range start.Parameters {
		if !slices.Contains([]string{"user", "database", "application_name", "client_encoding"}, name) {
			client.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: " + name})
			_ = client.Flush()
			return false
		}
	}
	client.Send(&pgproto3.AuthenticationOk{})
	client.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
	client.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
	client.Send(&pgproto3.BackendKeyData{ProcessID: poolerPID, SecretKey: []byte{0, 0, 0, 1}})
	client.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	return client.Flush() == nil
}

// answer carries what a session says to the end of a request, the end itself not yet, and says
// whether a transaction is open then.
func answer(client *pgproto3.Backend, session *pgconn.HijackedConn) (status byte, err error) {
	if err := session.Frontend.Flush(); err != nil {
		return 0, err
	}
	for {
		message, err := session.Frontend.Receive()
		if err != nil {
			return 0, err
		}
		client.Send(message)
		if ready, last := message.(*pgproto3.ReadyForQuery); last {
			return ready.TxStatus, nil
		}
	}
}

// TestASessionThatStaysIsAllThatAPoolerHasToGive: what is set in it holds as it does without one.
func TestASessionThatStaysIsAllThatAPoolerHasToGive(t *testing.T) {
	t.Parallel()
	_, dsn := poolerBefore(t, testenv.Postgres(t), nil)
	s := opened(t, Options{DSN: dsn})
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Ping(t.Context()))
	storebench.NewScene(t, s, 2).Trip(t.Context(), t)
	for i, mode := range []string{"force_generic_plan", "force_custom_plan"} {
		var planned, limit, scans string
		require.NoError(t, s.pools[i].QueryRow(t.Context(), `SELECT current_setting('plan_cache_mode'), current_setting('idle_in_transaction_session_timeout'), current_setting('enable_seqscan')`).
			Scan(&planned, &limit, &scans))
		require.Equal(t, []string{mode, "1min", "off"}, []string{planned, limit, scans})
	}
}

// TestAPoolerOfTransactionsIsRefused: whichever session it gives next, and for as long as
// it does.
func TestAPoolerOfTransactionsIsRefused(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(free, takes int) int{
		"the one used last": func(free, _ int) int { return free - 1 },
		"the oldest":        func(int, int) int { return 0 },
		// As if somebody else had the first one just when the other connection asks.
		"the one used last, but once": func(free, takes int) int {
			if takes == 3 {
				return max(free-2, 0)
			}
			return free - 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, dsn := poolerBefore(t, testenv.Postgres(t), next)
			of := &sessions{withTimeout: patient}
			for range 3 {
				conn, err := pgx.Connect(t.Context(), dsn)
				require.NoError(t, err)
				p.fill(t)
				require.ErrorIs(t, of.check(t.Context(), conn), errShared)
				require.NoError(t, conn.Close(t.Context()))
			}
		})
	}
}

// fill makes two sessions free.
func (p *pooler) fill(t *testing.T) {
	t.Helper()
	p.mutex.Lock()
	p.free = nil
	p.mutex.Unlock()
	first, err := p.take()
	require.NoError(t, err)
	second, err := p.take()
	require.NoError(t, err)
	p.release(first)
	p.release(second)
	p.mutex.Lock()
	p.takes = 0
	p.mutex.Unlock()
}

// patient waits for as long as it takes.
func patient(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}
