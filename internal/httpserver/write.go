// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// writeTimeout limits the time of each piece of a response. The time before the handler writes
	// does not count.
	writeTimeout = 30 * time.Second
	// writePiece is the number of bytes with one deadline, so that a larger response can take
	// longer.
	writePiece = 64 << 10
)

// boundedConn gives each write a deadline, including writes of TLS and HTTP/2.
type boundedConn struct {
	net.Conn
	timeout time.Duration
	left    func() // tells the listener that the connection is closed

	mutex sync.Mutex
	until time.Time // requested deadline, or none
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
		if err := c.setWriteDeadline(); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(piece)
		if written += n; err != nil || written >= len(p) {
			return written, err
		}
	}
}

// setWriteDeadline sets the deadline of the current or next write.
func (c *boundedConn) setWriteDeadline() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	deadline := time.Now().Add(c.timeout)
	if !c.until.IsZero() && c.until.Before(deadline) {
		deadline = c.until
	}
	return c.Conn.SetWriteDeadline(deadline)
}

// SetWriteDeadline implements net.Conn. A later deadline also applies, but does not extend the time
// of a single write.
func (c *boundedConn) SetWriteDeadline(t time.Time) error {
	c.mutex.Lock()
	c.until = t
	c.mutex.Unlock()
	return c.setWriteDeadline()
}

// SetDeadline implements net.Conn.
func (c *boundedConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// CloseWrite is used by net/http to end a connection, so that the client can read the response to
// an unread body.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// noDeadline is effectively no deadline. The timer is kept, so that net/http detects the end of a
// stream and sets none on it.
const noDeadline = 24 * time.Hour

// stream limits writes to an HTTP/2 stream. Its client can read from the connection without reading
// from the stream, so no write to the connection would be late.
type stream struct {
	w       http.ResponseWriter
	timeout time.Duration
	until   time.Time // requested deadline, or none
	written bool
}

func (s *stream) writeChunk(p []byte) (written int, err error) {
	s.written = true
	defer s.extendDeadline(noDeadline)
	for {
		s.setWriteDeadline()
		n, err := s.w.Write(p[written:min(len(p), written+writePiece)])
		if written += n; err != nil || written >= len(p) {
			return written, err
		}
	}
}

// limitFinalWrites limits the writes of net/http after the handler has returned.
func (s *stream) limitFinalWrites() {
	if s.written {
		s.setWriteDeadline()
	}
}

// setWriteDeadline sets the deadline of the next write.
func (s *stream) setWriteDeadline() {
	allowed := s.timeout
	if !s.until.IsZero() {
		allowed = min(allowed, time.Until(s.until))
	}
	s.extendDeadline(allowed)
}

func (s *stream) extendDeadline(d time.Duration) {
	_ = http.NewResponseController(s.w).SetWriteDeadline(time.Now().Add(d)) // an HTTP/2 stream supports deadlines
}
