// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/certs"
)

// The beginnings of HTTP/2 connections with one GET, of / and of /x. The second one's streams have
// no window from the start. No window is enlarged.
const (
	getHTTP2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" +
		"\x00\x00\x06\x01\x05\x00\x00\x00\x01" + "\x82\x87\x84\x41\x01h"
	getWithoutRoom = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x06\x04\x00\x00\x00\x00\x00" + "\x00\x04\x00\x00\x00\x00" +
		"\x00\x00\x09\x01\x05\x00\x00\x00\x01" + "\x82\x87\x44\x02/x\x41\x01h"
)

// flood serves responses with a short limit per piece, or with a pace without one. / is endless,
// and its error is sent to the channel. Other paths are short. /y is flushed, and its error is
// sent.
func flood(t *testing.T, authority *certs.Pair, timeout time.Duration) (*Server, <-chan error) {
	t.Helper()
	var files TLSFiles
	if authority != nil {
		files = filesIn(t.TempDir())
		pair, err := authority.Issue([]string{host}, time.Now())
		require.NoError(t, err)
		write(t, files, pair)
	}
	ended := make(chan error, 1)
	server, err := New(Options{
		Name: "test", Addr: host + ":0", TLS: files, WriteTimeout: timeout, Logger: slog.New(slog.DiscardHandler),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var to io.Writer = w
			if timeout == 0 {
				to = NewPacedAnswer(w, Pace{BytesPerSecond: 1 << 40, Grace: 20 * time.Millisecond})
			}
			if r.URL.Path != "/" {
				WriteJSON(w, http.StatusOK, "short")
				if r.URL.Path == "/y" {
					ended <- http.NewResponseController(w).Flush()
				}
				return
			}
			for {
				if _, err := to.Write(make([]byte, 1<<20)); err != nil {
					ended <- err
					return
				}
			}
		}),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan error, 1)
	go func() { stopped <- server.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-stopped) })
	return server, ended
}

// opened opens a connection that is closed at the end of the test, or of a test that hangs.
func opened(t *testing.T, server *Server, authority *certs.Pair, protocol string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() }) // the server closed it before
	limit := time.AfterFunc(30*time.Second, func() { _ = conn.Close() })
	t.Cleanup(func() { limit.Stop() })
	if authority == nil {
		return conn
	}
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority.Cert))
	secure := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: host, NextProtos: []string{protocol}, MinVersion: tls.VersionTLS12})
	require.NoError(t, secure.HandshakeContext(t.Context()))
	return secure
}

// The limit per piece and the pace both apply.
func TestWrite_ClosesConnectionsOfSilentReaders(t *testing.T) {
	t.Parallel()
	for name, timeout := range map[string]time.Duration{"timeout": 20 * time.Millisecond, "pace": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			neverRead(t, timeout)
		})
	}
}

func neverRead(t *testing.T, timeout time.Duration) {
	t.Helper()
	authority := newAuthority(t)
	const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	kinds := map[string]*certs.Pair{"plain": nil, "TLS": &authority}
	if timeout == 0 {
		delete(kinds, "TLS") // TLS takes 5 s to close and does not differ from plain
	}
	for name, authority := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, ended := flood(t, authority, timeout)
			_, err := io.WriteString(opened(t, server, authority, "http/1.1"), get)
			require.NoError(t, err)
			require.ErrorIs(t, <-ended, os.ErrDeadlineExceeded)
		})
	}
	t.Run("a stream of a connection that is read", func(t *testing.T) {
		t.Parallel()
		server, ended := flood(t, &authority, timeout)
		conn := opened(t, server, &authority, "h2")
		_, err := io.WriteString(conn, getHTTP2)
		require.NoError(t, err)
		go func() { _, _ = io.Copy(io.Discard, conn) }() // until it is closed
		require.ErrorIs(t, <-ended, os.ErrDeadlineExceeded)
	})
}

// This includes a response that the handler wrote without an error while net/http waits for the
// client.
func TestWrite_ResetsStreamWithoutWindow(t *testing.T) {
	t.Parallel()
	authority := newAuthority(t)
	server, _ := flood(t, &authority, 20*time.Millisecond)
	conn := opened(t, server, &authority, "h2")
	_, err := io.WriteString(conn, getWithoutRoom)
	require.NoError(t, err)
	const reset = 3
	for kind := byte(0); kind != reset; {
		header := make([]byte, 9)
		_, err := io.ReadFull(conn, header)
		require.NoError(t, err)
		kind = header[3]
		_, err = io.CopyN(io.Discard, conn, int64(header[0])<<16|int64(header[1])<<8|int64(header[2]))
		require.NoError(t, err)
	}
}

// The handler does not wait forever.
func TestWrite_ResetsFlushedStreamWithoutWindow(t *testing.T) {
	t.Parallel()
	authority := newAuthority(t)
	server, ended := flood(t, &authority, 20*time.Millisecond)
	conn := opened(t, server, &authority, "h2")
	_, err := io.WriteString(conn, strings.Replace(getWithoutRoom, "/x", "/y", 1))
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, conn) }() // until it is closed
	require.ErrorIs(t, <-ended, os.ErrDeadlineExceeded)
}

// pipe is a connection with deadlines of half a minute and its other end, in a synctest bubble,
// where waiting takes no time.
func pipe(t *testing.T) (conn *boundedConn, client net.Conn) {
	t.Helper()
	client, server := net.Pipe()
	t.Cleanup(func() {
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
	})
	return &boundedConn{Conn: server, timeout: writeTimeout}, client
}

// Neither a long wait before the first byte nor a large response to a slow client is cancelled.
func TestWrite_LimitsEachPiece(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn, client := pipe(t)
		answer := make([]byte, 10*writePiece+1)
		read := make(chan int)
		go func() {
			total := 0
			for piece := make([]byte, writePiece); total < len(answer); {
				<-time.After(writeTimeout - 1)
				n, err := io.ReadFull(client, piece[:min(writePiece, len(answer)-total)])
				if err != nil {
					break
				}
				total += n
			}
			read <- total
		}()
		for range 2 {
			require.NoError(t, conn.SetDeadline(time.Time{}))
		}
		n, err := conn.Write(answer)
		require.NoError(t, err)
		require.Equal(t, len(answer), n)
		require.Equal(t, len(answer), <-read)
		<-time.After(15 * time.Minute)
		go func() { _, _ = io.ReadFull(client, make([]byte, 1)) }() // the writer sees the bytes that it read
		n, err = conn.Write([]byte("a"))
		require.NoError(t, err)
		require.Equal(t, 1, n)

		_, err = conn.Write([]byte("b"))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "nobody reads")
	})
}

// TLS and net/http set their own deadlines when they close a connection.
func TestWrite_KeepsEarlierDeadline(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ asked, want time.Duration }{
		"earlier": {time.Second, time.Second},
		"later":   {time.Hour, writeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				conn, _ := pipe(t)
				begin := time.Now()
				require.NoError(t, conn.SetWriteDeadline(begin.Add(c.asked)))
				_, err := conn.Write([]byte("a"))
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				require.Equal(t, c.want, time.Since(begin), "by the bubble's clock")
			})
		})
	}
}

// net/http does this so that the client can read the last response.
func TestWrite_SupportsHalfClose(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", host+":0")
	require.NoError(t, err)
	listener := newBoundedListener(inner, writeTimeout, 1, newConnections(nil, time.Now))
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	client, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	server, err := listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	require.NoError(t, server.(interface{ CloseWrite() error }).CloseWrite())
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	_, err = io.WriteString(client, "a")
	require.NoError(t, err)
	_, err = io.ReadFull(server, make([]byte, 1))
	require.NoError(t, err)
}
