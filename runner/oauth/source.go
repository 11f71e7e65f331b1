// SPDX-License-Identifier: Apache-2.0

// Package oauth gets access tokens by client credentials (RFC 6749, section 4.4). Tokens are kept in memory only. No error
// contains a token, a secret or an address.
package oauth

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"golang.org/x/sync/singleflight"
)

const (
	// renewBefore is the most time before its end at which a token is renewed. A token of a short life is renewed later.
	renewBefore = 30 * time.Second
	// maxLife limits how long a token is used without a new request.
	maxLife = 24 * time.Hour
	// firstPause is the time after a failed request for a token in which callers get its error without another request. It
	// doubles with each further failure up to lastPause.
	firstPause, lastPause = time.Second, 30 * time.Second
	// keptTokens is the number of replaced tokens whose texts are still hidden, because answers can have them.
	keptTokens = 4
)

// Endpoint is where a token is requested, and how.
type Endpoint struct {
	URL    string
	Scopes []string
	// Audience and Resource (RFC 8707) are parameters of the request, or "".
	Audience, Resource string
	// Style is where the request has the secret. The default tries the header, then the body.
	Style oauth2.AuthStyle
}

// Config configures a Source.
type Config struct {
	// App is the name of the OAuth app, which errors show; "" for none.
	App string
	// HTTP is the guarded client for token requests. Its redirects are not followed.
	HTTP *http.Client
	// Now is the clock.
	Now func() time.Time
	// Timeout limits a request for a token.
	Timeout                time.Duration
	ClientID, ClientSecret string
	// Endpoint is where tokens come from. If it has no URL, Find finds it when a server has asked for a token.
	Endpoint Endpoint
	// Find returns the endpoint that a server's challenge (WWW-Authenticate) leads to. Its error is an *Error.
	Find func(ctx context.Context, challenge []string) (Endpoint, error)
	// Ended ends requests for tokens; nil means never. Background counts the ones that no caller waits for; optional.
	Ended      context.Context //nolint:containedctx // the life of the owner
	Background *sync.WaitGroup
}

// Source has the access token of one client. It is safe for concurrent use.
type Source struct {
	cfg Config
	// requests lets callers that need the same new token share one request for it.
	requests singleflight.Group

	mu      sync.Mutex // guards the fields below; never held during a request
	token   string
	renewAt time.Time // zero for a token without an end
	endsAt  time.Time // zero for a token without an end
	earlier []string
	// client is nil until the endpoint is known.
	client *clientcredentials.Config
	// failure is the error of the last request, or nil. It lasts until retryAt. pause is the time between both.
	failure error
	retryAt time.Time
	pause   time.Duration
}

// NewSource returns a source without a token.
func NewSource(cfg Config) *Source {
	s := &Source{cfg: cfg}
	if cfg.Endpoint.URL != "" {
		s.client = s.clientFor(cfg.Endpoint)
	}
	return s
}

func (s *Source) clientFor(e Endpoint) *clientcredentials.Config {
	parameters := url.Values{}
	for name, value := range map[string]string{"audience": e.Audience, "resource": e.Resource} {
		if value != "" {
			parameters.Set(name, value)
		}
	}
	return &clientcredentials.Config{
		ClientID: s.cfg.ClientID, ClientSecret: s.cfg.ClientSecret, TokenURL: e.URL, Scopes: e.Scopes, AuthStyle: e.Style, EndpointParams: parameters,
	}
}

// Token returns the token for a request. It is "" until Replace has found the endpoint. A token that ends soon is renewed in the
// background, so that a caller only waits if there is no valid token.
func (s *Source) Token(ctx context.Context) (string, error) {
	s.mu.Lock()
	token, known, now := s.token, s.client != nil, s.cfg.Now()
	isValid := token != "" && (s.endsAt.IsZero() || now.Before(s.endsAt))
	endsSoon := isValid && !s.renewAt.IsZero() && !now.Before(s.renewAt)
	s.mu.Unlock()
	switch {
	case endsSoon:
		s.finishInBackground(s.request(ctx, token, nil))
		return token, nil
	case isValid || !known:
		return token, nil
	}
	return s.Replace(ctx, token, nil)
}

// Replace returns another token than the old one, which a server rejected with a challenge. Callers that need it at the same
// time share one request, and each waits for it no longer than its own context allows. After a failed request they share its
// error for a time. An error is an *Error, or the error of a cancelled context.
func (s *Source) Replace(ctx context.Context, old string, challenge []string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	result := s.request(ctx, old, challenge)
	select {
	case r := <-result:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.token, s.nameApp(r.Err)
	case <-ctx.Done():
		s.finishInBackground(result)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return "", s.LateError(ctx.Err())
		}
		return "", ctx.Err()
	}
}

// request begins to replace the old token, or joins the request that does. It does not end with ctx.
func (s *Source) request(ctx context.Context, old string, challenge []string) <-chan singleflight.Result {
	return s.requests.DoChan(old, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
		defer cancel()
		if s.cfg.Ended != nil {
			defer context.AfterFunc(s.cfg.Ended, cancel)()
		}
		return nil, s.fetchToken(ctx, old, challenge)
	})
}

// finishInBackground lets the owner wait for a request that no caller waits for.
func (s *Source) finishInBackground(result <-chan singleflight.Result) {
	if s.cfg.Background != nil {
		s.cfg.Background.Go(func() { <-result })
	}
}

// LateError returns the error of a wait for a token that a deadline ended.
func (s *Source) LateError(cause error) error {
	return &Error{App: s.cfg.App, Problem: lateAnswer, IsTemporary: true, cause: cause}
}

// nameApp returns an error with the name of the app.
func (s *Source) nameApp(err error) error {
	var failed *Error
	if !errors.As(err, &failed) {
		return err
	}
	named := *failed
	named.App = s.cfg.App
	return &named
}

// fetchToken replaces the old token, unless another request has done so.
func (s *Source) fetchToken(ctx context.Context, old string, challenge []string) error {
	s.mu.Lock()
	token, client, failure := s.token, s.client, s.failure
	pauses := failure != nil && s.cfg.Now().Before(s.retryAt)
	s.mu.Unlock()
	switch {
	case token != old:
		return nil
	case pauses:
		return failure
	}
	client, got, err := s.sendRequest(ctx, client, challenge)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.failure != nil && s.cfg.Now().Sub(s.retryAt) > lastPause {
			s.pause = 0 // The failures before were another fault.
		}
		s.pause = min(max(firstPause, 2*s.pause), lastPause)
		s.failure, s.retryAt = err, s.cfg.Now().Add(s.pause)
		return err
	}
	s.failure, s.pause = nil, 0
	if old != "" {
		s.earlier = append(s.earlier[max(0, len(s.earlier)-keptTokens+1):], old)
	}
	s.token, s.renewAt, s.endsAt, s.client = got.text, time.Time{}, time.Time{}, client
	if got.life > 0 {
		life := min(got.life, maxLife)
		s.endsAt = s.cfg.Now().Add(life)
		s.renewAt = s.endsAt.Add(-min(renewBefore, life/10))
	}
	return nil
}

// sendRequest requests a token. Without a client it finds the endpoint first.
func (s *Source) sendRequest(
	ctx context.Context, client *clientcredentials.Config, challenge []string,
) (*clientcredentials.Config, token, error) {
	if client == nil {
		endpoint, err := s.cfg.Find(ctx, challenge)
		if err != nil {
			return nil, token{}, err
		}
		client = s.clientFor(endpoint)
	}
	got, err := requestToken(ctx, s.cfg.HTTP, client)
	return client, got, err
}

// SecretTexts returns the texts that must not leave a request: the client secret and the tokens. A nil source has none.
func (s *Source) SecretTexts() []string {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(slices.Clone(s.earlier), s.token, s.cfg.ClientSecret)
}
