// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// ErrTooLarge says that an answer was longer than the limit.
var ErrTooLarge = errors.New("answer is larger than the limit")

// ErrUpgrade says that a server changed the protocol, which no client here asks for.
var ErrUpgrade = errors.New("the server changed the protocol")

// maxIdle is how many connections of a client wait for a next request, to all hosts.
const maxIdle = 512

// ClientOptions configure an HTTP client.
type ClientOptions struct {
	// MaxResponse is the most bytes of an answer's body that are read; required.
	MaxResponse int64
	// HeaderTimeout bounds waiting for the answer's first byte; 0 means no bound
	// but the request's context.
	HeaderTimeout time.Duration
	// MaxIdlePerHost is how many connections to a host are kept for the next request; 0
	// means 16.
	MaxIdlePerHost int
	// TLS, when set, holds the certificate authorities to trust.
	TLS *tls.Config
}

// Client makes an HTTP client for a purpose. A redirect is an answer like any
// other and not followed. Bodies longer than the limit end in ErrTooLarge.
func (g *Guard) Client(purpose Purpose, opts ClientOptions) *http.Client {
	return &http.Client{
		Transport: &transport{
			plain: newTransport(g.dialAllowed(purpose), opts),
			tls:   newTransport(g.DialContext(purpose), opts),
			limit: opts.MaxResponse,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func newTransport(dial func(context.Context, string, string) (net.Conn, error), opts ClientOptions) *http.Transport {
	return &http.Transport{
		DialContext:            dial,
		TLSClientConfig:        opts.TLS.Clone(),
		TLSHandshakeTimeout:    dialTimeout,
		ResponseHeaderTimeout:  opts.HeaderTimeout,
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    cmp.Or(opts.MaxIdlePerHost, 16),
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// transport sends plain requests to allowed ranges only and limits bodies.
type transport struct {
	plain, tls *http.Transport
	limit      int64
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	next := t.tls
	switch req.URL.Scheme {
	case "https":
	case "http":
		next = t.plain
	default:
		return nil, fmt.Errorf("%w: scheme %q", ErrForbidden, req.URL.Scheme)
	}
	resp, err := next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// Its body is the connection, which no context ends any more.
		_ = resp.Body.Close()
		return nil, ErrUpgrade
	}
	resp.Body = &limited{ReadCloser: resp.Body, left: t.limit}
	return resp, nil
}

// CloseIdleConnections lets http.Client.CloseIdleConnections work.
func (t *transport) CloseIdleConnections() {
	t.plain.CloseIdleConnections()
	t.tls.CloseIdleConnections()
}

// limited ends a body that is too long with ErrTooLarge.
type limited struct {
	io.ReadCloser
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.ReadCloser.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return n - 1, ErrTooLarge
	}
	return n, err
}
