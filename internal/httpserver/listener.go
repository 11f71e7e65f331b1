// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"net"
	"sync"
	"time"
)

// boundedListener accepts connections whose every write has a deadline, and so many
// at a time. Those beyond wait until one is closed.
type boundedListener struct {
	net.Listener
	timeout time.Duration
	places  chan struct{} // holds one for each open connection
	closed  chan struct{}
	close   func() error // once
}

func newBoundedListener(inner net.Listener, timeout time.Duration, connections int) *boundedListener {
	l := &boundedListener{Listener: inner, timeout: timeout, places: make(chan struct{}, connections), closed: make(chan struct{})}
	l.close = sync.OnceValue(func() error {
		close(l.closed)
		return inner.Close()
	})
	return l
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &boundedConn{Conn: conn, timeout: l.timeout, left: sync.OnceFunc(func() { <-l.places })}, nil
}

// Close implements net.Listener.
func (l *boundedListener) Close() error { return l.close() }
