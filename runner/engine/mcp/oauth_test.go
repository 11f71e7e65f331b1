// SPDX-License-Identifier: Apache-2.0

package mcp_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine/mcp"
	"github.com/agentplatform/agentplatform/runner/oauth/oauthtest"
)

// authority is an authorization server that issues token-1, token-2 and so on. Only the last one is valid.
type authority struct {
	*httptest.Server
	metadata map[string]string
	failure  string
	lifetime int
	// hold delays the answer with a token; optional.
	hold func()

	mu     sync.Mutex
	issued int
	forms  []string
	basic  []string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{metadata: map[string]string{}}
	a.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/token" {
			text, found := a.metadata[r.URL.Path]
			if !found {
				http.NotFound(w, r)
				return
			}
			_, _ = io.WriteString(w, strings.ReplaceAll(text, "SELF", a.URL))
			return
		}
		body, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		if a.hold != nil {
			a.hold()
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.forms, a.basic = append(a.forms, string(body)), append(a.basic, user+":"+password)
		if a.failure != "" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, a.failure)
			return
		}
		a.issued++
		_, _ = fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"Bearer","expires_in":%d}`, a.issued, a.lifetime)
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *authority) last() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprintf("Bearer token-%d", a.issued)
}

// protect makes a server require the last token of an authority.
func protect(f *fake, a *authority, challenge string) {
	f.before = func(w http.ResponseWriter, r *http.Request, _ request) bool {
		if text, found := a.metadata[r.URL.Path]; found && r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, strings.NewReplacer("SELF", a.URL, "SERVER", f.URL).Replace(text))
			return true
		}
		if r.Header.Get("Authorization") == a.last() && a.last() != "Bearer token-0" {
			return false
		}
		w.Header().Set("WWW-Authenticate", strings.ReplaceAll(challenge, "SERVER", f.URL))
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
}

func oauthServer(t *testing.T, f *fake, o bundle.MCPOAuth) mcp.Server {
	t.Helper()
	o.ClientID, o.ClientSecret = "client", "${CLIENT_SECRET}"
	return resolve(t, bundle.MCPServer{URL: f.URL + "/mcp", OAuth: &o}, runnerconfig.Variable{Name: "CLIENT_SECRET", Value: "very-secret\n", Sensitive: true})
}

// A server that repeats the header of a request in an error shows no token to anybody.
func TestOAuth_HidesTokenInErrorOfList(t *testing.T) {
	t.Parallel()
	f, a := newFake(t), newAuthority(t)
	a.lifetime = 3600
	protect(f, a, "Bearer")
	allow := f.before
	f.before = func(w http.ResponseWriter, r *http.Request, call request) bool {
		if allow(w, r, call) {
			return true
		}
		if call.Method != "tools/list" {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"no list for %s"}}`, call.ID, r.Header.Get("Authorization"))
		return true
	}
	c, _ := newClient(t)
	_, err := c.List(t.Context(), oauthServer(t, f, bundle.MCPOAuth{TokenURL: a.URL + "/token"}))
	require.ErrorContains(t, err, "no list for Bearer ")
	require.NotContains(t, err.Error(), "token-1")
}

// A server that repeats the header of a request shows no token to anybody, not even one that was replaced often since.
func TestOAuth_HidesReplacedTokens(t *testing.T) {
	t.Parallel()
	for name, called := range map[string]bool{"token from before the call": true, "token of the call": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, a := newFake(t), newAuthority(t)
			a.lifetime = 3600
			c, now := newClient(t)
			server := oauthServer(t, f, bundle.MCPOAuth{TokenURL: a.URL + "/token"})
			if called {
				_, err := c.Call(t.Context(), server, "get", nil, false)
				require.NoError(t, err)
			}
			f.answer = func(w http.ResponseWriter, r *http.Request, call request) {
				for range 10 {
					now.Step(time.Hour)
					if _, err := c.TokensOf(server)(t.Context()); err != nil {
						t.Error(err)
					}
				}
				reply(w, call, textResult("done for "+r.Header.Get("Authorization")))
			}
			got, err := c.Call(t.Context(), server, "get", nil, false)
			require.NoError(t, err)
			require.Equal(t, "done for Bearer [REDACTED]", got["result"])
			require.Equal(t, 11, a.issued)
		})
	}
}

// A token that the server rejects, or that has expired, is replaced once a call. The call is executed once.
func TestOAuth_RenewsTokens(t *testing.T) {
	t.Parallel()
	f, a := newFake(t), newAuthority(t)
	a.lifetime = 3600
	protect(f, a, "Bearer")
	c, now := newClient(t)
	server := oauthServer(t, f, bundle.MCPOAuth{TokenURL: a.URL + "/token", Scopes: []string{"crm.read", "crm.write"}})
	call := func() {
		got, err := c.Call(t.Context(), server, "get", nil, false)
		require.NoError(t, err)
		require.Equal(t, "done", got["result"])
	}
	call()
	require.Equal(t, []string{"grant_type=client_credentials&scope=crm.read+crm.write"}, a.forms)
	require.Equal(t, []string{"client:very-secret"}, a.basic)
	call()
	require.Equal(t, 1, a.issued, "the token is used again")
	now.Step(time.Hour)
	call()
	require.Equal(t, 2, a.issued, "after its end")
	a.mu.Lock()
	a.issued++ // somebody revokes the token
	a.mu.Unlock()
	call()
	require.Equal(t, 4, a.issued)
	require.Equal(t, 4, f.ledger())
	f.before = func(w http.ResponseWriter, _ *http.Request, call request) bool {
		if call.Method == "tools/call" {
			w.WriteHeader(http.StatusForbidden)
		}
		return call.Method == "tools/call"
	}
	_, err := c.Call(t.Context(), server, "get", nil, true)
	require.EqualError(t, err, `the MCP server "crm" cannot be used: it rejects the credentials (HTTP status 403)`)
	require.Equal(t, 5, a.issued)
	require.Equal(t, 6, f.requests("POST tools/call")-1, "4 calls, one rejected before, and twice")
}

// A caller waits for a token no longer than its own context allows, and requests share one request for a token.
func TestOAuth_WaitersObeyTheirContext(t *testing.T) {
	t.Parallel()
	f, a := newFake(t), newAuthority(t)
	protect(f, a, "Bearer")
	asked, answer := make(chan struct{}), make(chan struct{})
	a.hold = func() {
		close(asked) // A second request would close it again.
		<-answer
	}
	c, _ := newClient(t)
	server := oauthServer(t, f, bundle.MCPOAuth{TokenURL: a.URL + "/token"})
	first := make(chan error, 1)
	go func() {
		_, err := c.Call(context.WithoutCancel(t.Context()), server, "get", nil, false)
		first <- err
	}()
	<-asked
	tokens := c.TokensOf(server)
	for _, row := range []struct {
		name      string
		cancelled bool
		want      error
	}{{"cancelled", true, context.Canceled}, {"deadline", false, context.DeadlineExceeded}} {
		t.Run(row.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			if !row.cancelled {
				ctx, cancel = context.WithDeadline(t.Context(), time.Now().Add(10*time.Millisecond))
			}
			defer cancel()
			got := make(chan error, 1)
			go func() {
				_, err := tokens(ctx)
				got <- err
			}()
			if row.cancelled {
				cancel()
			}
			require.ErrorIs(t, <-got, row.want)
		})
	}
	close(answer)
	require.NoError(t, <-first)
	require.Equal(t, 1, a.issued)
}

// The remedy names the purpose of the connection: mcp for the client of a server, tool for an OAuth app.
func TestOAuth_NamesThePurposeOfForbiddenEndpoints(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c, _ := newClient(t)
	_, err := c.Call(t.Context(), oauthServer(t, f, bundle.MCPOAuth{TokenURL: "https://169.254.169.254/token"}), "get", nil, true)
	require.EqualError(t, err, `the MCP server "crm" cannot be used: getting an access token: `+
		"the address of the token endpoint is not allowed; the platform operator can open it for the egress purpose mcp")
}

func TestOAuth_ReportsFailures(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, failure, want string }{
		{"code", `{"error":"invalid_client","error_description":"very-secret"}`, "the token endpoint answered 400, invalid_client"},
		{"unknown code", `{"error":"very-secret at http://x"}`, "the token endpoint answered 400"},
		{"no JSON", `<html>`, "the token endpoint answered 400"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f, a := newFake(t), newAuthority(t)
			a.failure = row.failure
			c, _ := newClient(t)
			_, err := c.Call(t.Context(), oauthServer(t, f, bundle.MCPOAuth{TokenURL: a.URL + "/token"}), "get", nil, true)
			require.EqualError(t, err, `the MCP server "crm" cannot be used: getting an access token: `+row.want)
			require.Zero(t, f.requests("POST tools/call"))
		})
	}
}

// No text that a model sees has a secret or an address, whatever a server answers.
func TestCall_ShowsNoSecrets(t *testing.T) {
	t.Parallel()
	const canary = `k4nary-"sëcret"`
	variables := []runnerconfig.Variable{{Name: "TOKEN", Value: canary, Sensitive: true}}
	echo := func(format string) func(http.ResponseWriter, *http.Request, request) {
		return func(w http.ResponseWriter, r *http.Request, call request) {
			quoted, _ := json.Marshal("you sent " + r.Header.Get("X-Key"))
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,`+format+`}`, call.ID, quoted)
		}
	}
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request, request){
		"result": echo(`"result":{"content":[{"type":"text","text":%s}]}`),
		"escaped": func(w http.ResponseWriter, _ *http.Request, call request) {
			reply(w, call, `{"content":[{"type":"text","text":"\u006b4nary-\"s\u00ebcret\""}]}`)
		},
		"url": func(w http.ResponseWriter, r *http.Request, call request) {
			reply(w, call, textResult("/?key="+url.QueryEscape(r.Header.Get("X-Key"))))
		},
		"base64": func(w http.ResponseWriter, r *http.Request, call request) {
			reply(w, call, textResult(base64.StdEncoding.EncodeToString([]byte(r.Header.Get("X-Key")+"!"))))
		},
		"structured": echo(`"result":{"content":[],"structuredContent":{"a":[%s]}}`),
		"tool error": echo(`"result":{"isError":true,"content":[{"type":"text","text":%s}]}`),
		"error":      echo(`"error":{"code":-1,"message":%s}`),
		"status": func(w http.ResponseWriter, r *http.Request, _ request) {
			http.Error(w, r.Header.Get("X-Key"), http.StatusBadGateway)
		},
		"redirect": func(w http.ResponseWriter, r *http.Request, _ request) {
			http.Redirect(w, r, "/"+r.Header.Get("X-Key"), http.StatusFound)
		},
		"cut": func(w http.ResponseWriter, _ *http.Request, _ request) { hijack(w, "") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.answer = answer
			c, _ := newClient(t)
			server := resolve(t, bundle.MCPServer{URL: f.URL + "/p4th", Headers: map[string]string{"X-Key": "Key ${TOKEN}"}}, variables...)
			got, err := c.Call(t.Context(), server, "get", nil, false)
			shown, encoding := json.Marshal(got)
			require.NoError(t, encoding)
			text := string(shown) + fmt.Sprint(err)
			for _, part := range []string{"k4nary", "127.0.0.1", "p4th", "ytRuYXJ5", "0bmFyeS", "NG5hcnkt", "E5hcnkt"} {
				require.NotContains(t, text, part)
			}
			require.NotContains(t, text, "\n")
		})
	}
}

func TestResolve_ReportsMissingValues(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		spec bundle.MCPServer
		want string
	}{
		{"variable", bundle.MCPServer{URL: "https://${HOST}/${PATH_1}"}, "the environment has no variable HOST, PATH_1"},
		{"context", bundle.MCPServer{URL: "https://a.example", Headers: map[string]string{"X-A": "${context.user}"}}, `the context of the run has no text or number "user"`},
		{"line break", bundle.MCPServer{URL: "https://a.example", Headers: map[string]string{"X-A": "a${BREAK}b"}}, `the header "X-A" has a line break`},
		{"not an address", bundle.MCPServer{URL: "${BREAK}"}, `"url" is not an http or https URL`},
		{"token address", bundle.MCPServer{URL: "https://a.example", OAuth: &bundle.MCPOAuth{TokenURL: "ftp://x"}}, `"oauth.token_url" is not an http or https URL`},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.spec.Name = "crm"
			_, err := mcp.Resolve(&row.spec, runnerconfig.Sorted([]runnerconfig.Variable{{Name: "BREAK", Value: "x\ny"}}), map[string]any{})
			require.EqualError(t, err, `MCP server "crm": `+row.want+map[string]string{"line break": " or another control character"}[row.name])
			require.ErrorAs(t, err, new(*mcp.ValueError))
		})
	}
	_, err := mcp.Resolve(&bundle.MCPServer{Name: "crm", URL: "https://a.example", Headers: map[string]string{"X-A": "${context.user}"}}, runnerconfig.Variables{}, nil)
	require.NoError(t, err, "a build has no context")
}

// A server that names an OAuth app gets its token. Servers of one app share it. A token that a server rejects is replaced once
// a call, and no text that a model sees has a token or the client secret.
func TestOAuthApp_AuthorizesServers(t *testing.T) {
	t.Parallel()
	s := oauthtest.NewServer(t)
	answer := func(w http.ResponseWriter, r *http.Request, call request) {
		reply(w, call, textResult("you sent "+r.Header.Get("Authorization")+" and "+url.QueryEscape(oauthtest.Secret)))
	}
	guard := func(w http.ResponseWriter, r *http.Request, _ request) bool {
		if s.Accepts(r) {
			return false
		}
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	c, _ := newClient(t)
	variables := runnerconfig.Variables{}.WithOAuthApps([]runnerconfig.OAuthApp{s.App("crm")})
	call := func(f *fake) {
		server, err := mcp.Resolve(&bundle.MCPServer{Name: "crm", URL: f.URL + "/mcp", OAuthApp: "crm"}, variables, nil)
		require.NoError(t, err)
		got, err := c.Call(t.Context(), server, "get", nil, false)
		require.NoError(t, err)
		require.Equal(t, "you sent Bearer [REDACTED] and [REDACTED]", got["result"])
	}
	first, second := newFake(t), newFake(t)
	first.answer, first.before, second.answer, second.before = answer, guard, answer, guard
	call(first)
	call(second)
	require.Equal(t, 1, s.Issued())
	s.Revoke()
	call(second)
	require.Equal(t, 3, s.Issued())
	require.Equal(t, 2, second.ledger())

	_, err := mcp.Resolve(&bundle.MCPServer{Name: "crm", URL: first.URL, OAuthApp: "erp"}, variables, nil)
	require.EqualError(t, err, `MCP server "crm": the environment has no OAuth app "erp"; add it to spec.oauthApps of the Environment`)
	require.ErrorAs(t, err, new(*mcp.ValueError))
}

// A token endpoint that hangs is named in the error, while the session connects and when a call replaces the token.
func TestOAuthApp_NamesSlowTokenEndpoint(t *testing.T) {
	t.Parallel()
	const limit = bundle.Duration(50 * time.Millisecond)
	for name, row := range map[string]struct {
		spec     bundle.MCPServer
		connects bool
	}{
		"connecting": {bundle.MCPServer{ConnectTimeout: limit}, false},
		"waiting":    {bundle.MCPServer{Timeout: limit}, false},
		"replacing":  {bundle.MCPServer{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, f, release := oauthtest.NewServer(t), newFake(t), make(chan struct{})
			defer close(release)
			c, _ := newClient(t)
			row.spec.Name, row.spec.URL, row.spec.OAuthApp = "crm", f.URL+"/mcp", "crm"
			server, err := mcp.Resolve(&row.spec, runnerconfig.Variables{}.WithOAuthApps([]runnerconfig.OAuthApp{s.App("crm")}), nil)
			require.NoError(t, err)
			if row.connects {
				_, err := c.Call(t.Context(), server, "get", nil, false)
				require.NoError(t, err)
				f.before = func(w http.ResponseWriter, _ *http.Request, _ request) bool {
					w.WriteHeader(http.StatusUnauthorized)
					return true
				}
				row.spec.Timeout = limit
			}
			s.Answer = func(http.ResponseWriter, *http.Request) bool { <-release; return true }
			_, err = c.Call(t.Context(), server, "get", nil, false)
			require.EqualError(t, err,
				`the MCP server "crm" cannot be used: getting an access token of the OAuth app "crm": the token endpoint did not answer in time`)
		})
	}
}
