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

// poolerPID is in the greeting of a pooler, and is no process of a server.
const poolerPID = 1 << 30

// pooler imitates PgBouncer between clients and a server: it rejects unknown parameters, and its
// greeting names no process of the server.
type pooler struct {
	net.Listener
	dsn string
	// next chooses one of the free sessions for each transaction, by the number of takes since
	// fill; the last session was used last. If it is nil, each client keeps its session.
	next func(free, takes int) int

	mutex sync.Mutex
	free  []*pgconn.HijackedConn
	takes int
	all   []net.Conn
}

// poolerBefore returns a pooler in front of a database, and the DSN through it.
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
			served.Go(func() { p.serveClient(client) })
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

// take returns a free session, or a new one.
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

// serveClient forwards the messages of a client, one request at a time.
func (p *pooler) serveClient(conn net.Conn) {
	defer func() { _ = conn.Close() }() // the client has gone, or is rejected
	client := pgproto3.NewBackend(conn, conn)
	if !greetClient(client) {
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

// greetClient accepts a client that requests only what PgBouncer supports.
func greetClient(client *pgproto3.Backend) bool {
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

// answer forwards the response of a session up to the end of a request, without the end, and
// reports whether a transaction is open then.
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

// Behind a pooler in session mode, session settings have the same effect as without a pooler.
func TestOpen_AcceptsSessionPooler(t *testing.T) {
	t.Parallel()
	_, dsn := poolerBefore(t, testenv.Postgres(t), nil)
	s := openedStore(t, Options{DSN: dsn})
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

// A pooler in transaction mode is rejected, whichever session it chooses.
func TestOpen_RejectsTransactionPooler(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(free, takes int) int{
		"the one used last": func(free, _ int) int { return free - 1 },
		"the oldest":        func(int, int) int { return 0 },
		// As if another client had the first session when the other connection needs one.
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
				p.freeSessions(t)
				require.ErrorIs(t, of.checkShared(t.Context(), conn), errShared)
				require.NoError(t, conn.Close(t.Context()))
			}
		})
	}
}

// freeSessions makes two sessions free.
func (p *pooler) freeSessions(t *testing.T) {
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

// patient never times out.
func patient(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}
