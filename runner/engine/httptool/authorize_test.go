// SPDX-License-Identifier: Apache-2.0

package httptool

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/oauth"
	"github.com/agentplatform/agentplatform/runner/oauth/oauthtest"
)

// newAuthorizedClient returns a client for a service, whose environment has the OAuth app "crm" of a server.
func newAuthorizedClient(t *testing.T, url string, s *oauthtest.Server) *Client {
	t.Helper()
	client := egress.New(loopback).Client(egress.Tool, egress.ClientOptions{MaxResponse: 8 << 20})
	t.Cleanup(client.CloseIdleConnections)
	variables := runnerconfig.Sorted([]runnerconfig.Variable{{Name: "URL", Value: url}}).WithOAuthApps([]runnerconfig.OAuthApp{s.App("crm")})
	return New(Config{
		Client: client, Apps: oauth.NewApps(oauth.AppsConfig{HTTP: client, Timeout: time.Minute}),
		Variables: func() (runnerconfig.Variables, error) { return variables, nil },
	})
}

// appTool returns a tool whose file names an OAuth app.
func appTool(t *testing.T, app, request string) *bundle.HTTPTool {
	t.Helper()
	return toolIn(t, "base_url: ${URL}\noauth_app: "+app+"\ntools: {x: {description: X, request: "+request+"}}\n", "t.x")
}

// protect makes a service accept only the last token of a server.
func protect(s *oauthtest.Server, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.Accepts(r) {
			http.Error(w, "not "+r.Header.Get("Authorization"), status)
			return
		}
		respond(http.StatusOK, "application/json", `{"echo":"`+r.Header.Get("Authorization")+`"}`)(w, r)
	}
}

// A token that the service rejects with 401 is replaced once a call, also one of a write.
func TestRunTool_ReplacesRejectedToken(t *testing.T) {
	t.Parallel()
	for _, request := range []string{"GET /a", "POST /a"} {
		t.Run(request, func(t *testing.T) {
			t.Parallel()
			s := oauthtest.NewServer(t)
			service := newService(t, protect(s, http.StatusUnauthorized))
			client, tool := newAuthorizedClient(t, service.URL, s), appTool(t, "crm", request)
			call := func() {
				got, err := client.runTool(t.Context(), tool, nil, "run/1")
				require.NoError(t, err)
				require.Equal(t, map[string]any{"echo": "Bearer [REDACTED]"}, got["body"])
			}
			call()
			call()
			require.Equal(t, 1, s.Issued(), "the token is used again")
			s.Revoke()
			call()
			require.Equal(t, 3, s.Issued())
			require.Len(t, service.requests(), 4)
		})
	}
}

func TestRunTool_ReportsRejectedCredentials(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		status, issued int
	}{{http.StatusUnauthorized, 2}, {http.StatusForbidden, 1}} {
		t.Run(fmt.Sprint(row.status), func(t *testing.T) {
			t.Parallel()
			s := oauthtest.NewServer(t)
			service := newService(t, func(w http.ResponseWriter, r *http.Request) { http.Error(w, r.Header.Get("Authorization"), row.status) })
			_, err := newAuthorizedClient(t, service.URL, s).runTool(t.Context(), appTool(t, "crm", "POST /a"), nil, "run/1")
			require.ErrorContains(t, err, fmt.Sprint(row.status))
			require.NotContains(t, err.Error(), oauthtest.Canary)
			require.Equal(t, row.issued, s.Issued())
			require.Len(t, service.requests(), row.issued)
		})
	}
}

// Without a token nothing is sent to the service. A failure that can pass is one for the retries of a tool agent.
func TestRunTool_ReportsMissingToken(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, app   string
		answer      int
		want        string
		isTemporary bool
	}{
		{"no such app", "erp", 0, `the environment has no OAuth app "erp"; add it to spec.oauthApps of the Environment`, false},
		{"refused", "crm", http.StatusBadRequest, `getting an access token of the OAuth app "crm": the token endpoint answered 400`, false},
		{"unavailable", "crm", http.StatusServiceUnavailable, `getting an access token of the OAuth app "crm": the token endpoint answered 503`, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, service := oauthtest.NewServer(t), newService(t, respond(http.StatusOK, "application/json", `{}`))
			s.Answer = func(w http.ResponseWriter, _ *http.Request) bool {
				http.Error(w, oauthtest.Secret, row.answer)
				return true
			}
			_, err := newAuthorizedClient(t, service.URL, s).runTool(t.Context(), appTool(t, row.app, "POST /a"), nil, "run/1")
			require.EqualError(t, err, row.want)
			var failed *engine.ToolError
			if row.isTemporary {
				require.ErrorAs(t, err, &failed)
			} else {
				require.NotErrorAs(t, err, &failed)
			}
			require.Empty(t, service.requests())
		})
	}
}

// A token endpoint that hangs is named in the error. The service has got no request, or has rejected the token of the request.
func TestRunTool_NamesSlowTokenEndpoint(t *testing.T) {
	t.Parallel()
	for name, rejects := range map[string]bool{"first token": false, "replaced token": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := oauthtest.NewServer(t)
			service := newService(t, protect(s, http.StatusUnauthorized))
			client, tool := newAuthorizedClient(t, service.URL, s), appTool(t, "crm", "POST /a")
			if rejects {
				_, err := client.runTool(t.Context(), tool, nil, "run/1")
				require.NoError(t, err)
				s.Revoke()
			}
			release := make(chan struct{})
			defer close(release)
			s.Answer = func(http.ResponseWriter, *http.Request) bool { <-release; return true }
			slow := *tool
			slow.Timeout = 50 * time.Millisecond
			_, err := client.runTool(t.Context(), &slow, nil, "run/2")
			require.EqualError(t, err, `getting an access token of the OAuth app "crm": the token endpoint did not answer in time`)
			require.ErrorAs(t, err, new(*engine.ToolError), "it can pass")
		})
	}
}

// Another origin gets no token, and its 401 replaces none.
func TestRunTool_KeepsTokenFromOtherOrigin(t *testing.T) {
	t.Parallel()
	s := oauthtest.NewServer(t)
	other := newService(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	service := newService(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
	_, err := newAuthorizedClient(t, service.URL, s).runTool(t.Context(), appTool(t, "crm", "GET /a"), nil, "run/1")
	require.ErrorContains(t, err, "401")
	require.Equal(t, 1, s.Issued())
	require.Len(t, other.requests(), 1)
	require.Empty(t, other.requests()[0].header.Get("Authorization"))
}

func TestRunTool_ConcurrentCallsShareToken(t *testing.T) {
	t.Parallel()
	s := oauthtest.NewServer(t)
	service := newService(t, protect(s, http.StatusUnauthorized))
	client, tool := newAuthorizedClient(t, service.URL, s), appTool(t, "crm", "GET /a")
	var calls sync.WaitGroup
	errs := make([]error, 30)
	for i := range errs {
		calls.Go(func() { _, errs[i] = client.runTool(t.Context(), tool, nil, "run/1") })
	}
	calls.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, 1, s.Issued())
}

// Mocks answer without a token.
func TestRunTool_MockedNeedsNoApp(t *testing.T) {
	t.Parallel()
	service := newService(t, respond(http.StatusOK, "application/json", `{}`))
	client := newClient(t, service.URL)
	client.cfg.Mocked = true
	_, err := client.runTool(t.Context(), appTool(t, "crm", "GET /a"), nil, "run/1")
	require.NoError(t, err)
	require.Empty(t, service.requests()[0].header.Get("Authorization"))
}

// A run whose token expires in between gets another one. Neither its journal, its output nor the requests of its model have a
// token or the client secret, although the service repeats them.
func TestFeature_RunShowsNoTokens(t *testing.T) {
	t.Parallel()
	s := oauthtest.NewServer(t)
	service := newService(t, func(w http.ResponseWriter, r *http.Request) {
		protect(s, http.StatusUnauthorized)(w, r)
		s.Revoke()
	})
	p, err := bundle.Parse(bundle.Files{
		"agents/clerk.yaml": []byte("name: clerk\nmodel: scripted/clerk\ntools: [t.note, 'api:shop.getOrder']\napis: {shop: {base_url: '${URL}', auth: {oauth_app: crm}}}\n"),
		"models/clerk.yaml": []byte("steps:\n- {turn: 1, tool_calls: [{name: t_note}]}\n- {turn: 2, tool_calls: [{name: shop_getOrder}]}\n- {match: '(?s)(.*)', text: '${1}'}\n"),
		"tools/t.yaml":      []byte("base_url: ${URL}\noauth_app: crm\ntools: {note: {description: N, request: POST /notes}}\n"),
		"apis/shop.json":    []byte(`{"openapi":"3.1.0","paths":{"/orders":{"get":{"operationId":"getOrder"}}}}`),
	})
	require.NoError(t, err)
	e := engine.New(engine.Config{Models: &model.Registry{}, Features: []engine.Feature{newAuthorizedClient(t, service.URL, s).Feature()}})
	require.Empty(t, e.Check(p))
	var j journal
	out := e.Execute(t.Context(), engine.Input{RunID: "run-1", AgentName: "clerk", Project: p, Message: "hi", Journal: &j})
	require.Equal(t, engine.Completed, out.Status, out.Error)
	require.Contains(t, out.Output, "Bearer [REDACTED]")
	require.Len(t, service.requests(), 3, "the second call is sent again with a new token")
	text := out.Output + fmt.Sprint(out.Error)
	for _, entry := range append(j.entries, out.Trailing...) {
		text += string(entry.Data)
	}
	require.Contains(t, text, "shop_getOrder")
	require.NotContains(t, text, oauthtest.Canary)
}
