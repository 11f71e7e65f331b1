// SPDX-License-Identifier: Apache-2.0

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
	// requestTimeout limits the response time of a provider.
	requestTimeout = 15 * time.Second
	// maxResponse limits the bytes that are read of a response and then discarded.
	maxResponse = 64 << 10
	// maxDescription limits a description, in characters, because GitHub accepts 140.
	maxDescription = 140
)

// Provider is a service that hosts repositories.
type Provider string

// Providers, with the values of Project.spec.git.provider.
const (
	GitHub  Provider = "GitHub"
	GitLab  Provider = "GitLab"
	Gitea   Provider = "Gitea"
	Forgejo Provider = "Forgejo"
)

// hosts are the hosts with a known provider.
var hosts = map[string]Provider{"github.com": GitHub, "gitlab.com": GitLab, "gitea.com": Gitea, "codeberg.org": Forgejo}

// State is the state of a commit.
type State string

// States of a commit.
const (
	Pending State = "Pending"
	Success State = "Success"
	Failure State = "Failure"
	// Error: there is no outcome, because the deployment was cancelled.
	Error State = "Error"
)

// Status is the status of a commit.
type Status struct {
	Commit string
	State  State
	// Context distinguishes several statuses of a commit.
	Context string
	// Description is for people.
	Description string
}

// Repository is a repository at a provider.
type Repository struct {
	Provider Provider
	// api is the address of the provider's API, path the repository's path there, as owner/name.
	api, path string
}

// Find returns the repository for a Git URL. If provider is "", the host selects it; ok is false
// for an unknown host. api is the address of the provider's API, or "" for the usual place on the
// same host, so that a token goes only to named hosts.
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
		r.api = defaultAPI(ep, r.Provider)
	} else if r.path, err = pathBelowAPI(r.api, ep, r.path); err != nil {
		return r, false, err
	}
	parts := strings.Split(r.path, "/")
	for _, part := range parts {
		if part == "" || part == "." || part == ".." {
			return r, false, gitremote.Remedy("git.url of the Project names no repository: its path is %q", r.path)
		}
	}
	if len(parts) < 2 || len(parts) > 2 && r.Provider != GitLab {
		return r, false, gitremote.Remedy("git.url of the Project must have the form https://host/owner/repository for %s; "+
			"if the server is below a path of its host, set git.apiURL to the address of its API", r.Provider)
	}
	return r, true, nil
}

// defaultAPI returns the usual address of a provider's API for a repository: a path on its host, or
// github.com's API host.
func defaultAPI(ep *transport.Endpoint, provider Provider) string {
	base := url.URL{Scheme: "https", Host: ep.Host, Path: "/api/v1"}
	switch {
	case provider == GitHub && strings.EqualFold(ep.Host, "github.com"):
		return "https://api.github.com"
	case provider == GitHub:
		base.Path = "/api/v3"
	case provider == GitLab:
		base.Path = "/api/v4"
	}
	if usual := map[string]int{"http": 80, "https": 443}[ep.Protocol]; usual != 0 { // the port of SSH differs from the port of the API
		base.Scheme = ep.Protocol
		if ep.Port != 0 && ep.Port != usual {
			base.Host = fmt.Sprintf("%s:%d", ep.Host, ep.Port)
		}
	}
	return base.String()
}

// pathBelowAPI returns the path of a repository at its provider, without the provider's path on its host,
// which the API's address and a Git URL with HTTP contain.
func pathBelowAPI(api string, ep *transport.Endpoint, path string) (string, error) {
	u, err := url.Parse(api)
	if err != nil || u.Host == "" {
		return "", gitremote.Remedy("git.apiURL of the Project is not the address of an API")
	}
	server, _, found := strings.Cut(strings.Trim(u.Path, "/"), "/api/v")
	if found && strings.HasPrefix(ep.Protocol, "http") && strings.EqualFold(u.Hostname(), strings.Trim(ep.Host, "[]")) {
		path = strings.TrimPrefix(path, server+"/")
	}
	return path, nil
}

// ownerAndName returns the repository's path in a URL, for providers that have two parts.
func (r Repository) ownerAndName() string {
	owner, name, _ := strings.Cut(r.path, "/")
	return url.PathEscape(owner) + "/" + url.PathEscape(name)
}

// call is a request to a provider.
type call struct {
	url, authorization string
	body               any
}

// statusCall returns the request that sends a status.
func (r Repository) statusCall(s Status, token string) call {
	if runes := []rune(s.Description); len(runes) > maxDescription {
		s.Description = string(runes[:maxDescription])
	}
	switch r.Provider {
	case GitHub:
		return r.gitHubCall(s, token)
	case GitLab:
		return r.gitLabCall(s, token)
	default:
		return r.giteaCall(s, token)
	}
}

// RefusedError means that a provider rejected a status.
type RefusedError struct {
	Provider Provider
	Code     int
}

// Error returns the provider's status code and the remedy.
func (e *RefusedError) Error() string {
	remedy := "it is tried again"
	switch {
	case e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden:
		remedy = "allow the token in the git Secret to write commit statuses, or use another token"
	case e.Code == http.StatusNotFound:
		remedy = "correct git.url, git.provider or git.apiURL of the Project, or allow the token in the git Secret to read the repository and to write commit statuses"
	case e.Code >= 300 && e.Code < 400:
		remedy = "redirects are not followed; set git.url of the Project to the new address of the repository, or git.apiURL to the new address of the API"
	case e.Code >= 400 && e.Code < 500 && e.Code != http.StatusTooManyRequests:
		remedy = "check that the commit is in the repository there"
	}
	return fmt.Sprintf("%s answered %d %s: %s", e.Provider, e.Code, http.StatusText(e.Code), remedy)
}

// Report sends a status with a token. ca contains certificate authorities, or "". It returns nil if
// the provider has accepted the status, and a *RefusedError if it rejected it. gitremote.Explain
// explains any other error.
func (r Repository) Report(ctx context.Context, guard *egress.Guard, s Status, token, ca string) error {
	trust, err := gitremote.Trust(ca)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	asked := r.statusCall(s, token)
	body, err := json.Marshal(asked.body)
	if err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, asked.url, bytes.NewReader(body))
	if err != nil {
		return gitremote.Remedy("git.url or git.apiURL of the Project is not the address of an API")
	}
	req.Header.Set("Authorization", asked.authorization)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "agentplatform")
	client := guard.Client(egress.Git, egress.ClientOptions{MaxResponse: maxResponse, TLS: trust})
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("telling %s: %w", r.Provider, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, _ := io.ReadAll(resp.Body) // limited by the client
	if r.Provider == GitLab && isKnownToGitLab(s.State, resp.StatusCode, string(answer)) {
		return nil
	}
	if resp.StatusCode < 200 || resp.StatusCode >= 300 {
		return &RefusedError{Provider: r.Provider, Code: resp.StatusCode}
	}
	return nil
}

// APIAddress returns the address of the provider's API without secrets.
func (r Repository) APIAddress() string { return r.api }

// giteaStatus is the body of Gitea's and Forgejo's "create a commit status".
type giteaStatus struct {
	State       string `json:"state"`
	Context     string `json:"context"`
	Description string `json:"description"`
}

var giteaStates = map[State]string{Pending: "pending", Success: "success", Failure: "failure", Error: "error"}

// giteaCall is the same for Forgejo, which began as Gitea.
func (r Repository) giteaCall(s Status, token string) call {
	return call{
		url:           r.api + "/repos/" + r.ownerAndName() + "/statuses/" + s.Commit,
		authorization: "token " + token,
		body:          giteaStatus{State: giteaStates[s.State], Context: s.Context, Description: s.Description},
	}
}

// gitHubStatus is the body of GitHub's "create a commit status".
type gitHubStatus struct {
	State       string `json:"state"`
	Context     string `json:"context"`
	Description string `json:"description"`
}

var gitHubStates = map[State]string{Pending: "pending", Success: "success", Failure: "failure", Error: "error"}

// gitHubCall is the same for github.com and a GitHub Enterprise Server.
func (r Repository) gitHubCall(s Status, token string) call {
	return call{
		url:           r.api + "/repos/" + r.ownerAndName() + "/statuses/" + s.Commit,
		authorization: "Bearer " + token,
		body:          gitHubStatus{State: gitHubStates[s.State], Context: s.Context, Description: s.Description},
	}
}

// gitLabStatus is the body of GitLab's "set commit pipeline status".
type gitLabStatus struct {
	State       string `json:"state"`
	Name        string `json:"name"`
	Description string `json:"description"`
}

var gitLabStates = map[State]string{Pending: "pending", Success: "success", Failure: "failed", Error: "canceled"}

// gitLabCall identifies the repository by its whole path, with groups, as one part of the URL.
func (r Repository) gitLabCall(s Status, token string) call {
	return call{
		url:           r.api + "/projects/" + url.PathEscape(r.path) + "/statuses/" + s.Commit,
		authorization: "Bearer " + token,
		body:          gitLabStatus{State: gitLabStates[s.State], Name: s.Context, Description: s.Description},
	}
}

// isKnownToGitLab reports whether GitLab rejected a status because the commit already has it. This
// happens for a pending status if the commit is deployed again.
func isKnownToGitLab(state State, code int, answer string) bool {
	return code == http.StatusBadRequest && strings.Contains(answer, "Cannot transition status via") &&
		strings.Contains(answer, "from :"+gitLabStates[state])
}
