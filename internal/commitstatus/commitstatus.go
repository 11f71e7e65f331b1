// SPDX-License-Identifier: Apache-2.0

// Package commitstatus tells Git providers what became of a commit. Each provider's request
// stands in a file of its own.
package commitstatus

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/gitremote"
)

const (
	// patience is how long a provider may take to answer.
	patience = 15 * time.Second
	// maxAnswer is the most bytes of an answer that are read, of which nothing is kept.
	maxAnswer = 64 << 10
	// maxDescription is the most characters of a description: GitHub takes 140.
	maxDescription = 140
)

// Provider is a service that hosts repositories.
type Provider string

// Providers, as Project.spec.git.provider has them.
const (
	GitHub  Provider = "GitHub"
	GitLab  Provider = "GitLab"
	Gitea   Provider = "Gitea"
	Forgejo Provider = "Forgejo"
)

// hosts are those whose provider is known.
var hosts = map[string]Provider{"github.com": GitHub, "gitlab.com": GitLab, "gitea.com": Gitea, "codeberg.org": Forgejo}

// State is what became of a commit.
type State string

// States of a commit.
const (
	Pending State = "Pending"
	Success State = "Success"
	Failure State = "Failure"
	// Error: there is no outcome, for it was cancelled.
	Error State = "Error"
)

// Status is what is told about a commit.
type Status struct {
	Commit string
	State  State
	// Context tells apart those who speak of the same commit.
	Context string
	// Description is for a person.
	Description string
}

// Repository is one at a provider.
type Repository struct {
	Provider Provider
	// api is the address of the provider's API, path the repository's there, as owner/name.
	api, path string
}

// Find is the repository of a git URL. provider is "" where it is to be told by the host; ok is
// false where that is nobody's whom it tells. api is the address of the provider's API, "" where it
// is at the usual place at that host, so that a token goes to no other that nobody has named.
func Find(address string, provider Provider, api string) (r Repository, ok bool, err error) {
	ep, err := transport.NewEndpoint(address)
	if err != nil || ep.Host == "" {
		return r, false, gitremote.Remedy("git.url of the Project names no host")
	}
	r = Repository{Provider: provider, api: strings.TrimRight(api, "/"), path: strings.TrimSuffix(strings.Trim(ep.Path, "/"), ".git")}
	if r.Provider == "" {
		r.Provider = hosts[strings.ToLower(ep.Host)]
	}
	if r.Provider == "" {
		return r, false, nil
	}
	if r.api == "" {
		r.api = usualAPI(ep, r.Provider)
	} else if r.path, err = below(r.api, ep, r.path); err != nil {
		return r, false, err
	}
	parts := strings.Split(r.path, "/")
	for _, part := range parts {
		if part == "" || part == "." || part == ".." {
			return r, false, gitremote.Remedy("git.url of the Project names no repository: its path is %q", r.path)
		}
	}
	if len(parts) < 2 || len(parts) > 2 && r.Provider != GitLab {
		return r, false, gitremote.Remedy("git.url of the Project is not of the form https://host/owner/repository, as those of %s are; "+
			"where the server is below a path of its host, set git.apiURL to the address of its API", r.Provider)
	}
	return r, true, nil
}

// usualAPI is where a provider has its API at the host of a repository: below a path of its own, or
// for github.com at its API's own host.
func usualAPI(ep *transport.Endpoint, provider Provider) string {
	base := url.URL{Scheme: "https", Host: ep.Host, Path: "/api/v1"}
	switch {
	case provider == GitHub && strings.EqualFold(ep.Host, "github.com"):
		return "https://api.github.com"
	case provider == GitHub:
		base.Path = "/api/v3"
	case provider == GitLab:
		base.Path = "/api/v4"
	}
	if usual := map[string]int{"http": 80, "https": 443}[ep.Protocol]; usual != 0 { // the port of SSH is not that of the API
		base.Scheme = ep.Protocol
		if ep.Port != 0 && ep.Port != usual {
			base.Host = fmt.Sprintf("%s:%d", ep.Host, ep.Port)
		}
	}
	return base.String()
}

// below is the path of a repository at its provider: without the path of its host below which the
// provider is, as the address of the API says, and as a git URL of HTTP has it too.
func below(api string, ep *transport.Endpoint, path string) (string, error) {
	u, err := url.Parse(api)
	if err != nil || u.Host == "" {
		return "", gitremote.Remedy("git.apiURL of the Project makes no address of an API")
	}
	server, _, found := strings.Cut(strings.Trim(u.Path, "/"), "/api/v")
	if found && strings.HasPrefix(ep.Protocol, "http") && strings.EqualFold(u.Hostname(), strings.Trim(ep.Host, "[]")) {
		path = strings.TrimPrefix(path, server+"/")
	}
	return path, nil
}

// owned is the repository's path in a URL, for providers that have it as two parts.
func (r Repository) owned() string {
	owner, name, _ := strings.Cut(r.path, "/")
	return url.PathEscape(owner) + "/" + url.PathEscape(name)
}

// call is a request to a provider.
type call struct {
	url, authorization string
	body               any
}

// callOf is the request that tells a provider of a status.
func (r Repository) callOf(s Status, token string) call {
	if runes := []rune(s.Description); len(runes) > maxDescription {
		s.Description = string(runes[:maxDescription])
	}
	switch r.Provider {
	case GitHub:
		return r.gitHub(s, token)
	case GitLab:
		return r.gitLab(s, token)
	default:
		return r.gitea(s, token)
	}
}

// RefusedError says that a provider did not take a status.
type RefusedError struct {
	Provider Provider
	Code     int
}

// Error has the provider's status code and the remedy.
func (e *RefusedError) Error() string {
	remedy := "it is tried again"
	switch {
	case e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden:
		remedy = "give the token in the git Secret the right to write commit statuses, or another token"
	case e.Code == http.StatusNotFound:
		remedy = "correct git.url, git.provider or git.apiURL of the Project, or give the token in the git Secret the right to see the repository and to write commit statuses"
	case e.Code >= 300 && e.Code < 400:
		remedy = "redirects are not followed; set git.url of the Project to the address that the repository has now, or git.apiURL to that of the API"
	case e.Code >= 400 && e.Code < 500 && e.Code != http.StatusTooManyRequests:
		remedy = "see that the commit is in the repository there"
	}
	return fmt.Sprintf("%s answered %d %s: %s", e.Provider, e.Code, http.StatusText(e.Code), remedy)
}

// Report tells a provider of a status by a token; ca holds the certificate authorities of a
// private one, or nothing. With no error the provider has taken it; *RefusedError where it has
// not. Any other error is explained by gitremote.Explain.
func (r Repository) Report(ctx context.Context, guard *egress.Guard, s Status, token, ca string) error {
	trust, err := gitremote.Trust(ca)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	asked := r.callOf(s, token)
	body, err := json.Marshal(asked.body)
	if err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, asked.url, bytes.NewReader(body))
	if err != nil {
		return gitremote.Remedy("git.url or git.apiURL of the Project makes no address of an API")
	}
	req.Header.Set("Authorization", asked.authorization)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "agentplatform")
	client := guard.Client(egress.Git, egress.ClientOptions{MaxResponse: maxAnswer, TLS: trust})
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("telling %s: %w", r.Provider, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, _ := io.ReadAll(resp.Body) // bounded by the client
	if r.Provider == GitLab && gitLabKnows(s.State, resp.StatusCode, string(answer)) {
		return nil
	}
	if resp.StatusCode < 200 || resp.StatusCode >= 300 {
		return &RefusedError{Provider: r.Provider, Code: resp.StatusCode}
	}
	return nil
}

// Shown is the address of the provider's API, without anything secret.
func (r Repository) Shown() string { return r.api }
