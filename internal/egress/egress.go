// SPDX-License-Identifier: Apache-2.0

// Package egress is the one way out: the dialer and the HTTP client for
// everything that leaves towards addresses that tenants name (Git servers,
// models, MCP servers, webhooks).
//
// Addresses are checked when dialling, after names are resolved, so that a name
// cannot change its address between check and use; names of a private network are looked
// up only where the operator has opened some of it. Only public addresses are
// allowed, and ranges that the operator named for that purpose, less those that
// the operator denied. Plain http goes to the named ranges only. Redirects are
// never followed, proxies never used, and answers are cut off at a limit.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// ErrForbidden says that an address may not be reached.
var ErrForbidden = errors.New("destination is not allowed")

// dialTimeout bounds resolving and connecting.
const dialTimeout = 10 * time.Second

// Guard decides which addresses may be reached.
type Guard struct {
	denied []netip.Prefix
	// reachable is by purpose what may be reached, opened what of it the operator
	// allowed.
	reachable, opened map[Purpose][]Block
	resolver          *net.Resolver // nil for the system's
}

// New makes a guard.
func New(rules Rules) *Guard {
	g := &Guard{denied: rules.Denied, reachable: map[Purpose][]Block{}, opened: map[Purpose][]Block{}}
	for _, purpose := range purposes {
		g.reachable[purpose], g.opened[purpose] = rules.Blocks(purpose), rules.opened(purpose)
	}
	return g
}

// DialContext connects to an address for a purpose; ErrForbidden when it is
// not allowed.
func (g *Guard) DialContext(purpose Purpose) func(ctx context.Context, network, address string) (net.Conn, error) {
	return g.dialer(purpose, g.reachable[purpose], "is not a public address, and the operator has not allowed its range for "+string(purpose))
}

// dialAllowed connects to the operator's ranges only.
func (g *Guard) dialAllowed(purpose Purpose) func(ctx context.Context, network, address string) (net.Conn, error) {
	return g.dialer(purpose, g.opened[purpose], "is asked for by plain http; use https, or let the operator allow the range for "+string(purpose))
}

// dialer connects to addresses in blocks; otherwise the error ends with refusal.
func (g *Guard) dialer(purpose Purpose, blocks []Block, refusal string) func(ctx context.Context, network, address string) (net.Conn, error) {
	d := &net.Dialer{
		Timeout:   dialTimeout,
		KeepAlive: 30 * time.Second,
		Resolver:  g.resolver,
		Control: func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrForbidden, err)
			}
			addr := to.Addr().Unmap() // the system connects to the IPv4 address in it
			switch {
			case contains(g.denied, addr):
				return fmt.Errorf("%w: the operator has denied the range of %s", ErrForbidden, addr)
			case !slices.ContainsFunc(blocks, func(b Block) bool { return b.Contains(addr) }):
				return fmt.Errorf("%w: %s %s", ErrForbidden, addr, refusal)
			}
			return nil
		},
	}
	return named(d.DialContext, len(g.opened[purpose]) > 0, purpose)
}
