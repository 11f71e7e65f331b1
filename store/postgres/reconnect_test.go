// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store"
)

// swallower forwards connections to a server. After a client sends the trigger on a connection,
// everything sent on it is accepted and dropped.
type swallower struct {
	net.Listener
	to       string
	trigger  []byte
	once     sync.Once
	swallows chan struct{}   // closed when it starts to drop
	ctx      context.Context //nolint:containedctx // of the test; connections end with it
}

// swallowing returns a swallower in front of a database, and the DSN of the database through it.
func swallowing(t *testing.T, dsn, trigger string) (*swallower, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	s := &swallower{Listener: listener, to: u.Host, trigger: []byte(trigger), swallows: make(chan struct{}), ctx: ctx}
	var carried sync.WaitGroup
	carried.Go(func() {
		for {
			near, err := s.Accept()
			if err != nil {
				return // the test is over
			}
			carried.Go(func() { s.forwardBytes(near) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		end()
		carried.Wait()
	})
	u.Host = listener.Addr().String()
	return s, u.String()
}

// forwardBytes connects a client to the server until it disconnects.
func (s *swallower) forwardBytes(near net.Conn) {
	defer func() { _ = near.Close() }()
	stop := context.AfterFunc(s.ctx, func() { _ = near.Close() })
	defer stop()
	far, err := net.Dial("tcp", s.to)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	var deaf atomic.Bool
	go func() {
		_, _ = io.Copy(near, far) // it ends when either side does
		if !deaf.Load() {
			_ = near.Close()
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := near.Read(buffer)
		if err != nil {
			return
		}
		if !deaf.Load() && bytes.Contains(buffer[:n], s.trigger) {
			s.once.Do(func() {
				deaf.Store(true)
				_ = far.Close()
				close(s.swallows)
			})
		}
		if deaf.Load() {
			continue
		}
		if _, err := far.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// patience has the timeouts that are running. A test ends them.
type patience struct {
	mutex sync.Mutex
	spans []*span
}

// span is a context whose deadline passes when the test says so.
type span struct {
	context.Context //nolint:containedctx // it implements context.Context
	after           time.Duration
	over            chan struct{}
	once            sync.Once
}

// Done implements context.Context.
func (s *span) Done() <-chan struct{} { return s.over }

// Err implements context.Context.
func (s *span) Err() error {
	select {
	case <-s.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func (s *span) end() { s.once.Do(func() { close(s.over) }) }

// begin is Options.withTimeout.
func (p *patience) begin(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	s := &span{Context: ctx, after: after, over: make(chan struct{})}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.spans = append(p.spans, s)
	stop := context.AfterFunc(ctx, s.end)
	return s, func() {
		stop()
		s.end()
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.spans = slices.DeleteFunc(p.spans, func(other *span) bool { return other == s })
	}
}

// end ends all running timeouts of a length, and reports whether there was any.
func (p *patience) end(after time.Duration) (some bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, s := range p.spans {
		if s.after == after {
			s.end()
			some = true
		}
	}
	return some
}

// openedStore returns a store that is closed with the test.
func openedStore(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// Every operation on a connection for hints has a timeout. Hints then continue on another
// connection.
func TestNotifier_ReconnectsAfterSilence(t *testing.T) {
	t.Parallel()
	for name, trigger := range map[string]string{
		"as it begins to listen": "LISTEN " + channel, "during the check after a silence": "-- ping", "as it is sent hints": "pg_notify",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, times := testenv.Postgres(t), &patience{}
			proxy, by := swallowing(t, dsn, trigger)
			from, to := openedStore(t, Options{DSN: dsn}), openedStore(t, Options{DSN: by, withTimeout: times.begin})
			if trigger == "pg_notify" {
				from, to = to, from
			}
			heard, stop := to.Subscribe(store.TopicDone)
			defer stop()
			hint := store.Hint{Topic: store.TopicDone, Key: store.Key{ProjectID: uuid.New(), ID: uuid.New()}}
			passes := func() bool {
				from.notifier.queueHints([]store.Hint{hint})
				select {
				case got := <-heard:
					return got == hint
				default:
					return false
				}
			}
			require.Eventually(t, func() bool {
				if trigger == "-- ping" {
					times.end(idleCheckAfter)
				}
				passes()
				select {
				case <-proxy.swallows:
					return true
				default:
					return false
				}
			}, time.Minute, time.Millisecond)
			require.True(t, times.end(notifyTimeout), "its timeout runs")
			require.Eventually(t, passes, time.Minute, time.Millisecond)
		})
	}
}

// A connection that hangs while it is opened is closed. Otherwise it would keep a place in the pool
// forever.
func TestOpen_ClosesHangingConnection(t *testing.T) {
	t.Parallel()
	times := &patience{}
	proxy, by := swallowing(t, testenv.Postgres(t), "current_setting('fsync')")
	s := openedStore(t, Options{DSN: by, withTimeout: times.begin})
	asked := make(chan error, 1)
	go func() { asked <- s.db.PingContext(t.Context()) }()
	<-proxy.swallows
	require.True(t, times.end(connectTimeout))
	require.ErrorIs(t, <-asked, context.DeadlineExceeded)
	require.NoError(t, s.db.PingContext(t.Context()))
	require.EqualValues(t, 1, s.pools[0].Stat().TotalConns())
}
