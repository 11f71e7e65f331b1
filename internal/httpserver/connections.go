// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// shedPart is the part of a listener's connections that is closed at once when it is full, so that
// they are searched rarely.
const shedPart = 64

// connections are the open connections of a listener. If it is full, it closes connections without
// an active request: idle ones, and new ones whose first header is incomplete.
type connections struct {
	proxies Proxies
	now     func() time.Time

	mutex sync.Mutex
	open  map[*boundedConn]*connection
	from  map[netip.Prefix]int // open connections by address, without proxies
	full  bool
}

// connection is an open connection.
type connection struct {
	from    netip.Prefix // invalid for a proxy, which has many clients
	waiting bool         // waiting for a request's header
	since   time.Time    // start of the wait
}

func newConnections(proxies Proxies, now func() time.Time) *connections {
	return &connections{proxies: proxies, now: now, open: map[*boundedConn]*connection{}, from: map[netip.Prefix]int{}}
}

// addConn counts an accepted connection.
func (c *connections) addConn(conn *boundedConn) {
	at := &connection{from: c.originOf(conn.RemoteAddr()), waiting: true, since: c.now()}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.open[conn] = at
	c.from[at.from]++
}

// originOf returns the address that a connection counts for.
func (c *connections) originOf(remote net.Addr) netip.Prefix {
	address, err := netip.ParseAddrPort(remote.String())
	if err != nil || c.proxies.isTrusted(address.Addr().Unmap()) {
		return netip.Prefix{}
	}
	return network(address.Addr().Unmap())
}

func (c *connections) removeConn(conn *boundedConn) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	at, open := c.open[conn]
	if !open {
		return
	}
	delete(c.open, conn)
	if c.from[at.from]--; c.from[at.from] == 0 {
		delete(c.from, at.from)
	}
}

// recordState records the state of a connection, as http.Server.ConnState.
func (c *connections) recordState(conn net.Conn, state http.ConnState) {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secure.NetConn()
	}
	bounded, ok := conn.(*boundedConn)
	if ok && c.recordWaiting(bounded, state == http.StateNew || state == http.StateIdle) {
		_ = bounded.Close() // its slot is needed
	}
}

// recordWaiting records whether a connection waits for a header. It returns true if the connection must be
// closed, because no idle connection is kept while others wait.
func (c *connections) recordWaiting(conn *boundedConn, waiting bool) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	at, open := c.open[conn]
	if !open {
		return false
	}
	fresh := waiting && at.waiting // net/http reports a known state of a new connection
	at.waiting, at.since = waiting, c.now()
	return waiting && !fresh && c.full
}

// shedConns closes connections now and as long as the listener is full.
func (c *connections) shedConns() {
	for _, conn := range c.idleConns() {
		_ = conn.Close() // the client expects no response
	}
}

// idleConns returns the connections to close: first from the addresses with most connections, so that
// one address cannot use all slots, and per address the longest waiting ones.
func (c *connections) idleConns() (conns []*boundedConn) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.full = true
	for conn, at := range c.open {
		if at.waiting {
			conns = append(conns, conn)
		}
	}
	slices.SortFunc(conns, func(a, b *boundedConn) int {
		x, y := c.open[a], c.open[b]
		return cmp.Or(cmp.Compare(c.connWeight(y), c.connWeight(x)), x.since.Compare(y.since))
	})
	return conns[:min(len(conns), max(len(c.open)/shedPart, 1))]
}

func (c *connections) connWeight(at *connection) int {
	if !at.from.IsValid() {
		return 0
	}
	return c.from[at.from]
}

// endShedding ends shedding when the listener is no longer full.
func (c *connections) endShedding() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.full = false
}
