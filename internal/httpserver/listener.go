// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"net"
	"sync"
	"time"
)

// boundedListener accepts connections whose every write has a deadline, and so many
// at a time. For one beyond, others are closed that ask nothing; where none does, it
// waits.
type boundedListener struct {
	net.Listener
	timeout time.Duration
	places  chan struct{} // holds one for each open connection
	open    *connections
	closed  chan struct{}
	close   func() error // once
}

func newBoundedListener(inner net.Listener, timeout time.Duration, limit int, open *connections) *boundedListener {
	l := &boundedListener{Listener: inner, timeout: timeout, places: make(chan struct{}, limit), open: open, closed: make(chan struct{})}
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
	if err := l.enter(); err != nil {
		_ = inner.Close() // nobody has asked it anything
		return nil, err
	}
	conn := &boundedConn{Conn: inner, timeout: l.timeout}
	conn.left = sync.OnceFunc(func() {
		l.open.remove(conn)
		<-l.places
	})
	l.open.add(conn)
	return conn, nil
}

// enter takes a place for a connection that is there.
func (l *boundedListener) enter() error {
	select {
	case l.places <- struct{}{}:
		return nil
	default:
	}
	defer l.open.roomy()
	l.open.shed()
	select {
	case l.places <- struct{}{}:
		return nil
	case <-l.closed:
		return net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *boundedListener) Close() error { return l.close() }
