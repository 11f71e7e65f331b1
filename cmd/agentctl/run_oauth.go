// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// readOAuthApps returns the OAuth apps that environment variables configure, by the names in the repository. missing has each
// place whose app they do not configure.
func readOAuthApps(project *bundle.Project, getenv func(string) string) (apps []runnerconfig.OAuthApp, missing bundle.Problems, err error) {
	known := map[string]bool{}
	for _, use := range project.OAuthAppUses() {
		configured, seen := known[use.App]
		name := variablePrefix(use.App)
		if !seen {
			app := runnerconfig.OAuthApp{
				Name: use.App, TokenURL: getenv(name + "_TOKEN_URL"), ClientID: getenv(name + "_CLIENT_ID"),
				ClientSecret: getenv(name + "_CLIENT_SECRET"), Scopes: strings.Fields(getenv(name + "_SCOPES")), Audience: getenv(name + "_AUDIENCE"),
			}
			if configured = app.TokenURL != "" || app.ClientID != "" || app.ClientSecret != ""; configured {
				if err := checkOAuthApp(name, app); err != nil {
					return nil, nil, err
				}
				apps = append(apps, app)
			}
			known[use.App] = configured
		}
		if !configured {
			missing = append(missing, bundle.Problem{Position: use.Position, Message: fmt.Sprintf(
				"requests with the OAuth app %q will fail; set %s_TOKEN_URL, %s_CLIENT_ID and %s_CLIENT_SECRET", use.App, name, name, name)})
		}
	}
	return apps, missing, nil
}

// checkOAuthApp returns an error that names the wrong environment variable, never its value.
func checkOAuthApp(name string, app runnerconfig.OAuthApp) error {
	for suffix, value := range map[string]string{"_TOKEN_URL": app.TokenURL, "_CLIENT_ID": app.ClientID, "_CLIENT_SECRET": app.ClientSecret} {
		if value == "" {
			return fmt.Errorf("%s%s: is missing; an OAuth app needs %s_TOKEN_URL, %s_CLIENT_ID and %s_CLIENT_SECRET", name, suffix, name, name, name)
		}
	}
	to, err := url.Parse(app.TokenURL)
	switch {
	case err != nil || to.Host == "" || to.User != nil || to.Scheme != "https" && to.Scheme != "http":
		return fmt.Errorf("%s_TOKEN_URL: must be a URL without credentials, such as https://login.example.com/token", name)
	case to.Scheme == "http" && !isLoopback(to.Hostname()):
		return fmt.Errorf("%s_TOKEN_URL: the client secret would cross the network unencrypted; use https", name)
	}
	return nil
}
