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

// privateDomains are the last labels of names that public DNS does not contain: names of a machine,
// of a local network, and of a Kubernetes cluster, whose services are x.y.svc and
// x.y.svc.cluster.local.
var privateDomains = map[string]bool{"localhost": true, "local": true, "internal": true, "svc": true}

// isPrivate reports whether a name belongs to a private network.
func isPrivate(name string) bool {
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	return privateDomains[name[strings.LastIndexByte(name, '.')+1:]] || !strings.Contains(name, ".")
}

// resolvingDial resolves names without revealing the services of the private network. If no private range
// is allowed, private names are not resolved. Otherwise an unknown name gets the same error as a
// forbidden one. Errors of names contain no address, and end with refusal if the address is forbidden.
// On a developer's machine, an unknown name gets the error of the resolver. Other names are resolved as absolute names, without the
// search domains of a pod.
func (g *Guard) resolvingDial(
	dial func(ctx context.Context, network, address string) (net.Conn, error), purpose Purpose, refusal string,
) func(ctx context.Context, network, address string) (net.Conn, error) {
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
		case private && len(g.opened[purpose]) == 0:
			return nil, fmt.Errorf("%w: %q is a name in a private network; %s", ErrForbidden, name, g.rules.remedy(purpose))
		case !private && !strings.HasSuffix(name, "."):
			address = net.JoinHostPort(name+".", port)
		}
		conn, err := dial(ctx, network, address)
		switch forbidden := errors.Is(err, ErrForbidden); {
		case private && (forbidden || !g.rules.Local && errors.As(err, new(*net.DNSError))):
			return nil, fmt.Errorf("%w: %q does not exist, or %s", ErrForbidden, name, refusal)
		case forbidden:
			return nil, fmt.Errorf("%w: %q %s", ErrForbidden, name, refusal)
		}
		return conn, err
	}
}
