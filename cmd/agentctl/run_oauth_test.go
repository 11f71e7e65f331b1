// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/runner/oauth/oauthtest"
)

// appFiles are a repository whose HTTP tool and MCP server name an OAuth app.
var appFiles = []string{
	"agents/desk.yaml", "name: desk\nmodel: scripted/desk\ntools: [orders.look_up]\nmcp_servers:\n  - {name: crm, url: '${CRM_URL}/mcp', oauth_app: my-crm}\n",
	"models/desk.yaml", "steps:\n- {turn: 1, tool_calls: [{name: orders_look_up}, {name: get_customer, arguments: {id: 7}}]}\n- {match: '(?s)(.*)', text: '${1}'}\n",
	"tools/orders.yaml", "base_url: ${SHOP_URL}\noauth_app: my-crm\ntools: {look_up: {description: L, request: GET /orders}}\n",
}

// A run gets the token of an app that environment variables configure. No output and no recorded case has it.
func TestRun_AuthorizesWithOAuthApp(t *testing.T) {
	authority := oauthtest.NewServer(t)
	protect := func(next http.HandlerFunc) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !authority.Accepts(r) {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next(w, r)
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	shop := protect(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "paid, "+r.Header.Get("Authorization"))
	})
	t.Setenv("MY_CRM_TOKEN_URL", authority.URL+"/token")
	t.Setenv("MY_CRM_CLIENT_ID", oauthtest.ClientID)
	t.Setenv("MY_CRM_CLIENT_SECRET", oauthtest.Secret)
	t.Setenv("MY_CRM_SCOPES", "crm.read crm.write")
	t.Setenv("MY_CRM_AUDIENCE", "crm")
	dir := repository(t, appFiles...)
	file := filepath.Join(dir, "tests", "recorded.yaml")
	out, messages, err := run(t, "run", "desk", "--folder", dir, "--env", "SHOP_URL="+shop, "--env", "CRM_URL="+protect(serveCRM), "--record", file)
	require.NoError(t, err, messages)
	require.Contains(t, out, "paid, Bearer [REDACTED]")
	require.NotContains(t, messages, "warning")
	require.Equal(t, 1, authority.Issued(), "the tool and the server share a token")
	require.Equal(t, "crm.read crm.write", authority.Requests()[0].Get("scope"))
	require.Equal(t, "crm", authority.Requests()[0].Get("audience"))
	recorded, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NotContains(t, out+messages+string(recorded), oauthtest.Canary)
}

func TestReadOAuthApps_ReportsProblems(t *testing.T) {
	t.Parallel()
	project, err := bundle.Parse(bundle.Files{
		"agents/a.yaml": []byte("name: a\nmodel: openai/gpt-5\n"),
		"tools/t.yaml":  []byte("base_url: https://a.example\noauth_app: my-crm\ntools: {x: {description: X, request: GET /x}}\n"),
	})
	require.NoError(t, err)
	read := func(values map[string]string) (bundle.Problems, error) {
		_, missing, err := readOAuthApps(project, func(name string) string { return values[name] })
		return missing, err
	}
	missing, err := read(nil)
	require.NoError(t, err)
	require.Len(t, missing, 1)
	require.Equal(t, `tools/t.yaml:2:12: requests with the OAuth app "my-crm" will fail; set MY_CRM_TOKEN_URL, MY_CRM_CLIENT_ID and MY_CRM_CLIENT_SECRET`, missing[0].String())
	for _, row := range []struct{ name, url, secret, want string }{
		{"secret", "https://login.example.com", "", "MY_CRM_CLIENT_SECRET: is missing; an OAuth app needs MY_CRM_TOKEN_URL, MY_CRM_CLIENT_ID and MY_CRM_CLIENT_SECRET"},
		{"address", "login.example.com", canary, "MY_CRM_TOKEN_URL: must be a URL without credentials, such as https://login.example.com/token"},
		{"credentials", "https://me:" + canary + "@login.example.com", canary, "MY_CRM_TOKEN_URL: must be a URL without credentials, such as https://login.example.com/token"},
		{"http", "http://login.example.com", canary, "MY_CRM_TOKEN_URL: the client secret would cross the network unencrypted; use https"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := read(map[string]string{"MY_CRM_TOKEN_URL": row.url, "MY_CRM_CLIENT_ID": "me", "MY_CRM_CLIENT_SECRET": row.secret})
			require.EqualError(t, err, row.want)
		})
	}
}
