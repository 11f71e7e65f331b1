// SPDX-License-Identifier: Apache-2.0

package commitstatus

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/gitremote"
)

const (
	token  = "t0ken-of-the-tenant"
	commit = "2fd4e1c67a2d28fced849ee1bb76e7391b93eb12"
)

func guard(t *testing.T, allow string) *egress.Guard {
	t.Helper()
	rules, err := egress.Flags{Allow: allow}.Rules()
	require.NoError(t, err)
	return egress.New(rules)
}

// server is a provider with its own certificate, which it returns as ca.crt.
func server(t *testing.T, answer http.HandlerFunc) (url, ca string) {
	t.Helper()
	s := httptest.NewTLSServer(answer)
	t.Cleanup(s.Close)
	return s.URL, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

func TestReport_SendsStatusToEachProvider(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		provider           Provider
		path               string
		state              State
		uri, authorization string
		body               string
	}{
		{GitHub, "/team/agents.git", Pending, "/api/v3/repos/team/agents/statuses/" + commit, "Bearer " + token, `{"state":"pending","context":"agentplatform/dev","description":"d"}`},
		{GitHub, "/team/agents", Success, "/api/v3/repos/team/agents/statuses/" + commit, "Bearer " + token, `{"state":"success","context":"agentplatform/dev","description":"d"}`},
		{GitHub, "/team/agents", Failure, "/api/v3/repos/team/agents/statuses/" + commit, "Bearer " + token, `{"state":"failure","context":"agentplatform/dev","description":"d"}`},
		{GitHub, "/team/agents", Error, "/api/v3/repos/team/agents/statuses/" + commit, "Bearer " + token, `{"state":"error","context":"agentplatform/dev","description":"d"}`},
		{GitLab, "/group/sub/agents.git", Pending, "/api/v4/projects/group%2Fsub%2Fagents/statuses/" + commit, "Bearer " + token, `{"state":"pending","name":"agentplatform/dev","description":"d"}`},
		{GitLab, "/team/agents", Success, "/api/v4/projects/team%2Fagents/statuses/" + commit, "Bearer " + token, `{"state":"success","name":"agentplatform/dev","description":"d"}`},
		{GitLab, "/team/agents", Failure, "/api/v4/projects/team%2Fagents/statuses/" + commit, "Bearer " + token, `{"state":"failed","name":"agentplatform/dev","description":"d"}`},
		{GitLab, "/team/agents", Error, "/api/v4/projects/team%2Fagents/statuses/" + commit, "Bearer " + token, `{"state":"canceled","name":"agentplatform/dev","description":"d"}`},
		{Gitea, "/team/agents.git", Pending, "/api/v1/repos/team/agents/statuses/" + commit, "token " + token, `{"state":"pending","context":"agentplatform/dev","description":"d"}`},
		{Gitea, "/team/agents", Error, "/api/v1/repos/team/agents/statuses/" + commit, "token " + token, `{"state":"error","context":"agentplatform/dev","description":"d"}`},
		{Forgejo, "/team/agents", Success, "/api/v1/repos/team/agents/statuses/" + commit, "token " + token, `{"state":"success","context":"agentplatform/dev","description":"d"}`},
		{Forgejo, "/team/agents", Failure, "/api/v1/repos/team/agents/statuses/" + commit, "token " + token, `{"state":"failure","context":"agentplatform/dev","description":"d"}`},
	} {
		t.Run(string(c.provider)+" "+string(c.state), func(t *testing.T) {
			t.Parallel()
			var method, uri, authorization, body string
			address, ca := server(t, func(w http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				method, uri, authorization, body = r.Method, r.RequestURI, r.Header.Get("Authorization"), string(text)
				w.WriteHeader(http.StatusCreated)
			})
			r, ok, err := Find(address+c.path, c.provider, "")
			require.NoError(t, err)
			require.True(t, ok)
			require.NoError(t, r.Report(t.Context(), guard(t, "git=127.0.0.0/8"), Status{Commit: commit, State: c.state, Context: "agentplatform/dev", Description: "d"}, token, ca))
			require.Equal(t, http.MethodPost, method)
			require.Equal(t, c.uri, uri)
			require.Equal(t, c.authorization, authorization)
			require.JSONEq(t, c.body, body)
		})
	}
}

func TestFind_DetectsProvider(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address  string
		provider Provider
		url      string // "" if nothing is sent
		problem  string
	}{
		{"https://github.com/team/agents.git", "", "https://api.github.com/repos/team/agents/statuses/", ""},
		{"git@github.com:team/agents.git", "", "https://api.github.com/repos/team/agents/statuses/", ""},
		{"ssh://git@github.com:22/team/agents", "", "https://api.github.com/repos/team/agents/statuses/", ""},
		{"https://gitlab.com/team/agents", "", "https://gitlab.com/api/v4/projects/team%2Fagents/statuses/", ""},
		{"https://gitea.com/team/agents", "", "https://gitea.com/api/v1/repos/team/agents/statuses/", ""},
		{"https://codeberg.org/team/agents", "", "https://codeberg.org/api/v1/repos/team/agents/statuses/", ""},
		{"https://git.example.com/team/agents", "", "", ""},
		{"https://github.com.example.com/team/agents", "", "", ""},
		{"https://git.example.com/team/agents", GitHub, "https://git.example.com/api/v3/repos/team/agents/statuses/", ""},
		{"https://git.example.com:8443/team/agents", Gitea, "https://git.example.com:8443/api/v1/repos/team/agents/statuses/", ""},
		{"ssh://git@git.example.com:2222/team/agents", Forgejo, "https://git.example.com/api/v1/repos/team/agents/statuses/", ""},
		{"http://[::1]:3000/team/agents", Gitea, "http://[::1]:3000/api/v1/repos/team/agents/statuses/", ""},
		{"https://[2001:db8::1]/team/agents", Gitea, "https://[2001:db8::1]/api/v1/repos/team/agents/statuses/", ""},
		{"https://[2001:db8::1]:8443/team/agents", Gitea, "https://[2001:db8::1]:8443/api/v1/repos/team/agents/statuses/", ""},
		{"ssh://git@[2001:db8::1]:2222/team/agents", Gitea, "https://[2001:db8::1]/api/v1/repos/team/agents/statuses/", ""},
		{"ssh://git@[2001:db8::1]/team/agents", Gitea, "https://[2001:db8::1]/api/v1/repos/team/agents/statuses/", ""},
		{"https://git.example.com/a b/c?d", Gitea, "https://git.example.com/api/v1/repos/a%20b/c%3Fd/statuses/", ""},
		{"https://git.example.com/agents", Gitea, "", "owner/repository"},
		{"https://github.com/team/more/agents", "", "", "owner/repository"},
		{"https://git.example.com/../agents", GitLab, "", "names no repository"},
		{"https://git.example.com/", GitLab, "", "names no repository"},
		{"agents", GitLab, "", "names no host"},
	} {
		t.Run(c.address, func(t *testing.T) {
			t.Parallel()
			r, ok, err := Find(c.address, c.provider, "")
			if c.problem != "" {
				require.ErrorContains(t, err, c.problem)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.url != "", ok)
			if ok {
				require.True(t, strings.HasPrefix(r.statusCall(Status{}, "").url, c.url), r.statusCall(Status{}, "").url)
			}
		})
	}
}

// A configured address takes precedence over the host of the repository.
func TestFind_UsesConfiguredAPI(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address  string
		provider Provider
		api, url string
	}{
		{"https://octocorp.ghe.com/team/agents", GitHub, "https://api.octocorp.ghe.com", "https://api.octocorp.ghe.com/repos/team/agents/statuses/"},
		{"git@git.example.com:team/agents.git", GitLab, "https://gitlab.example.com:8443/api/v4/", "https://gitlab.example.com:8443/api/v4/projects/team%2Fagents/statuses/"},
		{"https://example.com/git/team/agents.git", Gitea, "https://example.com/git/api/v1", "https://example.com/git/api/v1/repos/team/agents/statuses/"},
		{"https://[::1]:3000/git/team/agents.git", Gitea, "https://[::1]:3000/git/api/v1", "https://[::1]:3000/git/api/v1/repos/team/agents/statuses/"},
		{"https://example.com/gitlab/team/sub/agents", GitLab, "https://example.com/gitlab/api/v4", "https://example.com/gitlab/api/v4/projects/team%2Fsub%2Fagents/statuses/"},
		{"https://example.com/gitlab/team/agents", GitLab, "https://api.example.com/gitlab/api/v4", "https://api.example.com/gitlab/api/v4/projects/gitlab%2Fteam%2Fagents/statuses/"},
		{"ssh://git@example.com/git/agents", Gitea, "https://example.com/git/api/v1", "https://example.com/git/api/v1/repos/git/agents/statuses/"},
		{"https://example.com/api/agents", Gitea, "https://example.com/api/v1", "https://example.com/api/v1/repos/api/agents/statuses/"},
	} {
		t.Run(c.address, func(t *testing.T) {
			t.Parallel()
			r, ok, err := Find(c.address, c.provider, c.api)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, c.url, r.statusCall(Status{}, "").url)
		})
	}
	_, _, err := Find("https://example.com/git/team/agents", Gitea, "")
	require.ErrorContains(t, err, "set git.apiURL", "the root of the host is no Gitea API")
	_, _, err = Find("https://example.com/team/agents", Gitea, "https://%zz/api/v1")
	require.ErrorContains(t, err, "git.apiURL")
}

// GitLab rejects setting a pending commit to pending. Any other rejection is an error.
func TestReport_AcceptsKnownGitLabStatus(t *testing.T) {
	t.Parallel()
	is, other := "", ""
	address, ca := server(t, func(w http.ResponseWriter, req *http.Request) {
		var asked gitLabStatus
		if json.NewDecoder(req.Body).Decode(&asked) != nil || other != "" || asked.State == is {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `{"message":"Cannot transition status via :enqueue from :%s"}`, cmp.Or(other, is))
			return
		}
		if is = asked.State; is != "pending" {
			is = "" // GitLab keeps an ended status and begins another one
		}
		w.WriteHeader(http.StatusCreated)
	})
	r, _, err := Find(address+"/team/agents", GitLab, "")
	require.NoError(t, err)
	tell := func(state State) error {
		return r.Report(t.Context(), guard(t, "git=127.0.0.0/8"), Status{Commit: commit, State: state, Context: "agentplatform/dev"}, token, ca)
	}
	for _, state := range []State{Pending, Pending, Success, Success, Pending, Failure} {
		require.NoError(t, tell(state), state)
	}
	other = "manual"
	require.ErrorAs(t, tell(Pending), new(*RefusedError))
	require.False(t, isKnownToGitLab(Pending, http.StatusBadRequest, `{"message":"state does not have a valid value"}`))
	require.False(t, isKnownToGitLab(Pending, http.StatusNotFound, `Cannot transition status via :enqueue from :pending`))
}

// The error has the provider's status code and the remedy, and never the token.
func TestReport_ExplainsRejections(t *testing.T) {
	t.Parallel()
	for status, remedy := range map[int]string{
		301: "redirects are not followed", 307: "redirects are not followed", 401: "to write commit statuses", 403: "to write commit statuses",
		404: "correct git.url, git.provider or git.apiURL", 422: "the commit is in the repository", 429: "tried again", 500: "tried again", 503: "tried again",
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			asked := 0
			address, ca := server(t, func(w http.ResponseWriter, r *http.Request) {
				asked++
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, r.Header.Get("Authorization")) // the response repeats the token
			})
			r, _, err := Find(address+"/team/agents", Gitea, "")
			require.NoError(t, err)
			err = r.Report(t.Context(), guard(t, "git=127.0.0.0/8"), Status{Commit: commit}, token, ca)
			var refused *RefusedError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, status, refused.Code)
			require.ErrorContains(t, err, remedy)
			require.ErrorContains(t, err, http.StatusText(status))
			require.NotContains(t, err.Error(), token)
			require.Equal(t, 1, asked)
		})
	}
}

func TestReport_ReturnsConnectionErrors(t *testing.T) {
	t.Parallel()
	hangs, end := make(chan struct{}), make(chan struct{})
	address, ca := server(t, func(http.ResponseWriter, *http.Request) {
		close(hangs)
		<-end
	})
	t.Cleanup(func() { close(end) })
	r, _, err := Find(address+"/team/agents", GitHub, "")
	require.NoError(t, err)
	explained := func(ctx context.Context, g *egress.Guard, token, ca string) string {
		err := r.Report(ctx, g, Status{Commit: commit}, token, ca)
		require.Error(t, err)
		require.NotErrorAs(t, err, new(*RefusedError))
		require.NotContains(t, err.Error(), token)
		return gitremote.Explain(r.APIAddress(), true, err)
	}
	require.Contains(t, explained(t.Context(), guard(t, ""), token, ca), "is not a public address", "the operator does not allow it")
	require.Contains(t, explained(t.Context(), guard(t, "model=127.0.0.0/8"), token, ca), "is not a public address", "nor for Git")
	require.Contains(t, explained(t.Context(), guard(t, "git=127.0.0.0/8"), token, ""), "is not trusted")
	require.Contains(t, explained(t.Context(), guard(t, "git=127.0.0.0/8"), token, "none"), "contains no PEM certificate")
	explained(t.Context(), guard(t, "git=127.0.0.0/8"), token+"\nHost: elsewhere", ca)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-hangs
		cancel()
	}()
	explained(ctx, guard(t, "git=127.0.0.0/8"), token, ca)
}

func TestReport_CutsLongDescriptions(t *testing.T) {
	t.Parallel()
	r, _, err := Find("https://github.com/team/agents", "", "")
	require.NoError(t, err)
	body := r.statusCall(Status{Description: strings.Repeat("ä", 200)}, "").body.(gitHubStatus)
	require.Equal(t, strings.Repeat("ä", maxDescription), body.Description)
}
