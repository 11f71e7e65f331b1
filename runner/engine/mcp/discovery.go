// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/agentplatform/agentplatform/runner/oauth"
)

// findEndpoint finds the token endpoint by the metadata of the server (RFC 9728) and of its authorization server (RFC 8414).
func (f *finder) findEndpoint(ctx context.Context, challenge []string) (oauth.Endpoint, error) {
	found := oauth.Endpoint{Scopes: f.server.oauth.Scopes, Resource: f.server.resource(), Style: oauth2.AuthStyleInHeader}
	asked, err := oauthex.ParseWWWAuthenticate(challenge)
	if err != nil {
		asked = nil
	}
	issuer, scopes := f.findIssuer(ctx, asked)
	if !f.server.canDiscover(issuer) {
		return oauth.Endpoint{}, errInsecureIssuer
	}
	if len(found.Scopes) == 0 {
		found.Scopes = scopes
	}
	problem := error(&oauth.Error{Problem: `the server names no token endpoint; write it as "token_url"`})
	for _, address := range wellKnown(issuer, "oauth-authorization-server", "openid-configuration") {
		var meta struct {
			Issuer  string   `json:"issuer"`
			URL     string   `json:"token_endpoint"`
			Methods []string `json:"token_endpoint_auth_methods_supported"`
		}
		if f.getMetadata(ctx, address, &meta) != nil || meta.URL == "" {
			continue
		}
		switch {
		case meta.Issuer != issuer: // RFC 8414, section 3.3: identical, character for character
			problem = errOtherIssuer
			continue
		case !f.server.canDiscover(meta.URL):
			problem = errInsecureIssuer
			continue
		}
		found.URL = meta.URL
		if len(meta.Methods) > 0 && !slices.Contains(meta.Methods, "client_secret_basic") {
			found.Style = oauth2.AuthStyleInParams
		}
		return found, nil
	}
	return oauth.Endpoint{}, problem
}

// Errors of discovery. Their remedy is an address that the repository names.
var (
	errInsecureIssuer = &oauth.Error{Problem: `the server names an authorization server or token endpoint without https; write the token endpoint as "token_url"`}
	errOtherIssuer    = &oauth.Error{Problem: `the metadata of the authorization server names another issuer; write the token endpoint as "token_url"`}
)

// canDiscover reports whether an address that a server or its metadata names may get the secret: an https URL, or a URL at
// the server itself, which the repository has named.
func (s Server) canDiscover(address string) bool {
	u, err := url.Parse(address)
	return err == nil && isAddress(address) && (u.Scheme == "https" || hasOrigin(address, s.origin()))
}

// origin returns the scheme and the host of a server.
func (s Server) origin() *url.URL {
	u, err := url.Parse(s.URL)
	if err != nil {
		return &url.URL{} // Impossible: Resolve has checked it.
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}
}

// resource returns the resource identifier of a server (RFC 9728): its address without a query, which can have a secret.
func (s Server) resource() string {
	address, _, _ := strings.Cut(s.URL, "#")
	address, _, _ = strings.Cut(address, "?")
	return address
}

// isResource reports whether metadata is about a server: it names the server's address or the server as a whole, identically
// as RFC 9728, section 3.3, demands.
func (s Server) isResource(resource string) bool {
	origin := s.origin().String()
	return resource == s.resource() || resource == origin || resource == origin+"/"
}

// findIssuer returns the authorization server of the server and the scopes that the server asks for. Without metadata the
// server is its own authorization server.
func (f *finder) findIssuer(ctx context.Context, asked []oauthex.Challenge) (issuer string, scopes []string) {
	var addresses []string
	for _, c := range asked {
		if address := c.Params["resource_metadata"]; f.server.canDiscover(address) {
			addresses = append(addresses, address)
		}
		if scope := c.Params["scope"]; scope != "" {
			scopes = strings.Fields(scope)
		}
	}
	for _, address := range append(addresses, wellKnown(f.server.URL, "oauth-protected-resource")...) {
		var meta struct {
			Resource string   `json:"resource"`
			Servers  []string `json:"authorization_servers"`
			Scopes   []string `json:"scopes_supported"`
		}
		if f.getMetadata(ctx, address, &meta) != nil || !f.server.isResource(meta.Resource) || len(meta.Servers) == 0 {
			continue
		}
		if len(scopes) == 0 {
			scopes = meta.Scopes
		}
		return meta.Servers[0], scopes
	}
	return f.server.origin().String(), scopes
}

// hasOrigin reports whether an address has the scheme and the host of an origin.
func hasOrigin(address string, origin *url.URL) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == origin.Scheme && u.Host == origin.Host
}

// wellKnown returns the addresses of metadata of an address, with its path and without.
func wellKnown(address string, names ...string) (out []string) {
	u, err := url.Parse(address)
	if err != nil || !isAddress(address) {
		return nil
	}
	origin, path := u.Scheme+"://"+u.Host, strings.TrimSuffix(u.EscapedPath(), "/")
	for _, name := range names {
		if path != "" {
			out = append(out, origin+"/.well-known/"+name+path, origin+path+"/.well-known/"+name)
		}
		out = append(out, origin+"/.well-known/"+name)
	}
	return out
}

var errNoMetadata = errors.New("no metadata")

func (f *finder) getMetadata(ctx context.Context, address string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("reading metadata: %w", err)
	}
	code, err := f.getJSON(req, into)
	if err == nil && code != http.StatusOK {
		err = errNoMetadata
	}
	return err
}
