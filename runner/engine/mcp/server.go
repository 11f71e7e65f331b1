// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/expand"
	"github.com/agentplatform/agentplatform/internal/redact"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/oauth"
)

// Server is a server of an agent with the values of variables.
type Server struct {
	// Spec has the keys of the repository.
	Spec *bundle.MCPServer
	URL  string

	headers http.Header
	oauth   *bundle.MCPOAuth
	app     *runnerconfig.OAuthApp
	// secrets are values that no model sees.
	secrets []string
	// key identifies servers that can share a session: equal URLs, headers and credentials.
	key string
}

// ValueError means that a value of the configuration is missing or invalid. Its text has no values.
type ValueError struct{ problem string }

func (e *ValueError) Error() string { return e.problem }

// Resolve returns a server with the values of variables and of the run's context. Without a context (nil), headers with
// values of the context are left out. Errors are *ValueError.
func Resolve(spec *bundle.MCPServer, variables runnerconfig.Variables, runContext map[string]any) (Server, error) {
	r := resolver{name: spec.Name, variables: variables, runContext: runContext}
	r.expansion.Lookup = r.variableValue
	s := Server{Spec: spec, URL: r.text("url", spec.URL), headers: http.Header{}}
	for _, name := range slices.Sorted(maps.Keys(spec.Headers)) {
		if runContext == nil && bundle.UsesContext(spec.Headers[name]) {
			continue
		}
		value := strings.TrimSpace(r.text("headers", spec.Headers[name]))
		if !httpguts.ValidHeaderFieldValue(value) {
			r.fail("the header %q has a line break or another control character", name)
		}
		s.headers.Set(name, value)
	}
	if o := spec.OAuth; o != nil {
		s.oauth = &bundle.MCPOAuth{
			ClientID: r.text("oauth.client_id", o.ClientID), ClientSecret: strings.TrimSpace(r.text("oauth.client_secret", o.ClientSecret)),
			TokenURL: r.text("oauth.token_url", o.TokenURL), Scopes: o.Scopes,
		}
		r.secrets = append(r.secrets, s.oauth.ClientSecret)
		if s.oauth.TokenURL != "" && !isAddress(s.oauth.TokenURL) {
			r.fail("%q is not an http or https URL", "oauth.token_url")
		}
	}
	if name := spec.OAuthApp; name != "" {
		app, found := variables.FindOAuthApp(name)
		if !found {
			r.fail("%s", runnerconfig.NoOAuthApp(name))
		}
		s.app = &app
	}
	if missing := r.expansion.Missing(); len(missing) > 0 {
		r.fail("the environment has no variable %s", strings.Join(missing, ", "))
	}
	if r.err == nil && !isAddress(s.URL) {
		r.fail("%q is not an http or https URL", "url")
	}
	if r.err != nil {
		return Server{}, r.err
	}
	s.secrets, s.key = r.secrets, s.sessionKey()
	return s, nil
}

// isAddress reports whether a text is an http or https URL without a user.
func isAddress(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && u.User == nil && (u.Scheme == "https" || u.Scheme == "http")
}

// resolver expands the texts of a server and keeps the first error.
type resolver struct {
	name       string
	variables  runnerconfig.Variables
	runContext map[string]any
	expansion  expand.Expansion
	secrets    []string
	err        error
}

func (r *resolver) fail(format string, args ...any) {
	if r.err == nil {
		r.err = &ValueError{fmt.Sprintf("MCP server %q: ", r.name) + fmt.Sprintf(format, args...)}
	}
}

// variableValue returns the value of a variable and remembers sensitive ones.
func (r *resolver) variableValue(name string) (string, bool) {
	v, found := r.variables.Find(name)
	if v.Sensitive {
		r.secrets = append(r.secrets, strings.TrimSpace(v.Value))
	}
	return v.Value, found
}

func (r *resolver) text(key, text string) string {
	expanded, missing, err := bundle.ExpandContext(text, &r.expansion, r.contextValue)
	switch {
	case err != nil:
		r.fail("%q %v", key, err)
	case missing != "":
		r.fail("the context of the run has no text or number %q", missing)
	}
	return expanded
}

// contextValue returns a text, number or bool of the run's context.
func (r *resolver) contextValue(name string) (string, bool) {
	switch v := r.runContext[name].(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool, int, int64:
		return fmt.Sprint(v), true
	}
	return "", false
}

// hidden returns the values that must not leave a request: sensitive variables and tokens, also the recorded ones.
func (s Server) hidden(ctx context.Context, t *oauth.Source) *redact.Secrets {
	hidden := &redact.Secrets{}
	hidden.Add(slices.Concat(s.secrets, t.SecretTexts(), tokensOf(ctx).all())...)
	return hidden
}

// sessionKey identifies the address, the headers and the credentials.
func (s Server) sessionKey() string {
	data, err := json.Marshal([]any{s.Spec.Name, s.URL, s.headers, s.oauth, s.app, s.Spec.ConnectLimit()})
	if err != nil {
		return s.URL // Impossible: all are texts.
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
