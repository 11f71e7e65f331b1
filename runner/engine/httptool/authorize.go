// SPDX-License-Identifier: Apache-2.0

package httptool

import (
	"context"
	"errors"
	"net/http"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/redact"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/oauth"
)

// tokensOf returns the source of the tokens of a tool's OAuth app. It is nil without one, and if mocks answer.
func (c *Client) tokensOf(t *bundle.HTTPTool, variables runnerconfig.Variables) (*oauth.Source, error) {
	if t.OAuthApp == "" || c.cfg.Mocked {
		return nil, nil //nolint:nilnil // no tokens
	}
	app, found := variables.FindOAuthApp(t.OAuthApp)
	switch {
	case !found:
		return nil, errors.New(runnerconfig.NoOAuthApp(t.OAuthApp))
	case c.cfg.Apps == nil:
		return nil, errors.New("OAuth apps are not available here")
	}
	return c.cfg.Apps.Source(app), nil
}

// sendAuthorized sends a request with an access token. If the service rejects the token, it sends the request once more with a
// new one: a service that rejects a token has not executed the request. Tokens become secrets of the call.
func (c *Client) sendAuthorized(ctx context.Context, req *request, tokens *oauth.Source, hidden *redact.Secrets) (*response, error) {
	if tokens == nil {
		return c.sendRequest(ctx, req)
	}
	token, err := tokens.Token(ctx)
	if err != nil {
		return nil, noToken(err)
	}
	hidden.Add(tokens.SecretTexts()...)
	hidden.Add(token)
	first := *req // A redirect changes the URL and the headers.
	req.authorize(token)
	got, err := c.sendRequest(ctx, req)
	if err != nil || got.status != http.StatusUnauthorized || req.header.Get("Authorization") == "" {
		return got, err // Without the header another origin answered, which gets no token.
	}
	if token, err = tokens.Replace(ctx, token, nil); err != nil {
		return nil, noToken(err)
	}
	hidden.Add(token)
	req.url, req.header = first.url, first.header
	req.authorize(token)
	return c.sendRequest(ctx, req)
}

// noToken returns the error of a request without a token. It blames the OAuth app if the token endpoint took too long.
func noToken(err error) error {
	if errors.As(err, new(*oauth.Error)) {
		return err
	}
	return errNotCompleted
}

// authorize adds a token to a copy of the headers.
func (r *request) authorize(token string) {
	r.header = r.header.Clone()
	r.header.Set("Authorization", "Bearer "+token)
}
