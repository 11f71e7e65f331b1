// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// looking is a guard that counts the queries to its DNS server, which never responds.
func looking(allowed ...netip.Prefix) (g *Guard, queries *atomic.Int64) {
	g, queries = New(Rules{Allowed: map[Purpose][]netip.Prefix{Webhook: allowed}}), &atomic.Int64{}
	g.resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		queries.Add(1)
		return nil, errors.New("there is no DNS")
	}}
	return g, queries
}

// Private names are not resolved if no private range is allowed. Otherwise an unknown name gets the
// same error as a forbidden one.
func TestGuard_DoesNotResolvePrivateNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"payments", "payments.prod.svc", "payments.prod.svc.cluster.local", "payments.prod.SVC.Cluster.Local.", "kubernetes.default.svc.",
		"printer.local", "metadata.google.internal", "x.localhost",
	} {
		closed, queries := looking()
		for _, dial := range []func(context.Context, string, string) (net.Conn, error){closed.DialContext(Webhook), closed.dialAllowed(Webhook)} {
			_, err := dial(t.Context(), "tcp", net.JoinHostPort(name, "443"))
			require.ErrorIs(t, err, ErrForbidden, name)
			_, err = dial(t.Context(), "tcp", "2130706433:443")
			require.ErrorIs(t, err, ErrForbidden, "no way to write 127.0.0.1")
		}
		require.Zero(t, queries.Load(), name)
		open, queries := looking(netip.MustParsePrefix("10.0.0.0/8"))
		_, err := open.DialContext(Webhook)(t.Context(), "tcp", net.JoinHostPort(name, "443"))
		require.ErrorIs(t, err, ErrForbidden, "%s: like the address behind it", name)
		require.Positive(t, queries.Load(), name)
		_, err = open.DialContext(Model)(t.Context(), "tcp", net.JoinHostPort(name, "443"))
		require.ErrorIs(t, err, ErrForbidden, "%s: opened for another purpose", name)
	}
}

// payments.prod is not a name below the cluster's domain.
func TestGuard_ResolvesAbsoluteNames(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"payments.prod:443": "payments.prod.:443", "example.com:443": "example.com.:443", "example.com.:443": "example.com.:443",
		"192.0.2.1:443": "192.0.2.1:443", "[2001:db8::1]:443": "[2001:db8::1]:443", "x.svc.example.com:443": "x.svc.example.com.:443",
	} {
		t.Run(address, func(t *testing.T) {
			var dialled string
			gone := &net.DNSError{Err: "no such host", IsNotFound: true}
			_, err := New(Rules{}).resolvingDial(func(_ context.Context, _, address string) (net.Conn, error) {
				dialled = address
				return nil, gone
			}, Webhook, "is forbidden")(t.Context(), "tcp", address)
			require.ErrorIs(t, err, error(gone), "the error names the cause")
			require.Equal(t, want, dialled)
		})
	}
}

// The error of a name has no address, and is the same for an unknown and for a forbidden private name.
func TestGuard_ErrorsOfNamesHideAddresses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		host, want string
		err        error
	}{
		"unknown private name":   {"payments", `"payments" does not exist, or is not reachable`, &net.DNSError{Err: "no such host", IsNotFound: true}},
		"forbidden private name": {"payments", `"payments" does not exist, or is not reachable`, fmt.Errorf("dial: %w: 10.0.0.7 is denied", ErrForbidden)},
		"forbidden public name":  {"example.com", `"example.com" is not reachable`, fmt.Errorf("dial: %w: 10.0.0.7 is denied", ErrForbidden)},
		"forbidden address":      {"10.0.0.7", "10.0.0.7 is denied", fmt.Errorf("dial: %w: 10.0.0.7 is denied", ErrForbidden)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dial := func(context.Context, string, string) (net.Conn, error) { return nil, c.err }
			open, _ := looking(netip.MustParsePrefix("10.0.0.0/8"))
			_, err := open.resolvingDial(dial, Webhook, "is not reachable")(t.Context(), "tcp", net.JoinHostPort(c.host, "443"))
			require.ErrorIs(t, err, ErrForbidden)
			require.ErrorContains(t, err, c.want)
			if c.host != "10.0.0.7" {
				require.NotContains(t, err.Error(), "10.0.0.7")
			}
		})
	}
}

// A developer's machine has no platform operator. Its errors name another remedy, and say that a name does not exist.
func TestDeveloperRules_NameRemedyWithoutOperator(t *testing.T) {
	t.Parallel()
	g := New(DeveloperRules())
	g.resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("there is no DNS") }}
	for name, address := range map[string]string{"metadata": "169.254.169.254:80", "link-local": "[fe80::1]:80", "multicast": "224.0.0.1:80"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, dial := range []func(context.Context, string, string) (net.Conn, error){g.DialContext(Tool), g.dialAllowed(Tool)} {
				_, err := dial(t.Context(), "tcp", address)
				require.ErrorIs(t, err, ErrForbidden)
				require.NotContains(t, err.Error(), "operator")
				require.Equal(t, "the address of the tool is not allowed; commands on your machine reach no metadata service and no link-local or "+
					"multicast address; use another address", DescribeForbidden("the address of the tool", err))
			}
		})
	}
	_, err := g.DialContext(Tool)(t.Context(), "tcp", "printer.local:80")
	require.ErrorAs(t, err, new(*net.DNSError))
	require.NotErrorIs(t, err, ErrForbidden)
}
