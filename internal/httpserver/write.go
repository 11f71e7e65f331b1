// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// writeTimeout ends clients that do not read: it is how long each piece of an
	// answer may take. How long a handler takes before it writes does not count.
	writeTimeout = 30 * time.Second
	// writePiece is the most bytes that are written with one deadline, so that an
	// answer may take the longer the larger it is.
	writePiece = 64 << 10
)

// boundedConn gives each write a deadline, also one that TLS or HTTP/2 makes by
// themselves.
type boundedConn struct {
	net.Conn
	timeout time.Duration
	left    func() // tells the listener that the connection is closed

	mutex sync.Mutex
	until time.Time // the deadline that was asked for, or none
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	defer c.left()
	return c.Conn.Close()
}

// Write implements net.Conn.
func (c *boundedConn) Write(p []byte) (written int, err error) {
	for {
		piece := p[written:min(len(p), written+writePiece)]
		if err := c.bound(); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(piece)
		if written += n; err != nil || written >= len(p) {
			return written, err
		}
	}
}

// bound sets the deadline of what is being written or is written next.
func (c *boundedConn) bound() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	deadline := time.Now().Add(c.timeout)
	if !c.until.IsZero() && c.until.Before(deadline) {
		deadline = c.until
	}
	return c.Conn.SetWriteDeadline(deadline)
}

// SetWriteDeadline implements net.Conn; a later deadline, or none, is kept to as
// well but lets no single write take longer.
func (c *boundedConn) SetWriteDeadline(t time.Time) error {
	c.mutex.Lock()
	c.until = t
	c.mutex.Unlock()
	return c.bound()
}

// SetDeadline implements net.Conn.
func (c *boundedConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// CloseWrite is for net/http, which ends a connection with it, so that the client
// reads the answer to a body that was not read.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// noDeadline is as good as none. A timer that was set once is kept, so that
// net/http sees that a stream has ended and sets none on it.
const noDeadline = 24 * time.Hour

// stream bounds writes to a stream of HTTP/2. Its client may read from the
// connection and yet take nothing of the stream, so that no write to the
// connection is ever late.
type stream struct {
	w       http.ResponseWriter
	timeout time.Duration
	until   time.Time // the deadline that was asked for, or none
	written bool
}

func (s *stream) write(p []byte) (written int, err error) {
	s.written = true
	defer s.within(noDeadline)
	for {
		s.bound()
		n, err := s.w.Write(p[written:min(len(p), written+writePiece)])
		if written += n; err != nil || written >= len(p) {
			return written, err
		}
	}
}

// end bounds what net/http writes once the handler has returned.
func (s *stream) end() {
	if s.written {
		s.bound()
	}
}

// bound sets the deadline of what is written next.
func (s *stream) bound() {
	allowed := s.timeout
	if !s.until.IsZero() {
		allowed = min(allowed, time.Until(s.until))
	}
	s.within(allowed)
}

func (s *stream) within(d time.Duration) {
	_ = http.NewResponseController(s.w).SetWriteDeadline(time.Now().Add(d)) // a stream of HTTP/2 has them
}
