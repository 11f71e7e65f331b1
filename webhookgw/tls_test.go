// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/certs"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// TestTLS_BothPorts: a webhook arrives by HTTP/2, its run reaches a runner that trusts the
// authority, and the response returns.
func TestTLS_BothPorts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.connector("sync", nil, "hello")
	caFile, files := certificate(t)
	gateway := b.serveTLS(files)

	strict, err := dispatchapi.NewClient(dispatchapi.Options{URL: "https://" + gateway.InternalAddr(), Token: runnerToken})
	require.NoError(t, err)
	_, err = strict.Heartbeat(t.Context(), dispatchapi.HeartbeatRequest{})
	require.ErrorContains(t, err, "certificate", "a client that only trusts the system's authorities")

	client, err := dispatchapi.NewClient(dispatchapi.Options{URL: "https://" + gateway.InternalAddr(), Token: runnerToken, CAFile: caFile})
	require.NoError(t, err)
	b.runnerBy(client, completed)

	ca, err := os.ReadFile(caFile)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(ca))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+gateway.PublicAddr()+b.hook(c.ID.String()), strings.NewReader(`{"name":"Ada"}`))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Service-Secret", secret)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 2, resp.ProtoMajor)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	answer := map[string]any{}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&answer))
	require.Equal(t, `Hello {"name":"Ada"}`, answer["result"].(map[string]any)["output"])
}

// certificate creates an authority and a certificate for this machine.
func certificate(t *testing.T) (caFile string, files httpserver.TLSFiles) {
	t.Helper()
	authority, err := certs.NewAuthority(time.Now())
	require.NoError(t, err)
	pair, err := authority.Issue([]string{"127.0.0.1"}, time.Now())
	require.NoError(t, err)
	dir := t.TempDir()
	caFile, files = filepath.Join(dir, "ca.crt"), httpserver.TLSFiles{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	for name, data := range map[string][]byte{caFile: authority.Cert, files.Cert: pair.Cert, files.Key: pair.Key} {
		require.NoError(t, os.WriteFile(name, data, 0o600))
	}
	return caFile, files
}

// serveTLS runs a second gateway with the store until the test ends.
func (b *bundle) serveTLS(files httpserver.TLSFiles) *Gateway {
	return b.serveWith(b.store, func(o *Options) { o.PublicTLS, o.InternalTLS = files, files })
}
