// SPDX-License-Identifier: Apache-2.0

// Package egress is the only way to connect to addresses that tenants name: Git servers, models,
// MCP servers and webhooks. It provides a dialer and an HTTP client.
//
// It checks addresses when it connects, after it has resolved the name, so a name cannot change its
// address after the check. It resolves names of a private network only if the platform operator has
// allowed a part of it. It allows public addresses and the ranges that the operator allows for the
// purpose, without the denied ranges. Plain http works only for the allowed ranges. It follows no
// redirects, uses no proxies and limits responses.
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

// ErrForbidden means that an address is not allowed.
var ErrForbidden = errors.New("destination is not allowed")

// forbiddenError is an ErrForbidden with its remedy.
type forbiddenError struct {
	error
	remedy string
}

// Unwrap returns the error without the remedy.
func (e *forbiddenError) Unwrap() error { return e.error }

// DescribeForbidden returns the message for an ErrForbidden about the thing that has the address, such as "the address of the tool".
// It names the remedy and contains no address.
func DescribeForbidden(address string, err error) string {
	text := address + " is not allowed"
	if forbidden := new(forbiddenError); errors.As(err, &forbidden) {
		text += "; " + forbidden.remedy
	}
	return text
}

// dialTimeout limits resolving and connecting.
const dialTimeout = 10 * time.Second

// Guard decides which addresses are allowed.
type Guard struct {
	rules Rules
	// reachable are the allowed blocks by purpose. opened are the blocks that the operator allowed.
	reachable, opened map[Purpose][]Block
	resolver          *net.Resolver // nil for the system's resolver
}

// New returns a guard.
func New(rules Rules) *Guard {
	g := &Guard{rules: rules, reachable: map[Purpose][]Block{}, opened: map[Purpose][]Block{}}
	for _, purpose := range purposes {
		g.reachable[purpose], g.opened[purpose] = rules.Blocks(purpose), rules.allowedBlocks(purpose)
	}
	return g
}

// DialContext connects to an address for a purpose. It returns ErrForbidden if the address is not
// allowed.
func (g *Guard) DialContext(purpose Purpose) func(ctx context.Context, network, address string) (net.Conn, error) {
	return g.newDialer(purpose, g.reachable[purpose], "is not a public address; "+g.rules.remedy(purpose))
}

// dialAllowed connects only to the operator's ranges.
func (g *Guard) dialAllowed(purpose Purpose) func(ctx context.Context, network, address string) (net.Conn, error) {
	return g.newDialer(purpose, g.opened[purpose], "cannot be used with plain http; use https, or "+g.rules.remedy(purpose))
}

// newDialer connects to addresses in blocks. For other addresses its error ends with refusal.
func (g *Guard) newDialer(purpose Purpose, blocks []Block, refusal string) func(ctx context.Context, network, address string) (net.Conn, error) {
	d := &net.Dialer{
		Timeout:   dialTimeout,
		KeepAlive: 30 * time.Second,
		Resolver:  g.resolver,
		Control: func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrForbidden, err)
			}
			addr := to.Addr().Unmap() // the system connects to the embedded IPv4 address
			switch {
			case contains(g.rules.Denied, addr) && g.rules.Local:
				return fmt.Errorf("%w: %s; %s", ErrForbidden, addr, g.rules.remedy(purpose))
			case contains(g.rules.Denied, addr):
				return fmt.Errorf("%w: the operator denies the range of %s", ErrForbidden, addr)
			case !slices.ContainsFunc(blocks, func(b Block) bool { return b.Contains(addr) }):
				return fmt.Errorf("%w: %s %s", ErrForbidden, addr, refusal)
			}
			return nil
		},
	}
	dial := g.resolvingDial(d.DialContext, purpose, refusal)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if errors.Is(err, ErrForbidden) {
			return nil, &forbiddenError{err, g.rules.remedy(purpose)}
		}
		return conn, err
	}
}
