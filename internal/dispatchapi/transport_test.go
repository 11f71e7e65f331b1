// SPDX-License-Identifier: Apache-2.0

package dispatchapi_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/certs"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// The client connects only to a port whose certificate belongs to the file's current authority.
func TestTransport_ReloadsAuthorities(t *testing.T) {
	t.Parallel()
	ours, other := newAuthority(t), newAuthority(t)
	url, protocol := servePort(t, ours)
	caFile := filepath.Join(t.TempDir(), "ca.crt")
	client, err := dispatchapi.NewClient(dispatchapi.Options{URL: url, Token: "secret", CAFile: caFile})
	require.NoError(t, err)
	heartbeat := func() error {
		_, err := client.Heartbeat(t.Context(), dispatchapi.HeartbeatRequest{})
		return err
	}
	require.ErrorContains(t, heartbeat(), "reading the authorities")
	for content, want := range map[string]string{
		string(other.Cert): "certificate",
		"no certificate":   "contains no PEM certificate",
		"\n":               "certificate", // the system's authorities, which do not know it
	} {
		t.Run(fmt.Sprintf("%.60s", content), func(t *testing.T) {
			require.NoError(t, os.WriteFile(caFile, []byte(content), 0o600))
			require.ErrorContains(t, heartbeat(), want)
		})
	}
	require.NoError(t, os.WriteFile(caFile, append(other.Cert, ours.Cert...), 0o600))
	require.NoError(t, heartbeat())
	require.Equal(t, "HTTP/1.1", protocol())
}

func TestNewClient_AuthorityNeedsTLS(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"http://dispatch:8081", "ftp://dispatch:8081", "dispatch:8081"} {
		_, err := dispatchapi.NewClient(dispatchapi.Options{URL: url, Token: "secret", CAFile: "ca.crt"})
		require.ErrorContains(t, err, "dispatch URL")
	}
}

func newAuthority(t *testing.T) certs.Pair {
	t.Helper()
	authority, err := certs.NewAuthority(time.Now())
	require.NoError(t, err)
	return authority
}

// servePort responds to everything with an empty object, over TLS, until the test ends. protocol
// returns the protocol of the last request.
func servePort(t *testing.T, authority certs.Pair) (url string, protocol func() string) {
	t.Helper()
	pair, err := authority.Issue([]string{"127.0.0.1"}, time.Now())
	require.NoError(t, err)
	dir := t.TempDir()
	files := httpserver.TLSFiles{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	require.NoError(t, os.WriteFile(files.Cert, pair.Cert, 0o600))
	require.NoError(t, os.WriteFile(files.Key, pair.Key, 0o600))
	var mu sync.Mutex
	var last string
	server, err := httpserver.New(httpserver.Options{
		Name: "dispatch", Addr: "127.0.0.1:0", TLS: files,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			last = r.Proto
			httpserver.WriteJSON(w, http.StatusOK, struct{}{})
		}),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })
	return "https://" + server.Addr(), func() string {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
}
