// SPDX-License-Identifier: Apache-2.0

// Package oauthtest has an authorization server and protected services for tests.
package oauthtest

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"

	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// Credentials that a Server accepts. They and its tokens contain Canary, which no text may show.
const (
	ClientID = "agents"
	Canary   = "c4nary"
	Secret   = Canary + "-s&cret/ü"
)

// Server is an authorization server for client credentials. It issues Token(1), Token(2) and so on.
type Server struct {
	*httptest.Server
	// Lifetime is the value of expires_in in seconds; 0 leaves it out.
	Lifetime int
	// BodyOnly rejects clients that do not send their secret in the body.
	BodyOnly bool
	// Answer answers a request before the server looks at it. It returns false to leave the answer to the server.
	Answer func(w http.ResponseWriter, r *http.Request) bool

	mu     sync.Mutex
	issued int
	forms  []url.Values
}

// Token returns a token of a server by its number.
func Token(number int) string { return fmt.Sprintf("%s-token-%d", Canary, number) }

// NewServer starts a server over plain HTTP.
func NewServer(t testing.TB) *Server {
	t.Helper()
	s := &Server{}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serveToken))
	t.Cleanup(s.Close)
	return s
}

func (s *Server) serveToken(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	_ = r.ParseForm()
	s.forms = append(s.forms, r.PostForm)
	answer := s.Answer
	s.mu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	id, secret, isBasic := r.BasicAuth()
	if !isBasic {
		id, secret = r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	} else {
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
	}
	isClient := id == ClientID && subtle.ConstantTimeCompare([]byte(secret), []byte(Secret)) == 1
	switch {
	case r.Method != http.MethodPost || r.PostForm.Get("grant_type") != "client_credentials":
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprint(w, `{"error":"unsupported_grant_type"}`)
	case !isClient || s.BodyOnly && isBasic:
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprintf(w, `{"error":"invalid_client","error_description":"not %s"}`, secret) //nolint:gosec // a careless server, in tests only
	default:
		s.issued++
		out := map[string]any{"access_token": Token(s.issued), "token_type": "Bearer"}
		if s.Lifetime > 0 {
			out["expires_in"] = s.Lifetime
		}
		_ = json.NewEncoder(w).Encode(out)
	}
}

// App returns the OAuth app of the server's client.
func (s *Server) App(name string) runnerconfig.OAuthApp {
	return runnerconfig.OAuthApp{Name: name, TokenURL: s.URL + "/token", ClientID: ClientID, ClientSecret: Secret}
}

// Requests returns the forms of all requests.
func (s *Server) Requests() []url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]url.Values(nil), s.forms...)
}

// Issued returns the number of issued tokens.
func (s *Server) Issued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.issued
}

// Revoke makes the last token invalid.
func (s *Server) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued++
}

// Accepts reports whether a request has the last token, which is the only valid one.
func (s *Server) Accepts(r *http.Request) bool {
	issued := s.Issued()
	return issued > 0 && r.Header.Get("Authorization") == "Bearer "+Token(issued)
}
