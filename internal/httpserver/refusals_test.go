// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProxies_ReturnClientAddress(t *testing.T) {
	t.Parallel()
	proxies, err := ParseProxies(" 10.0.0.0/8, 2001:db8::/32,")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		connection string
		forwarded  []string
		want       string
	}{
		"the connection's":                 {"192.0.2.1:1", nil, "192.0.2.1"},
		"anybody may write the header":     {"192.0.2.1:1", []string{"198.51.100.1"}, "192.0.2.1"},
		"a proxy's":                        {"10.1.2.3:1", []string{"198.51.100.1"}, "198.51.100.1"},
		"what the client wrote":            {"10.1.2.3:1", []string{"1.1.1.1, 198.51.100.1"}, "198.51.100.1"},
		"proxy behind proxy":               {"[2001:db8::1]:1", []string{"1.1.1.1, 198.51.100.1", "10.9.9.9"}, "198.51.100.1"},
		"a proxy that says nothing":        {"10.1.2.3:1", nil, "10.1.2.3"},
		"a proxy that writes nonsense":     {"10.1.2.3:1", []string{"198.51.100.1, unknown"}, "10.1.2.3"},
		"proxies all the way":              {"10.1.2.3:1", []string{"10.0.0.7"}, "10.0.0.7"},
		"IPv4 in IPv6":                     {"[::ffff:10.1.2.3]:1", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		"a zone is no part of the address": {"[fe80::1%eth0]:1", nil, "fe80::1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr, r.Header["X-Forwarded-For"] = c.connection, c.forwarded
			require.Equal(t, c.want, proxies.Client(r).String())
		})
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "@"
	require.False(t, proxies.Client(r).IsValid(), "a socket without an address")
	_, err = ParseProxies("10.0.0.1")
	require.ErrorContains(t, err, `"10.0.0.1"`)
}

// book is a Refusals with a manual clock and its log lines.
type book struct {
	*Refusals
	clock time.Time
	out   bytes.Buffer
}

func newBook() *book {
	b := &book{clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	b.Refusals = NewRefusals("refused", slog.New(slog.NewTextHandler(&b.out, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		},
	})), func() time.Time { return b.clock })
	return b
}

// lines returns the lines since the last call.
func (b *book) lines() []string {
	defer b.out.Reset()
	return strings.Split(strings.TrimSuffix(b.out.String(), "\n"), "\n")
}

func TestRefusals_LogOncePerMinuteAndAddress(t *testing.T) {
	t.Parallel()
	b, one, two := newBook(), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	b.Add(one, "unauthorized")
	require.Equal(t, []string{`msg=refused address=192.0.2.1 count=1 reasons.unauthorized=1`}, b.lines(), "at once")
	b.clock = b.clock.Add(59 * time.Second)
	b.Add(one, "unauthorized")
	b.Add(one, "not_found")
	b.Add(one, "unauthorized")
	require.Equal(t, []string{""}, b.lines())
	b.clock = b.clock.Add(time.Second)
	b.Add(two, "unauthorized")
	require.Equal(t, []string{
		`msg=refused address=192.0.2.1 count=3 reasons.not_found=1 reasons.unauthorized=2`,
		`msg=refused address=192.0.2.2 count=1 reasons.unauthorized=1`,
	}, b.lines(), "a request of another address logs the counts so far")
	b.Add(one, "unauthorized")
	require.Equal(t, []string{""}, b.lines(), "a minute from its last line")
	b.clock = b.clock.Add(time.Minute)
	b.Add(two, "unauthorized")
	require.Len(t, b.lines(), 2)
	b.clock = b.clock.Add(2 * time.Minute)
	b.Add(two, "unauthorized")
	require.NotContains(t, b.refused, network(one), "an address without new requests is forgotten")
}

func TestRefusals_LimitAddresses(t *testing.T) {
	t.Parallel()
	b := newBook()
	for i := range 3 * maxRefused {
		b.Add(netip.MustParseAddr("2001:db8:"+strconv.FormatInt(int64(i), 16)+"::1"), "unauthorized")
	}
	require.Len(t, b.refused, maxRefused+1)
	require.Len(t, b.order, maxRefused+1)
	lines := b.lines()
	require.Len(t, lines, maxRefused+1)
	require.Equal(t, `msg=refused address=others count=1 reasons.unauthorized=1`, lines[maxRefused])
	b.clock = b.clock.Add(time.Minute)
	b.Add(netip.Addr{}, "unauthorized")
	require.Equal(t, `msg=refused address=others count=2047 reasons.unauthorized=2047`, b.lines()[0])
	require.Len(t, b.refused, 1, "the others sent nothing more")
}

func TestRefusals_GroupIPv6Networks(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.Add(netip.MustParseAddr("2001:db8::1"), "unauthorized")
	b.Add(netip.MustParseAddr("2001:db8::2"), "unauthorized")
	require.Equal(t, []string{`msg=refused address=2001:db8:: count=1 reasons.unauthorized=1`}, b.lines())
}
