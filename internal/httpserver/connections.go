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

// shedPart is which part of a listener's connections is closed at once, at most,
// when it is full, so that they are looked through rarely.
const shedPart = 64

// connections are those that a listener has open. When there is no room for more,
// those are closed that ask nothing: they are kept alive for a request that may
// come, or their first request's header has not come whole.
type connections struct {
	proxies Proxies
	now     func() time.Time

	mutex sync.Mutex
	open  map[*boundedConn]*connection
	from  map[netip.Prefix]int // open ones by address, without those of proxies
	full  bool
}

// connection is an open one.
type connection struct {
	from    netip.Prefix // invalid of a proxy, whose clients are many
	waiting bool         // for a request's header
	since   time.Time    // it does
}

func newConnections(proxies Proxies, now func() time.Time) *connections {
	return &connections{proxies: proxies, now: now, open: map[*boundedConn]*connection{}, from: map[netip.Prefix]int{}}
}

// add counts a connection that was accepted.
func (c *connections) add(conn *boundedConn) {
	at := &connection{from: c.origin(conn.RemoteAddr()), waiting: true, since: c.now()}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.open[conn] = at
	c.from[at.from]++
}

// origin is the address that a connection counts for.
func (c *connections) origin(remote net.Addr) netip.Prefix {
	address, err := netip.ParseAddrPort(remote.String())
	if err != nil || c.proxies.trust(address.Addr().Unmap()) {
		return netip.Prefix{}
	}
	return network(address.Addr().Unmap())
}

func (c *connections) remove(conn *boundedConn) {
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

// moved notes what net/http says of a connection: it is http.Server.ConnState.
func (c *connections) moved(conn net.Conn, state http.ConnState) {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secure.NetConn()
	}
	bounded, ok := conn.(*boundedConn)
	if ok && c.waits(bounded, state == http.StateNew || state == http.StateIdle) {
		_ = bounded.Close() // its place is wanted
	}
}

// waits notes whether a connection waits for a header, and says whether it is to be
// closed: none that has had its answer is kept alive while others wait.
func (c *connections) waits(conn *boundedConn, waiting bool) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	at, open := c.open[conn]
	if !open {
		return false
	}
	fresh := waiting && at.waiting // net/http says of a new one what is known
	at.waiting, at.since = waiting, c.now()
	return waiting && !fresh && c.full
}

// shed makes room, now and for as long as the listener is full.
func (c *connections) shed() {
	for _, conn := range c.idle() {
		_ = conn.Close() // there is nobody to tell
	}
}

// idle are those to be closed: of the addresses with most connections first, for
// one alone is to hold no others' places, and of an address those that have waited
// longest.
func (c *connections) idle() (conns []*boundedConn) {
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
		return cmp.Or(cmp.Compare(c.weight(y), c.weight(x)), x.since.Compare(y.since))
	})
	return conns[:min(len(conns), max(len(c.open)/shedPart, 1))]
}

func (c *connections) weight(at *connection) int {
	if !at.from.IsValid() {
		return 0
	}
	return c.from[at.from]
}

// roomy says that the listener is full no more.
func (c *connections) roomy() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.full = false
}
