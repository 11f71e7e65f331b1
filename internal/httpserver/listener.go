// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"net"
	"sync"
	"time"
)

// boundedListener accepts a limited number of connections and gives each write a deadline. For a
// further connection it closes idle ones, or it waits.
type boundedListener struct {
	net.Listener
	timeout time.Duration
	slots   chan struct{} // one entry per open connection
	open    *connections
	closed  chan struct{}
	close   func() error // called once
}

func newBoundedListener(inner net.Listener, timeout time.Duration, limit int, open *connections) *boundedListener {
	l := &boundedListener{Listener: inner, timeout: timeout, slots: make(chan struct{}, limit), open: open, closed: make(chan struct{})}
	l.close = sync.OnceValue(func() error {
		close(l.closed)
		return inner.Close()
	})
	return l
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if err := l.acquireSlot(); err != nil {
		_ = inner.Close() // it has no request yet
		return nil, err
	}
	conn := &boundedConn{Conn: inner, timeout: l.timeout}
	conn.left = sync.OnceFunc(func() {
		l.open.removeConn(conn)
		<-l.slots
	})
	l.open.addConn(conn)
	return conn, nil
}

// acquireSlot takes a slot for an accepted connection.
func (l *boundedListener) acquireSlot() error {
	select {
	case l.slots <- struct{}{}:
		return nil
	default:
	}
	defer l.open.endShedding()
	l.open.shedConns()
	select {
	case l.slots <- struct{}{}:
		return nil
	case <-l.closed:
		return net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *boundedListener) Close() error { return l.close() }
