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

// ErrTooLarge means that a response exceeds the limit.
var ErrTooLarge = errors.New("answer is larger than the limit")

// ErrUpgrade means that a server changed the protocol, which no client requests.
var ErrUpgrade = errors.New("the server changed the protocol")

// maxIdle limits the idle connections of a client to all hosts.
const maxIdle = 512

// ClientOptions configure an HTTP client.
type ClientOptions struct {
	// MaxResponse limits the body of a response, in bytes; required.
	MaxResponse int64
	// HeaderTimeout limits the wait for the response's first byte; 0 means only the request's
	// context.
	HeaderTimeout time.Duration
	// MaxIdlePerHost limits the idle connections to a host; 0 means 64, so that all runs of a busy runner keep theirs.
	MaxIdlePerHost int
	// TLS contains the trusted certificate authorities; optional.
	TLS *tls.Config
}

// Client returns an HTTP client for a purpose. It returns redirects and does not follow them. A
// body beyond the limit ends with ErrTooLarge.
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
		MaxIdleConnsPerHost:    cmp.Or(opts.MaxIdlePerHost, 64),
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// transport sends plain http only to allowed ranges and limits bodies.
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
		// Its body is the connection, which no context ends.
		_ = resp.Body.Close()
		return nil, ErrUpgrade
	}
	resp.Body = &limited{ReadCloser: resp.Body, left: t.limit}
	return resp, nil
}

// CloseIdleConnections supports http.Client.CloseIdleConnections.
func (t *transport) CloseIdleConnections() {
	t.plain.CloseIdleConnections()
	t.tls.CloseIdleConnections()
}

// limited ends a body beyond the limit with ErrTooLarge.
type limited struct {
	io.ReadCloser
	left int64
}

// RefundBytes takes back bytes that were read from the body of a response, so that they do not count against its limit. It is
// not safe for concurrent use with Read. Bodies of other clients have no limit here.
func RefundBytes(body io.Reader, count int) {
	if l, ok := body.(*limited); ok {
		l.left += int64(count)
	}
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
