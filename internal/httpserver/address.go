// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// Proxies are the address ranges of trusted proxies. X-Forwarded-For counts only from them.
type Proxies []netip.Prefix

// ParseProxies reads ranges such as 10.0.0.0/8, separated by commas; "" is none.
func ParseProxies(text string) (Proxies, error) {
	var out Proxies
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(part)
		if err != nil {
			return nil, fmt.Errorf("%q is not an address range such as 10.0.0.0/8: %w", part, err)
		}
		out = append(out, prefix.Masked())
	}
	return out, nil
}

func (p Proxies) isTrusted(address netip.Addr) bool {
	for _, prefix := range p {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}

// Client returns the address of a request's client: the connection's address, or for a trusted
// proxy the last address in X-Forwarded-For that is not a proxy's. Earlier entries are ignored,
// because the client wrote them. It returns the zero address if the connection has none.
func (p Proxies) Client(r *http.Request) netip.Addr {
	connection, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	client := connection.Addr().Unmap().WithZone("")
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && p.isTrusted(client); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		client = hop.Unmap().WithZone("")
	}
	return client
}
