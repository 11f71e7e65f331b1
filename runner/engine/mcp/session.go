// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// session is a session with a server, which several calls use at the same time. Client.mu guards users, lastUse and doubtful.
type session struct {
	server Server
	peer   *peer
	wire   *wire
	sdk    *mcp.ClientSession
	err    error
	// opening records the requests that open the session.
	opening exchange
	// ready is closed when sdk or err is set.
	ready chan struct{}

	users   int
	lastUse time.Time
	// doubtful is true after an answer was lost: the server may have restarted and forgotten the session.
	doubtful bool
}

// acquireSession returns the session with a server, and connects if there is none. The caller calls release.
func (c *Client) acquireSession(ctx context.Context, server Server) (*session, error) {
	c.mu.Lock()
	p := c.peerOf(server)
	s := p.session
	if s == nil {
		s = &session{server: server, peer: p, ready: make(chan struct{}), opening: exchange{repeatable: true}}
		s.wire = &wire{next: c.cfg.HTTP.Transport, server: server, tokens: p.tokens}
		p.session = s
		c.background.Add(1)
		go c.connectSession(context.WithoutCancel(ctx), s)
	}
	s.users++
	c.mu.Unlock()
	select {
	case <-s.ready:
	case <-ctx.Done():
		c.releaseSession(s)
		return nil, s.describeWait(ctx.Err(), &s.opening)
	}
	if s.err != nil {
		c.dropSession(s)
		c.releaseSession(s)
		return nil, s.err
	}
	return s, nil
}

// describeWait returns the error of a request. It blames the token endpoint if a deadline ended the wait for a token.
func (s *session) describeWait(err error, x *exchange) error {
	if errors.Is(err, context.DeadlineExceeded) && x.needsToken.Load() {
		return s.peer.tokens.LateError(err)
	}
	return err
}

// connectSession opens a session. It is bounded by the server's time limit, not by a caller, because several callers wait for it.
func (c *Client) connectSession(ctx context.Context, s *session) {
	defer c.background.Done()
	ctx, cancel := context.WithTimeout(ctx, s.server.Spec.ConnectLimit())
	defer cancel()
	defer context.AfterFunc(c.ended, cancel)()
	client := mcp.NewClient(&mcp.Implementation{Name: "agentplatform", Version: c.cfg.Version}, &mcp.ClientOptions{
		Capabilities:   &mcp.ClientCapabilities{},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	})
	connected := make(chan struct{})
	var sdk *mcp.ClientSession
	var err error
	c.background.Add(1)
	go func() {
		defer c.background.Done()
		defer close(connected)
		sdk, err = client.Connect(withExchange(ctx, &s.opening), &mcp.StreamableClientTransport{
			Endpoint: s.server.URL, DisableStandaloneSSE: true, MaxRetries: -1, MaxEventSize: maxEvent,
			HTTPClient: &http.Client{
				Transport:     s.wire,
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			},
		}, nil)
	}()
	select {
	case <-connected:
		s.sdk, s.err = sdk, err
		close(s.ready)
	case <-ctx.Done(): // The SDK waits for up to 5 seconds to tell the server.
		s.err = s.describeWait(ctx.Err(), &s.opening)
		close(s.ready)
		if <-connected; err == nil {
			_ = sdk.Close()
		}
	}
}

// releaseSession ends a use of a session.
func (c *Client) releaseSession(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.users--
	s.lastUse = c.cfg.Now()
	if s.users == 0 && s.peer.session != s {
		c.closeSession(s)
	}
}

// dropSession makes the next use connect anew. The session is closed after its last use.
func (c *Client) dropSession(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.peer.session == s {
		s.peer.session = nil
	}
}

// doubtSession makes the next call that cannot be repeated check the session first.
func (c *Client) doubtSession(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.doubtful = true
}

// needsPing reports whether a call that cannot be repeated must check the session first. Only sessions of servers with
// session IDs can be forgotten.
func (c *Client) needsPing(s *session) bool {
	if s.sdk.ID() == "" {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	doubtful := s.doubtful
	s.doubtful = false
	return doubtful || c.cfg.Now().Sub(s.lastUse) >= pingAfter && !s.lastUse.IsZero()
}

// closeSession closes a session in the background. The SDK notifies the server, for at most 5 seconds.
func (c *Client) closeSession(s *session) {
	c.background.Add(1)
	go func() {
		defer c.background.Done()
		if <-s.ready; s.sdk != nil {
			_ = s.sdk.Close()
		}
	}()
}
