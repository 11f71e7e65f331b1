// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// privateDomains are the last labels of names that no public DNS answers: those of a machine,
// of a local network, and of a Kubernetes cluster, whose services are x.y.svc and
// x.y.svc.cluster.local.
var privateDomains = map[string]bool{"localhost": true, "local": true, "internal": true, "svc": true}

// isPrivate says whether a name means something inside a network only.
func isPrivate(name string) bool {
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	return privateDomains[name[strings.LastIndexByte(name, '.')+1:]] || !strings.Contains(name, ".")
}

// named lets names be looked up only as far as nobody learns from it which services there
// are: those of the inside not at all where nothing of the inside is opened, and else a name
// that is not there is refused as one is that is. Others are looked up as they stand, not
// below the domains that the resolver of a pod adds.
func named(dial func(ctx context.Context, network, address string) (net.Conn, error), opened bool, purpose Purpose) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		name, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrForbidden, err)
		}
		if _, err := netip.ParseAddr(name); err == nil {
			return dial(ctx, network, address)
		}
		private := isPrivate(name)
		switch {
		case private && !opened:
			return nil, fmt.Errorf("%w: %q is a name of a private network, and the operator has allowed no range for %s", ErrForbidden, name, purpose)
		case !private && !strings.HasSuffix(name, "."):
			address = net.JoinHostPort(name+".", port)
		}
		conn, err := dial(ctx, network, address)
		if private && errors.As(err, new(*net.DNSError)) {
			return nil, fmt.Errorf("%w: %q is not found, or not in a range that the operator has allowed for %s", ErrForbidden, name, purpose)
		}
		return conn, err
	}
}
