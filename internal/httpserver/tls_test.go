// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/certs"
)

const host = "127.0.0.1"

func newAuthority(t *testing.T) certs.Pair {
	t.Helper()
	authority, err := certs.NewAuthority(time.Now())
	require.NoError(t, err)
	return authority
}

func write(t *testing.T, files TLSFiles, p certs.Pair) {
	t.Helper()
	require.NoError(t, os.WriteFile(files.Cert, p.Cert, 0o600))
	require.NoError(t, os.WriteFile(files.Key, p.Key, 0o600))
}

func filesIn(dir string) TLSFiles {
	return TLSFiles{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
}

// serveTLS runs a server with a certificate of the authority until the test ends.
func serveTLS(t *testing.T, authority certs.Pair, log io.Writer) (*Server, TLSFiles) {
	t.Helper()
	files := filesIn(t.TempDir())
	pair, err := authority.Issue([]string{host}, time.Now())
	require.NoError(t, err)
	write(t, files, pair)
	server, err := New(Options{
		Name: "test", Addr: host + ":0", TLS: files, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { WriteJSON(w, http.StatusOK, r.Proto) }),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })
	return server, files
}

// connect opens a connection that trusts only the authority.
func connect(t *testing.T, server *Server, authority certs.Pair, protocols ...string) (net.Conn, error) {
	t.Helper()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority.Cert))
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, NextProtos: protocols, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(t.Context(), "tcp", server.Addr())
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() }) // the server may have closed it
	}
	return conn, err
}

// New files apply from the next connection on. Unreadable files are ignored.
func TestTLS_ReloadsCertificates(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	first, second := newAuthority(t), newAuthority(t)
	server, files := serveTLS(t, first, &log)
	_, err := connect(t, server, first)
	require.NoError(t, err)

	pair, err := second.Issue([]string{host}, time.Now())
	require.NoError(t, err)
	write(t, files, pair)
	_, err = connect(t, server, second)
	require.NoError(t, err)
	_, err = connect(t, server, first)
	require.Error(t, err)

	write(t, files, certs.Pair{Cert: pair.Cert, Key: first.Key})
	for range 3 {
		_, err = connect(t, server, second)
		require.NoError(t, err)
	}
	require.NoError(t, os.Remove(files.Key))
	_, err = connect(t, server, second)
	require.NoError(t, err)
	require.Equal(t, 2, bytes.Count(log.Bytes(), []byte("level=ERROR")), "each problem once: %s", log.String())
}

func TestTLS_SupportsHTTP2(t *testing.T) {
	t.Parallel()
	authority := newAuthority(t)
	server, _ := serveTLS(t, authority, io.Discard)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority.Cert))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+server.Addr(), bytes.NewReader([]byte("body")))
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "\"HTTP/2.0\"\n", string(body))
}

// The test reads the limit in the server's first frame.
func TestTLS_LimitsStreams(t *testing.T) {
	t.Parallel()
	authority := newAuthority(t)
	server, _ := serveTLS(t, authority, io.Discard)
	conn, err := connect(t, server, authority, "h2")
	require.NoError(t, err)
	_, err = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	require.NoError(t, err)
	header := make([]byte, 9)
	_, err = io.ReadFull(conn, header)
	require.NoError(t, err)
	const settings, maxConcurrentStreams = 4, 3
	require.EqualValues(t, settings, header[3])
	payload := make([]byte, int(header[0])<<16|int(header[1])<<8|int(header[2]))
	_, err = io.ReadFull(conn, payload)
	require.NoError(t, err)
	announced := map[uint16]uint32{}
	for ; len(payload) >= 6; payload = payload[6:] {
		announced[binary.BigEndian.Uint16(payload)] = binary.BigEndian.Uint32(payload[2:])
	}
	require.EqualValues(t, 100, announced[maxConcurrentStreams])
}

func TestTLS_NamesInvalidFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for want, files := range map[string]TLSFiles{
		"set both files":          {Cert: "tls.crt"},
		"reading the certificate": filesIn(dir),
		"certificate's key":       {Cert: os.Args[0], Key: filepath.Join(dir, "none")},
	} {
		t.Run(want, func(t *testing.T) {
			_, err := New(Options{Name: "test", Addr: host + ":0", TLS: files})
			require.ErrorContains(t, err, want)
		})
	}
}
