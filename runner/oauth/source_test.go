// SPDX-License-Identifier: Apache-2.0

package oauth_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/runner/oauth"
	"github.com/agentplatform/agentplatform/runner/oauth/oauthtest"
)

// newApps returns apps behind the guard, which allows test servers, with a clock.
func newApps(t *testing.T, rules egress.Rules, timeout time.Duration) (*oauth.Apps, *clocktesting.FakeClock) {
	t.Helper()
	now := clocktesting.NewFakeClock(time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC))
	client := egress.New(rules).Client(egress.Tool, egress.ClientOptions{MaxResponse: 8 << 20})
	t.Cleanup(client.CloseIdleConnections)
	return oauth.NewApps(oauth.AppsConfig{HTTP: client, Now: now.Now, Timeout: timeout}), now
}

var loopback = egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.Tool: {netip.MustParsePrefix("127.0.0.0/8")}}}

func TestSource_RequestsByClientCredentials(t *testing.T) {
	t.Parallel()
	s := oauthtest.NewServer(t)
	apps, _ := newApps(t, loopback, 0)
	app := s.App("crm")
	app.Scopes, app.Audience = []string{"crm.read", "crm.write"}, "https://crm.example.com"
	token, err := apps.Source(app).Token(t.Context())
	require.NoError(t, err)
	require.Equal(t, oauthtest.Token(1), token)
	require.Equal(t, []url.Values{{
		"grant_type": {"client_credentials"}, "scope": {"crm.read crm.write"}, "audience": {"https://crm.example.com"},
	}}, s.Requests())
}

// Some servers accept the secret only in the body. The source remembers that.
func TestSource_SendsSecretInBody(t *testing.T) {
	t.Parallel()
	s := oauthtest.NewServer(t)
	s.BodyOnly = true
	apps, _ := newApps(t, loopback, 0)
	source := apps.Source(s.App("crm"))
	token, err := source.Token(t.Context())
	require.NoError(t, err)
	require.Len(t, s.Requests(), 2)
	_, err = source.Replace(t.Context(), token, nil)
	require.NoError(t, err)
	require.Len(t, s.Requests(), 3)
}

// A token is used until shortly before its end. An app of equal values shares it, and an app with another secret does not.
func TestSource_KeepsTokenUntilItsEnd(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		lifetime int
		used     time.Duration
		more     time.Duration
	}{
		{"an hour", 3600, 3569 * time.Second, time.Second},
		{"ten seconds", 10, 8 * time.Second, time.Second},
		{"without an end", 0, 1000 * time.Hour, 0},
		{"a year", 365 * 86400, 24*time.Hour - 31*time.Second, time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := oauthtest.NewServer(t)
			s.Lifetime = row.lifetime
			apps, now := newApps(t, loopback, 0)
			use := func() string {
				token, err := apps.Source(s.App("crm")).Token(t.Context())
				require.NoError(t, err)
				return token
			}
			require.Equal(t, oauthtest.Token(1), use())
			now.Step(row.used)
			require.Equal(t, oauthtest.Token(1), use())
			if row.more > 0 {
				now.Step(row.more)
				require.Equal(t, oauthtest.Token(1), use(), "it is renewed in the background")
				renewed, err := apps.Source(s.App("crm")).Replace(t.Context(), oauthtest.Token(1), nil)
				require.NoError(t, err)
				require.Equal(t, oauthtest.Token(2), renewed)
				require.Equal(t, oauthtest.Token(2), use())
				require.Len(t, s.Requests(), 2)
			}
		})
	}
	s := oauthtest.NewServer(t)
	apps, _ := newApps(t, loopback, 0)
	other := s.App("crm")
	other.ClientSecret = "another"
	require.Same(t, apps.Source(s.App("crm")), apps.Source(s.App("crm")))
	require.NotSame(t, apps.Source(s.App("crm")), apps.Source(other))
}

// Callers that need a token at the same time share one request. A token that another caller has replaced is not replaced again.
func TestSource_SharesRequests(t *testing.T) {
	t.Parallel()
	s := oauthtest.NewServer(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	s.Answer = func(http.ResponseWriter, *http.Request) bool {
		close(asked) // A second request would close it again.
		<-answer
		return false
	}
	apps, _ := newApps(t, loopback, time.Minute)
	source := apps.Source(s.App("crm"))
	const callers = 50
	tokens := make(chan string, callers)
	for range callers {
		go func() {
			token, err := source.Token(context.WithoutCancel(t.Context()))
			if err != nil {
				token = err.Error()
			}
			tokens <- token
		}()
	}
	<-asked
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := source.Token(impatient)
	require.ErrorIs(t, err, context.Canceled)
	close(answer)
	for range callers {
		require.Equal(t, oauthtest.Token(1), <-tokens)
	}
	token, err := source.Replace(t.Context(), "an earlier token", nil)
	require.NoError(t, err)
	require.Equal(t, oauthtest.Token(1), token)
	require.Len(t, s.Requests(), 1)
}

// text returns an answer of a token endpoint.
func text(status int, body string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
		return true
	}
}

// Errors name the reason. They have no secret, no token, no address and no text of the server, except an error code of OAuth.
func TestSource_ReportsFailures(t *testing.T) {
	t.Parallel()
	const elsewhere = `{"access_token":"c4nary-x","token_type":"bearer"}`
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { text(http.StatusOK, elsewhere)(w, r) }))
	t.Cleanup(target.Close)
	for _, row := range []struct {
		name        string
		answer      func(http.ResponseWriter, *http.Request) bool
		want        string
		isTemporary bool
	}{
		{"code", text(400, `{"error":"invalid_scope","error_description":"c4nary"}`), "the token endpoint answered 400, invalid_scope", false},
		{"code in a success", text(200, `{"error":"invalid_scope","access_token":"c4nary"}`), "the token endpoint answered 200, invalid_scope", false},
		{"text as code", text(400, `{"error":"c4nary at http://127.0.0.1"}`), "the token endpoint answered 400", false},
		{"page", text(403, `<html>c4nary`), "the token endpoint answered 403", false},
		{"busy", text(429, `c4nary`), "the token endpoint answered 429", true},
		{"broken", text(503, `c4nary`), "the token endpoint answered 503", true},
		{"no JSON", text(200, `c4nary`), "the answer of the token endpoint is not as OAuth 2.0 says", false},
		{"no token", text(200, `{"token_type":"Bearer"}`), "the answer of the token endpoint is not as OAuth 2.0 says", false},
		{"other type", text(200, `{"access_token":"c4nary","token_type":"mac"}`), "the token endpoint returned no bearer token", false},
		{"line break", text(200, `{"access_token":"c4nary\nX-Evil: 1","token_type":"Bearer"}`), "the token endpoint returned no bearer token", false},
		{"10 MiB", text(200, string(bytes.Repeat([]byte("c4nary "), 10<<20/7))), "the answer of the token endpoint has more than 64 KiB", false},
		{"redirect", func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, target.URL, http.StatusTemporaryRedirect)
			return true
		}, "the token endpoint answered 307", false},
		{"cut", func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(`{"access_token":"c4nary`))
			panic(http.ErrAbortHandler)
		}, "the token endpoint cannot be reached", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := oauthtest.NewServer(t)
			s.Answer = row.answer
			apps, _ := newApps(t, loopback, time.Minute)
			token, err := apps.Source(s.App("crm")).Token(t.Context())
			require.Empty(t, token)
			require.EqualError(t, err, `getting an access token of the OAuth app "crm": `+row.want)
			var failed *oauth.Error
			require.ErrorAs(t, err, &failed)
			require.Equal(t, row.isTemporary, failed.IsTemporary)
		})
	}
}

// Failures without an answer, and of the credentials.
func TestSource_ReportsUnusableEndpoints(t *testing.T) {
	t.Parallel()
	t.Run("wrong secret", func(t *testing.T) {
		t.Parallel()
		s := oauthtest.NewServer(t)
		apps, _ := newApps(t, loopback, time.Minute)
		app := s.App("crm")
		app.ClientSecret = "c4nary"
		_, err := apps.Source(app).Token(t.Context())
		require.EqualError(t, err, `getting an access token of the OAuth app "crm": the token endpoint answered 401, invalid_client`)
	})
	t.Run("slow", func(t *testing.T) {
		t.Parallel()
		s := oauthtest.NewServer(t)
		s.Answer = func(_ http.ResponseWriter, r *http.Request) bool {
			<-r.Context().Done() // The client gives up.
			return true
		}
		apps, _ := newApps(t, loopback, 50*time.Millisecond)
		_, err := apps.Source(s.App("crm")).Token(t.Context())
		require.EqualError(t, err, `getting an access token of the OAuth app "crm": the token endpoint did not answer in time`)
	})
	t.Run("forbidden address", func(t *testing.T) {
		t.Parallel()
		s := oauthtest.NewServer(t)
		apps, _ := newApps(t, egress.Rules{}, time.Minute)
		_, err := apps.Source(s.App("crm")).Token(t.Context())
		require.EqualError(t, err, `getting an access token of the OAuth app "crm": the address of the token endpoint is not allowed; the platform operator can open it for the egress purpose tool`)
		require.Empty(t, s.Requests())
	})
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		s := oauthtest.NewServer(t)
		s.Close()
		apps, _ := newApps(t, loopback, time.Minute)
		_, err := apps.Source(s.App("crm")).Token(t.Context())
		require.EqualError(t, err, `getting an access token of the OAuth app "crm": the token endpoint cannot be reached`)
	})
}

// After a failed request the endpoint is asked again only after a pause, which doubles. Meanwhile callers get the error at once.
func TestSource_PausesAfterFailures(t *testing.T) {
	t.Parallel()
	s := oauthtest.NewServer(t)
	s.BodyOnly = true // one request for each token, once the source knows it
	apps, now := newApps(t, loopback, time.Minute)
	source := apps.Source(s.App("crm"))
	token, err := source.Token(t.Context())
	require.NoError(t, err)
	var failing atomic.Bool
	failing.Store(true)
	s.Answer = func(w http.ResponseWriter, r *http.Request) bool { return failing.Load() && text(503, "c4nary")(w, r) }
	requests := len(s.Requests())
	for _, pause := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		for range 3 {
			_, err := source.Replace(t.Context(), token, nil)
			require.EqualError(t, err, `getting an access token of the OAuth app "crm": the token endpoint answered 503`)
		}
		requests++
		require.Len(t, s.Requests(), requests)
		now.Step(pause*time.Second - time.Nanosecond)
		_, err := source.Replace(t.Context(), token, nil)
		require.Error(t, err)
		require.Len(t, s.Requests(), requests, "it pauses for %d s", pause)
		now.Step(time.Nanosecond)
	}
	now.Step(time.Hour)
	_, err = source.Replace(t.Context(), token, nil)
	require.Error(t, err)
	now.Step(time.Second)
	failing.Store(false)
	next, err := source.Replace(t.Context(), token, nil)
	require.NoError(t, err)
	failing.Store(true)
	_, err = source.Replace(t.Context(), next, nil)
	require.Error(t, err)
	now.Step(time.Second)
	failing.Store(false)
	_, err = source.Replace(t.Context(), next, nil)
	require.NoError(t, err, "a success ends the growth of the pause")
}

// A token that cannot be renewed is used until its end.
func TestSource_UsesTokenWhileRenewalFails(t *testing.T) {
	t.Parallel()
	s := oauthtest.NewServer(t)
	s.Lifetime = 3600
	apps, now := newApps(t, loopback, time.Minute)
	source := apps.Source(s.App("crm"))
	first, err := source.Token(t.Context())
	require.NoError(t, err)
	s.Answer = text(503, "c4nary")
	now.Step(3599 * time.Second)
	token, err := source.Token(t.Context())
	require.NoError(t, err)
	require.Equal(t, first, token)
	now.Step(time.Second)
	_, err = source.Token(t.Context())
	require.Error(t, err, "it has ended")
}

// While a token is valid, callers use it and do not wait for its renewal. After its end they wait for the same renewal.
func TestSource_RenewsInBackground(t *testing.T) {
	t.Parallel()
	s := oauthtest.NewServer(t)
	s.Lifetime = 3600
	apps, now := newApps(t, loopback, time.Hour)
	source := apps.Source(s.App("crm"))
	first, err := source.Token(t.Context())
	require.NoError(t, err)
	caller, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked, answer := make(chan struct{}), make(chan struct{})
	respond := sync.OnceFunc(func() { close(answer) })
	t.Cleanup(respond)
	s.Answer = func(http.ResponseWriter, *http.Request) bool {
		cancel()     // A caller that waits gets an error.
		close(asked) // A second request would close it again.
		<-answer
		return false
	}
	now.Step(3570 * time.Second)
	for range 3 {
		token, err := source.Token(caller)
		require.NoError(t, err)
		require.Equal(t, first, token)
	}
	<-asked
	now.Step(30 * time.Second)
	_, err = source.Token(caller)
	require.ErrorIs(t, err, context.Canceled, "the token has ended")
	tokens := make(chan string)
	go func() {
		token, err := source.Token(context.WithoutCancel(caller))
		if err != nil {
			token = err.Error()
		}
		tokens <- token
	}()
	respond()
	require.Equal(t, oauthtest.Token(2), <-tokens)
	require.Len(t, s.Requests(), 2)
}

// The texts that answers may contain are the client secret, the token, and the tokens before.
func TestSource_NamesSecretTexts(t *testing.T) {
	t.Parallel()
	s := oauthtest.NewServer(t)
	apps, _ := newApps(t, loopback, 0)
	source := apps.Source(s.App("crm"))
	token, err := source.Token(t.Context())
	require.NoError(t, err)
	for range 6 {
		token, err = source.Replace(t.Context(), token, nil)
		require.NoError(t, err)
	}
	require.Equal(t, []string{oauthtest.Token(3), oauthtest.Token(4), oauthtest.Token(5), oauthtest.Token(6), oauthtest.Token(7), oauthtest.Secret}, source.SecretTexts())
	require.Empty(t, (*oauth.Source)(nil).SecretTexts())
}
