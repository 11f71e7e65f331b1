// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/egress"
)

func TestGuard_RejectsForbiddenAddresses(t *testing.T) {
	t.Parallel()
	guard := egress.New(egress.Rules{})
	for _, address := range []string{
		"127.0.0.1:80", "0.0.0.0:80", "10.1.2.3:443", "172.16.0.1:22", "192.168.1.1:443", "169.254.169.254:80",
		"100.64.0.1:443", "100.100.100.200:80", "198.18.0.1:80", "192.0.0.1:80", "192.0.2.1:80", "192.88.99.1:80",
		"224.0.0.1:80", "240.0.0.1:80", "255.255.255.255:80", "168.63.129.16:80",
		"[::1]:80", "[::]:80", "[fc00::1]:80", "[fd00:ec2::254]:80", "[fe80::1]:80", "[ff02::1]:80",
		"[::ffff:127.0.0.1]:80", "[::ffff:a9fe:a9fe]:80", "[64:ff9b::7f00:1]:80", "[2002:7f00:1::]:80", "[2001:0:1::1]:80",
		"localhost:80",
	} {
		for _, purpose := range []egress.Purpose{egress.Git, egress.Model, egress.MCP, egress.Tool, egress.Webhook} {
			conn, err := guard.DialContext(purpose)(t.Context(), "tcp", address)
			if err == nil {
				_ = conn.Close()
			}
			require.ErrorIs(t, err, egress.ErrForbidden, "%s %s", purpose, address)
		}
	}
	_, err := guard.DialContext("other")(t.Context(), "tcp", "127.0.0.1:1")
	require.ErrorIs(t, err, egress.ErrForbidden)
}

func allow(t *testing.T, text string) *egress.Guard {
	t.Helper()
	rules, err := egress.Flags{Allow: text}.Rules()
	require.NoError(t, err)
	return egress.New(rules)
}

func get(t *testing.T, client *http.Client, url string) (*http.Response, error) {
	t.Helper()
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	return client.Do(req)
}

func TestGuard_AllowsRangesByPurpose(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	t.Cleanup(server.Close)
	guard := allow(t, "model=127.0.0.0/8, git=10.0.0.0/8,git=fd00::/8")

	resp, err := get(t, guard.Client(egress.Model, egress.ClientOptions{MaxResponse: 5}), server.URL)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "hello", string(body))
	require.NoError(t, resp.Body.Close())

	_, err = get(t, guard.Client(egress.Git, egress.ClientOptions{MaxResponse: 5}), server.URL)
	require.ErrorIs(t, err, egress.ErrForbidden)

	resp, err = get(t, guard.Client(egress.Model, egress.ClientOptions{MaxResponse: 4}), server.URL)
	require.NoError(t, err)
	body, err = io.ReadAll(resp.Body)
	require.ErrorIs(t, err, egress.ErrTooLarge)
	require.Equal(t, "hell", string(body))
	require.NoError(t, resp.Body.Close())
}

func TestClient_LimitsPlainHTTP(t *testing.T) {
	t.Parallel()
	// A public address is rejected before anything is sent, because the URL is not https.
	_, err := get(t, egress.New(egress.Rules{}).Client(egress.Webhook, egress.ClientOptions{MaxResponse: 1}), "http://93.184.216.34/")
	require.ErrorIs(t, err, egress.ErrForbidden)
	require.ErrorContains(t, err, "use https")

	_, err = get(t, egress.New(egress.Rules{}).Client(egress.Webhook, egress.ClientOptions{MaxResponse: 1}), "ftp://93.184.216.34/")
	require.ErrorIs(t, err, egress.ErrForbidden)
}

func TestClient_TrustsOwnAuthority(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	guard := allow(t, "git=127.0.0.1/32")

	resp, err := get(t, guard.Client(egress.Git, egress.ClientOptions{MaxResponse: 100, TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}), server.URL)
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
	require.NoError(t, resp.Body.Close())

	_, err = get(t, egress.New(egress.Rules{}).Client(egress.Git, egress.ClientOptions{MaxResponse: 100}), server.URL)
	require.ErrorIs(t, err, egress.ErrForbidden)
}

func TestClient_ReturnsRedirects(t *testing.T) {
	t.Parallel()
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	t.Cleanup(server.Close)
	resp, err := get(t, allow(t, "webhook=127.0.0.1/32").Client(egress.Webhook, egress.ClientOptions{MaxResponse: 100}), server.URL+"/here")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusFound, resp.StatusCode)
	require.Equal(t, []string{"/here"}, paths)
}

// Otherwise the server would own the connection without any timeout.
func TestClient_RejectsUpgrades(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }() // the other end is closed
		_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"))
		_, _ = conn.Read(make([]byte, 1)) // until the client has disconnected
	}))
	defer server.Close()
	client := egress.New(egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.Webhook: {netip.MustParsePrefix("127.0.0.0/8")}}}).
		Client(egress.Webhook, egress.ClientOptions{MaxResponse: 1})
	response, err := client.Get(server.URL)
	if err == nil {
		_ = response.Body.Close()
	}
	require.ErrorIs(t, err, egress.ErrUpgrade)
}
