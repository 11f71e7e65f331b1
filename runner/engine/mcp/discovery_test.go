// SPDX-License-Identifier: Apache-2.0

package mcp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// Reasons why no token endpoint is discovered.
const (
	noEndpoint  = `the server names no token endpoint; write it as "token_url"`
	insecure    = `the server names an authorization server or token endpoint without https; write the token endpoint as "token_url"`
	otherIssuer = `the metadata of the authorization server names another issuer; write the token endpoint as "token_url"`
)

// Without token_url the metadata of the server names the authorization server, and the scopes.
func TestOAuth_DiscoversTokenEndpoint(t *testing.T) {
	t.Parallel()
	const resource = `{"resource":"SERVER/mcp","authorization_servers":["SELF/tenant"],"scopes_supported":["all"]}`
	const issuer = `{"issuer":"SELF/tenant","token_endpoint":"SELF/token"}`
	for _, row := range []struct {
		name, challenge string
		metadata        map[string]string
		// want is a part of the form that requests the token, or the error if the secret is not sent.
		want string
		fail string
	}{
		{"challenge", `Bearer resource_metadata="SERVER/meta", scope="a b"`, map[string]string{
			"/meta": resource, "/.well-known/oauth-authorization-server/tenant": issuer}, "scope=a+b", ""},
		{"well-known", "Bearer", map[string]string{
			"/.well-known/oauth-protected-resource/mcp": resource, "/tenant/.well-known/openid-configuration": issuer}, "scope=all", ""},
		{"secret in the body", "Bearer", map[string]string{
			"/.well-known/oauth-protected-resource":          resource,
			"/.well-known/oauth-authorization-server/tenant": `{"issuer":"SELF/tenant","token_endpoint":"SELF/token","token_endpoint_auth_methods_supported":["client_secret_post"]}`,
		}, "client_secret=very-secret", ""},
		{"server itself", "Bearer", map[string]string{
			"/.well-known/oauth-protected-resource":   `{"resource":"SERVER","authorization_servers":["SERVER"]}`,
			"/.well-known/oauth-authorization-server": `{"issuer":"SERVER","token_endpoint":"SELF/token"}`}, "resource=http", ""},
		{"other issuer", "Bearer", map[string]string{
			"/.well-known/oauth-protected-resource":          resource,
			"/.well-known/oauth-authorization-server/tenant": `{"issuer":"https://other.example","token_endpoint":"SELF/token"}`}, "", otherIssuer},
		{"issuer with a slash", "Bearer", map[string]string{
			"/.well-known/oauth-protected-resource":          resource,
			"/.well-known/oauth-authorization-server/tenant": `{"issuer":"SELF/tenant/","token_endpoint":"SELF/token"}`}, "", otherIssuer},
		{"issuer without https", "Bearer", map[string]string{
			"/.well-known/oauth-protected-resource": `{"resource":"SERVER/mcp","authorization_servers":["http://login.example"]}`}, "", insecure},
		{"endpoint without https", "Bearer", map[string]string{
			"/.well-known/oauth-protected-resource":          resource,
			"/.well-known/oauth-authorization-server/tenant": `{"issuer":"SELF/tenant","token_endpoint":"http://login.example/token"}`}, "", insecure},
		{"metadata without https", `Bearer resource_metadata="http://login.example/meta"`, nil, "", noEndpoint},
		{"other resource", "Bearer", map[string]string{
			"/.well-known/oauth-protected-resource":          `{"resource":"SERVER/other","authorization_servers":["SELF/tenant"]}`,
			"/.well-known/oauth-authorization-server/tenant": issuer}, "", noEndpoint},
		{"nothing", "", nil, "", noEndpoint},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f, a := newFake(t), newAuthority(t)
			a.metadata = row.metadata
			protect(f, a, row.challenge)
			c, _ := newClient(t)
			_, err := c.Call(t.Context(), oauthServer(t, f, bundle.MCPOAuth{}), "get", nil, false)
			if row.fail != "" {
				require.EqualError(t, err, `the MCP server "crm" cannot be used: getting an access token: `+row.fail)
				require.Zero(t, a.issued, "the secret is sent nowhere")
				return
			}
			require.NoError(t, err)
			require.Contains(t, a.forms[0], row.want)
			require.Contains(t, a.forms[0], "resource=http")
			require.Equal(t, 1, f.ledger())
		})
	}
}
