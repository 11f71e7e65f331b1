// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/agentplatform/agentplatform/internal/exactjson"
)

const (
	// maxTokenAnswer limits the answers of authorization servers, in bytes.
	maxTokenAnswer = 64 << 10
	// renewBefore is the time before its end at which a token is replaced.
	renewBefore = 30 * time.Second
)

// tokenError means that there is no access token. Its text has no secrets and no addresses.
type tokenError struct{ problem string }

func (e *tokenError) Error() string { return "getting an access token: " + e.problem }

// tokens are the access tokens of one server, by client credentials (RFC 6749, section 4.4). They are kept in memory only.
type tokens struct {
	client *Client
	server Server
	// requests lets requests that need the same new token share one request for it.
	requests singleflight.Group

	mu      sync.Mutex // guards the fields below; never held during a request
	token   string
	expires time.Time // zero without an end
	// replaced is the token before, which answers of a server can still have.
	replaced string
	// endpoint is known from the start, or from the first challenge of the server.
	endpoint tokenEndpoint
}

// tokenEndpoint is where a token is requested, and how.
type tokenEndpoint struct {
	url    string
	scopes []string
	// resource is the resource of RFC 8707, or "".
	resource string
	// inBody is true if the server accepts the secret only in the body.
	inBody bool
}

// newTokens returns the tokens of a server, nil without oauth.
func (c *Client) newTokens(server Server) *tokens {
	if server.oauth == nil {
		return nil
	}
	return &tokens{client: c, server: server, endpoint: tokenEndpoint{url: server.oauth.TokenURL, scopes: server.oauth.Scopes}}
}

// currentToken returns the token for a request: "" until the server has asked for one, if it names the authorization server.
func (t *tokens) currentToken(ctx context.Context) (string, error) {
	t.mu.Lock()
	token, known := t.token, t.endpoint.url != ""
	valid := token != "" && (t.expires.IsZero() || t.client.cfg.Now().Before(t.expires.Add(-renewBefore)))
	t.mu.Unlock()
	if valid || !known {
		return token, nil
	}
	return t.replaceToken(ctx, token, nil)
}

// replaceToken returns another token than old. Requests that need it at the same time share one request. That request has
// the connect_timeout of the server, and a caller waits for it no longer than its own context allows.
func (t *tokens) replaceToken(ctx context.Context, old string, challenge []string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	result := t.requests.DoChan(old, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.server.Spec.ConnectLimit())
		defer cancel()
		defer context.AfterFunc(t.client.ended, cancel)()
		return nil, t.fetchToken(ctx, old, challenge)
	})
	select {
	case r := <-result:
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.token, r.Err
	case <-ctx.Done():
		t.client.background.Go(func() { <-result })
		return "", ctx.Err()
	}
}

// fetchToken replaces the old token, unless another request has done so.
func (t *tokens) fetchToken(ctx context.Context, old string, challenge []string) error {
	t.mu.Lock()
	token, endpoint := t.token, t.endpoint
	t.mu.Unlock()
	if token != old {
		return nil
	}
	if endpoint.url == "" {
		var err error
		if endpoint, err = t.findEndpoint(ctx, challenge); err != nil {
			return err
		}
	}
	token, expires, err := t.requestToken(ctx, endpoint)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.token, t.replaced, t.expires, t.endpoint = token, old, expires, endpoint
	return nil
}

// secretTexts returns the tokens, so that they can be removed from texts.
func (t *tokens) secretTexts() []string {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return []string{t.token, t.replaced}
}

// requestToken requests a token. expires is zero for a token without an end.
func (t *tokens) requestToken(ctx context.Context, endpoint tokenEndpoint) (token string, expires time.Time, err error) {
	id, secret := t.server.oauth.ClientID, t.server.oauth.ClientSecret
	form := url.Values{"grant_type": {"client_credentials"}}
	if len(endpoint.scopes) > 0 {
		form.Set("scope", strings.Join(endpoint.scopes, " "))
	}
	if endpoint.resource != "" {
		form.Set("resource", endpoint.resource)
	}
	if endpoint.inBody {
		form.Set("client_id", id)
		form.Set("client_secret", secret)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint.url, strings.NewReader(form.Encode()))
	if err != nil {
		return "", expires, &tokenError{"the address of the token endpoint is invalid"}
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	if !endpoint.inBody {
		req.SetBasicAuth(url.QueryEscape(id), url.QueryEscape(secret))
	}
	var answer struct {
		Token   string      `json:"access_token"`
		Type    string      `json:"token_type"`
		Expires json.Number `json:"expires_in"`
		Error   string      `json:"error"`
	}
	code, err := t.getJSON(req, &answer)
	switch {
	case err != nil:
		return "", expires, &tokenError{"the token endpoint cannot be reached, or its answer is not JSON"}
	case code != http.StatusOK:
		return "", expires, &tokenError{fmt.Sprintf("the token endpoint answered %d%s", code, errorCode(answer.Error))}
	case answer.Token == "" || !strings.EqualFold(answer.Type, "bearer"):
		return "", expires, &tokenError{"the token endpoint returned no bearer token"}
	}
	if seconds, err := answer.Expires.Float64(); err == nil && seconds > 0 {
		expires = t.client.cfg.Now().Add(time.Duration(min(seconds, (24*time.Hour).Seconds()) * float64(time.Second)))
	}
	return answer.Token, expires, nil
}

// knownErrorCode is the form of an error code of OAuth. Other texts of the server are not shown.
var knownErrorCode = regexp.MustCompile(`^[a-z_]{1,40}$`)

func errorCode(code string) string {
	if !knownErrorCode.MatchString(code) {
		return ""
	}
	return ", " + code
}

// getJSON sends a request and decodes the answer of any status.
func (t *tokens) getJSON(req *http.Request, into any) (code int, err error) {
	client := http.Client{Transport: t.client.cfg.HTTP.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxTokenAnswer))
	if err != nil {
		return 0, fmt.Errorf("reading the answer: %w", err)
	}
	if err := exactjson.Decode(text, into); err != nil && resp.StatusCode == http.StatusOK {
		return 0, fmt.Errorf("reading the answer: %w", err)
	}
	return resp.StatusCode, nil
}
