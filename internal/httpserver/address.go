// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// Proxies are the ranges of addresses whose X-Forwarded-For is believed.
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
			return nil, fmt.Errorf("%q is no range of addresses such as 10.0.0.0/8: %w", part, err)
		}
		out = append(out, prefix.Masked())
	}
	return out, nil
}

func (p Proxies) trust(address netip.Addr) bool {
	for _, prefix := range p {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}

// Client is the address that a request came from: the connection's or, where
// that is a trusted proxy's, the last in X-Forwarded-For that is not one. What
// stands before that one was written by the client and says nothing. The zero
// address when the connection has none.
func (p Proxies) Client(r *http.Request) netip.Addr {
	connection, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	client := connection.Addr().Unmap().WithZone("")
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && p.trust(client); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		client = hop.Unmap().WithZone("")
	}
	return client
}
