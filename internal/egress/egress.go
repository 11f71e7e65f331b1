// SPDX-License-Identifier: Apache-2.0

// Package egress is the one way out: the dialer and the HTTP client for
// everything that leaves towards addresses that tenants name (Git servers,
// models, MCP servers, webhooks).
//
// Addresses are checked when dialling, after names are resolved, so that a name
// cannot change its address between check and use. Only public addresses are
// allowed, and ranges that the operator named for that purpose. Plain http goes
// to those ranges only. Redirects are never followed, proxies never used, and
// answers are cut off at a limit.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// Purpose says what a connection is for.
type Purpose string

// Purposes.
const (
	Git     Purpose = "git"
	Model   Purpose = "model"
	MCP     Purpose = "mcp"
	Webhook Purpose = "webhook"
)

var purposes = []Purpose{Git, Model, MCP, Webhook}

// ErrForbidden says that an address may not be reached.
var ErrForbidden = errors.New("destination is not allowed")

// dialTimeout bounds resolving and connecting.
const dialTimeout = 10 * time.Second

// metadata are addresses of cloud metadata services in public ranges.
var metadata = []netip.Prefix{netip.MustParsePrefix("168.63.129.16/32")}

// Allowed are the ranges that the operator opened, by purpose.
type Allowed map[Purpose][]netip.Prefix

// ParseAllowed reads what operators write: "git=10.0.0.0/8,model=fd00::/8",
// a purpose as often as needed. An error says what is wrong.
func ParseAllowed(text string) (Allowed, error) {
	allowed := Allowed{}
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		name, cidr, _ := strings.Cut(item, "=")
		prefix, err := netip.ParsePrefix(strings.TrimSpace(cidr))
		if err != nil {
			return nil, fmt.Errorf("allowed range %q is not of the form purpose=CIDR: %w", item, err)
		}
		purpose := Purpose(strings.TrimSpace(name))
		if !purpose.known() {
			return nil, fmt.Errorf("allowed range %q: purpose must be one of git, model, mcp, webhook", item)
		}
		allowed[purpose] = append(allowed[purpose], prefix.Masked())
	}
	return allowed, nil
}

func (p Purpose) known() bool {
	for _, known := range purposes {
		if p == known {
			return true
		}
	}
	return false
}

// Guard decides which addresses may be reached.
type Guard struct {
	allowed Allowed
	public  map[Purpose]*ssrf.Guardian
}

// New makes a guard; a nil allowed opens no range.
func New(allowed Allowed) *Guard {
	g := &Guard{allowed: allowed, public: map[Purpose]*ssrf.Guardian{}}
	for _, purpose := range purposes {
		var v4, v6 []netip.Prefix
		for _, prefix := range allowed[purpose] {
			if prefix.Addr().Is4() {
				v4 = append(v4, prefix)
			} else {
				v6 = append(v6, prefix)
			}
		}
		g.public[purpose] = ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(metadata...),
			ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...))
	}
	return g
}

// DialContext connects to an address for a purpose; ErrForbidden when it is
// not allowed.
func (g *Guard) DialContext(purpose Purpose) func(ctx context.Context, network, address string) (net.Conn, error) {
	return dialer(func(network, address string) error {
		guardian, ok := g.public[purpose]
		if !ok {
			return fmt.Errorf("%w: unknown purpose %q", ErrForbidden, purpose)
		}
		if err := guardian.Safe(network, address, nil); err != nil {
			return fmt.Errorf("%w: %s is not a public address, and the operator has not allowed its range for %s", ErrForbidden, host(address), purpose)
		}
		return nil
	})
}

// dialAllowed connects to the operator's ranges only.
func (g *Guard) dialAllowed(purpose Purpose) func(ctx context.Context, network, address string) (net.Conn, error) {
	return dialer(func(_, address string) error {
		addr, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrForbidden, err)
		}
		for _, prefix := range g.allowed[purpose] {
			if prefix.Contains(addr.Addr()) {
				return nil
			}
		}
		return fmt.Errorf("%w: plain http to %s; use https, or let the operator allow the range for %s", ErrForbidden, addr.Addr(), purpose)
	})
}

func dialer(check func(network, address string) error) func(ctx context.Context, network, address string) (net.Conn, error) {
	d := &net.Dialer{
		Timeout:   dialTimeout,
		KeepAlive: 30 * time.Second,
		Control:   func(network, address string, _ syscall.RawConn) error { return check(network, address) },
	}
	return d.DialContext
}

func host(address string) string {
	if addr, err := netip.ParseAddrPort(address); err == nil {
		return addr.Addr().String()
	}
	return address
}
