// SPDX-License-Identifier: Apache-2.0

package runnerconfig

import (
	"cmp"
	"fmt"
	"slices"
)

// OAuthApp is a client registration at an authorization server: access tokens come from it by client credentials.
type OAuthApp struct {
	Name     string `json:"name"`
	TokenURL string `json:"token_url"`
	ClientID string `json:"client_id"`
	// ClientSecret is sent only to TokenURL.
	ClientSecret string   `json:"client_secret"`
	Scopes       []string `json:"scopes,omitempty"`
	// Audience is a parameter of the token request, or "".
	Audience string `json:"audience,omitempty"`
}

// WithOAuthApps returns the variables with OAuth apps. The names of the apps must be unique.
func (v Variables) WithOAuthApps(apps []OAuthApp) Variables {
	v.OAuthApps = slices.SortedFunc(slices.Values(apps), func(a, b OAuthApp) int { return cmp.Compare(a.Name, b.Name) })
	return v
}

// FindOAuthApp returns the OAuth app with that name, or false.
func (v Variables) FindOAuthApp(name string) (OAuthApp, bool) {
	at, found := slices.BinarySearchFunc(v.OAuthApps, name, func(one OAuthApp, name string) int { return cmp.Compare(one.Name, name) })
	if !found {
		return OAuthApp{}, false
	}
	return v.OAuthApps[at], true
}

// NoOAuthApp returns the problem of a missing OAuth app, with the remedy.
func NoOAuthApp(name string) string {
	return fmt.Sprintf("the environment has no OAuth app %q; add it to spec.oauthApps of the Environment", name)
}

// checkOAuthApps checks that the apps are complete and sorted. Its error contains no values.
func checkOAuthApps(apps []OAuthApp) error {
	for i, app := range apps {
		switch {
		case app.Name == "" || app.TokenURL == "" || app.ClientID == "":
			return fmt.Errorf("reading %s: an OAuth app lacks its name, token_url or client_id", VariablesFile)
		case i > 0 && apps[i-1].Name >= app.Name:
			return fmt.Errorf("reading %s: the OAuth apps are not sorted by name or not unique", VariablesFile)
		}
	}
	return nil
}
