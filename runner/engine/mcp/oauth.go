// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"golang.org/x/oauth2"

	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/runner/oauth"
)

// maxMetadata limits the answers with metadata of authorization servers, in bytes.
const maxMetadata = 64 << 10

// newTokens returns the source of the tokens of a server: the OAuth app that it names, or its own. It is nil without credentials.
func (c *Client) newTokens(server Server) *oauth.Source {
	switch {
	case server.app != nil:
		return c.cfg.Apps.Source(*server.app)
	case server.oauth == nil:
		return nil
	}
	f := &finder{client: c, server: server}
	return oauth.NewSource(oauth.Config{
		HTTP: c.cfg.HTTP, Now: c.cfg.Now, Timeout: server.Spec.ConnectLimit(),
		ClientID: server.oauth.ClientID, ClientSecret: server.oauth.ClientSecret,
		Endpoint: oauth.Endpoint{URL: server.oauth.TokenURL, Scopes: server.oauth.Scopes, Style: oauth2.AuthStyleInHeader},
		Find:     f.findEndpoint, Ended: c.ended, Background: &c.background,
	})
}

// tokenRecord has the tokens that the requests of a call can show. A source forgets a token that was replaced several times,
// which can happen during a slow call.
type tokenRecord struct {
	mu    sync.Mutex
	texts []string
}

type tokenRecordKey struct{}

// recordTokens returns a context that records the tokens of its requests, beginning with the current ones.
func recordTokens(ctx context.Context, tokens *oauth.Source) context.Context {
	if tokens == nil || tokensOf(ctx) != nil {
		return ctx
	}
	return context.WithValue(ctx, tokenRecordKey{}, &tokenRecord{texts: tokens.SecretTexts()})
}

// tokensOf returns the record of a context, or nil.
func tokensOf(ctx context.Context) *tokenRecord {
	r, _ := ctx.Value(tokenRecordKey{}).(*tokenRecord)
	return r
}

func (r *tokenRecord) add(token string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.texts, token) {
		r.texts = append(r.texts, token)
	}
}

func (r *tokenRecord) all() []string {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.texts)
}

// finder finds the token endpoint of a server.
type finder struct {
	client *Client
	server Server
}

// getJSON sends a request and decodes the answer of any status.
func (f *finder) getJSON(req *http.Request, into any) (code int, err error) {
	client := http.Client{Transport: f.client.cfg.HTTP.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxMetadata))
	if err != nil {
		return 0, fmt.Errorf("reading the answer: %w", err)
	}
	if err := exactjson.Decode(text, into); err != nil && resp.StatusCode == http.StatusOK {
		return 0, fmt.Errorf("reading the answer: %w", err)
	}
	return resp.StatusCode, nil
}
