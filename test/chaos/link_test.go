// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"io"
	"net"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// link carries connections between a gateway and the database, and breaks.
type link struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	down  bool
	pairs map[*pair]struct{}
	deaf  []*net.TCPConn // silenced, and kept open for that
}

// pair is a connection through the link: near is the gateway's side, far the database's side.
type pair struct{ near, far *net.TCPConn }

func newLink(t *testing.T, to string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", loopback(freePort(t)))
	require.NoError(t, err)
	l := &link{listener: listener, to: to, pairs: map[*pair]struct{}{}}
	go l.accept()
	t.Cleanup(func() {
		_ = listener.Close() // ends accept
		l.cut()
		for _, conn := range l.deaf {
			_ = conn.Close()
		}
	})
	return l
}

func (l *link) addr() string { return l.listener.Addr().String() }

func (l *link) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return // the test is over
		}
		go l.carry(near.(*net.TCPConn))
	}
}

// carry connects a gateway to the database until one of both hangs up.
func (l *link) carry(near *net.TCPConn) {
	far, err := net.Dial("tcp", l.to)
	if err != nil {
		_ = near.Close()
		return
	}
	p := &pair{near, far.(*net.TCPConn)}
	l.mu.Lock()
	if l.down {
		l.mu.Unlock()
		p.reset()
		return
	}
	l.pairs[p] = struct{}{}
	l.mu.Unlock()
	var both sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{p.near, p.far}, {p.far, p.near}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // it ends when either side does
			l.end(p)
		})
	}
	both.Wait()
}

// end closes a connection. It keeps a silenced connection open, so that the gateway does not notice.
func (l *link) end(p *pair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.pairs[p]; ok {
		delete(l.pairs, p)
		p.reset()
	}
}

// cut resets all connections, and each new one until the link is restored.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for p := range l.pairs {
		delete(l.pairs, p)
		p.reset()
	}
}

// restore lets new connections succeed again.
func (l *link) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

// silence simulates a failover without notice. The link stops taking, acknowledging and sending packets of the open
// connections, and the database has lost the connections. New connections succeed. silence returns the number of silent
// connections.
func (l *link) silence() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.pairs)
	for p := range l.pairs {
		if err := deafen(p.near); err != nil {
			return 0, err
		}
		delete(l.pairs, p)
		l.deaf = append(l.deaf, p.near)
		_ = p.far.SetLinger(0)
		_ = p.far.Close()
	}
	return n, nil
}

// deafen makes the kernel drop each incoming packet of a connection before TCP sees it. The connection does not even respond to
// a keepalive.
func deafen(conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var attached error
	err = raw.Control(func(fd uintptr) {
		none := []syscall.SockFilter{{Code: syscall.BPF_RET | syscall.BPF_K, K: 0}} // keeps no byte
		attached = syscall.AttachLsf(int(fd), none)                                 //nolint:staticcheck // what took its place has no TCP connections
	})
	if err != nil {
		return err
	}
	return attached
}

// reset closes both ends without waiting for anything.
func (p *pair) reset() {
	for _, conn := range []*net.TCPConn{p.near, p.far} {
		_ = conn.SetLinger(0)
		_ = conn.Close()
	}
}
