// SPDX-License-Identifier: Apache-2.0

package build_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/testenv/gittest"
	"github.com/agentplatform/agentplatform/runner/build"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const okAgent = "name: ok\nmodel: openai/gpt-5\n"

// fetch calls Fetch and reads its output.
func fetch(t *testing.T, opts build.FetchOptions) (build.Result, string) {
	t.Helper()
	opts.Dir = t.TempDir()
	if opts.Guard == nil {
		opts.Guard = loopbackGuard(t)
	}
	opts.Pause = func(context.Context, time.Duration) error { return nil }
	require.NoError(t, build.Fetch(t.Context(), opts))
	data, err := os.ReadFile(filepath.Join(opts.Dir, "fetch.json"))
	require.NoError(t, err)
	var r build.Result
	require.NoError(t, json.Unmarshal(data, &r))
	require.NoDirExists(t, filepath.Join(opts.Dir, "git"))
	return r, filepath.Join(opts.Dir, "source")
}

func TestFetch_OverHTTPS(t *testing.T) {
	t.Parallel()
	repo := gittest.New(t)
	first := repo.Commit("main", "agents/ok.yaml", okAgent, "README.md", "not packed", "sub/agents/in.yaml", okAgent)
	second := repo.Commit("main", "agents/ok.yaml", okAgent+"description: second\n")
	side := repo.Commit("side", "agents/side.yaml", okAgent)
	repo.Git(repo.Work, "tag", "-a", "v1", "-m", "v1", first)
	repo.Git(repo.Work, "push", "-q", "origin", "v1")

	plain, ca := repo.HTTPS(t, nil)
	creds := secret(t, "ca.crt", ca)
	for name, tt := range map[string]struct {
		opts   build.FetchOptions
		want   string
		branch string
		file   string
		has    string
	}{
		"default branch": {build.FetchOptions{}, second, "main", "agents/ok.yaml", "second"},
		"branch":         {build.FetchOptions{Branch: "side"}, side, "side", "agents/side.yaml", "name: ok"},
		"tag":            {build.FetchOptions{Branch: "v1"}, first, "v1", "agents/ok.yaml", "name: ok"},
		"old commit":     {build.FetchOptions{Commit: first}, first, "main", "agents/ok.yaml", "name: ok"},
		"path":           {build.FetchOptions{Path: "/sub/"}, second, "main", "agents/in.yaml", "name: ok"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.opts.URL, tt.opts.Credentials = plain, creds
			r, dir := fetch(t, tt.opts)
			require.Empty(t, r.Error, "%s", strings.Join(r.Log, ""))
			require.Equal(t, tt.want, r.Commit)
			require.Equal(t, tt.branch, r.Branch)
			require.Equal(t, "Ada", r.Author)
			require.True(t, strings.HasPrefix(r.Message, "Change "))
			data, err := os.ReadFile(filepath.Join(dir, tt.file))
			require.NoError(t, err)
			require.Contains(t, string(data), tt.has)
			require.NoFileExists(t, filepath.Join(dir, "README.md"))
		})
	}
}

// The protocol says that servers SHOULD peel tags.
func TestFetch_ResolvesTagsThatServerDoesNotPeel(t *testing.T) {
	t.Parallel()
	repo := gittest.New(t)
	first := repo.Commit("main", "agents/ok.yaml", okAgent)
	repo.Commit("main", "agents/ok.yaml", okAgent+"description: second\n")
	repo.Git(repo.Work, "tag", "light", first)
	repo.Git(repo.Work, "tag", "-a", "annotated", "-m", "annotated", first)
	repo.Git(repo.Work, "tag", "-a", "nested", "-m", "nested", "annotated")
	repo.Git(repo.Work, "tag", "-a", "file", "-m", "file", first+":agents/ok.yaml")
	repo.Git(repo.Work, "push", "-q", "origin", "light", "annotated", "nested", "file")
	object := repo.Git(repo.Work, "rev-parse", "annotated")
	url, ca := unpeeled(t, repo)
	creds := secret(t, "ca.crt", ca)
	for _, tt := range []struct {
		name string
		opts build.FetchOptions
		want string // "" for a failure
	}{
		{"light", build.FetchOptions{Branch: "light"}, first},
		{"annotated", build.FetchOptions{Branch: "annotated"}, first},
		{"nested", build.FetchOptions{Branch: "nested"}, first},
		{"of no commit", build.FetchOptions{Branch: "file"}, ""},
		{"tag as commit", build.FetchOptions{Commit: object}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.opts.URL, tt.opts.Credentials = url, creds
			r, _ := fetch(t, tt.opts)
			require.Equal(t, tt.want, r.Commit, "%s", strings.Join(r.Log, ""))
			if tt.want == "" {
				require.Contains(t, r.Error, "has no commit")
			}
		})
	}
}

// unpeeled serves a repository without peeled tags.
func unpeeled(t *testing.T, repo *gittest.Repository) (url, ca string) {
	t.Helper()
	behind, trusted := repo.HTTPS(t, nil)
	target, err := neturl.Parse(behind)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM([]byte(trusted)))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	server := httptest.NewTLSServer(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&neturl.URL{Scheme: target.Scheme, Host: target.Host})
			r.Out.Header.Del("Accept-Encoding")
		},
		ModifyResponse: func(r *http.Response) error {
			if !strings.HasSuffix(r.Request.URL.Path, "/info/refs") {
				return nil
			}
			refs := packp.NewAdvRefs()
			if err := refs.Decode(r.Body); err != nil {
				return err
			}
			clear(refs.Peeled)
			var out bytes.Buffer
			err := refs.Encode(&out)
			r.Body, r.ContentLength = io.NopCloser(&out), int64(out.Len())
			r.Header.Del("Content-Length")
			return err
		},
	})
	t.Cleanup(server.Close)
	return server.URL + "/repo.git", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// The files of such folders are not written.
func TestFetch_WarnsOfMisspelledFolders(t *testing.T) {
	t.Parallel()
	repo := gittest.New(t)
	repo.Commit("main", "agents/ok.yaml", okAgent, "connector/deep/down/orders.yaml", "x", "docs/agent/a.yaml", "x", "test/main_test.go", "x")
	plain, ca := repo.HTTPS(t, nil)
	r, dir := fetch(t, build.FetchOptions{URL: plain, Credentials: secret(t, "ca.crt", ca)})
	require.Empty(t, r.Error)
	said := strings.Join(r.Log, "")
	require.Contains(t, said, "warning: connector: is not read: the name of the folder is connectors; rename it if you meant that folder\n")
	require.Equal(t, 1, strings.Count(said, "warning"), said)
	require.NoDirExists(t, filepath.Join(dir, "connector"))
}

func TestFetch_FallsBackToHistory(t *testing.T) {
	t.Parallel()
	repo := gittest.New(t)
	first := repo.Commit("main", "agents/ok.yaml", okAgent)
	repo.Commit("main", "agents/two.yaml", okAgent)
	server := gittest.StartSSH(t)
	r, dir := fetch(t, build.FetchOptions{
		URL:         fmt.Sprintf("ssh://%s@127.0.0.1:%d%s/repo.git", server.User, server.Port, repo.Dir),
		Commit:      first,
		Credentials: secret(t, "identity", server.Identity, "known_hosts", server.KnownHosts),
	})
	require.Empty(t, r.Error, "%s", strings.Join(r.Log, ""))
	require.Equal(t, first, r.Commit)
	require.Contains(t, strings.Join(r.Log, ""), "fetching the history")
	require.NoFileExists(t, filepath.Join(dir, "agents/two.yaml"))
}

// A broken connection causes another attempt and does not fail the deployment.
func TestFetch_RetriesBrokenConnections(t *testing.T) {
	t.Parallel()
	repo := gittest.New(t)
	head := repo.Commit("main", "agents/ok.yaml", okAgent)
	for name, begin := range map[string]string{"before the answer": "", "amid the objects": "0008NAK\n0020\x01PACK"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			breaks := make(chan struct{}, 1)
			breaks <- struct{}{}
			url, ca := repo.HTTPS(t, func(w http.ResponseWriter, r *http.Request) int {
				if r.Method != http.MethodPost {
					return 0
				}
				select {
				case <-breaks:
				default:
					return 0
				}
				if begin != "" {
					w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
					_, _ = io.WriteString(w, begin)
					_ = http.NewResponseController(w).Flush()
				}
				panic(http.ErrAbortHandler)
			})
			r, _ := fetch(t, build.FetchOptions{URL: url, Credentials: secret(t, "ca.crt", ca)})
			require.Empty(t, r.Error, "%s", strings.Join(r.Log, ""))
			require.Equal(t, head, r.Commit)
			require.Contains(t, strings.Join(r.Log, ""), "trying again: the connection to "+url+" was interrupted")
		})
	}
}

func TestFetch_SendsCredentials(t *testing.T) {
	t.Parallel()
	repo := gittest.New(t)
	head := repo.Commit("main", "agents/ok.yaml", okAgent)
	basic, ca := repo.HTTPS(t, func(_ http.ResponseWriter, r *http.Request) int {
		if user, password, _ := r.BasicAuth(); user != "ada" || password != "s3cret" {
			return http.StatusUnauthorized
		}
		return 0
	})
	bearer, bearerCA := repo.HTTPS(t, func(_ http.ResponseWriter, r *http.Request) int {
		if r.Header.Get("Authorization") != "Bearer tok" {
			return http.StatusForbidden
		}
		return 0
	})
	for name, tt := range map[string]struct {
		url, creds, want string
	}{
		"basic":        {basic, secret(t, "ca.crt", ca, "username", "ada\n", "password", "s3cret\n"), ""},
		"bearer":       {bearer, secret(t, "ca.crt", bearerCA, "bearerToken", "tok\n"), ""},
		"white space":  {basic, secret(t, "ca.crt", ca, "username", " ada ", "password", " s3cret \n"), ""},
		"two lines":    {bearer, secret(t, "ca.crt", bearerCA, "bearerToken", "s3cret\ntok\n"), "bearerToken of the git Secret contains a line break"},
		"wrong":        {basic, secret(t, "ca.crt", ca, "username", "ada", "password", "no"), "rejects the credentials of the git Secret"},
		"wrong bearer": {bearer, secret(t, "ca.crt", bearerCA, "bearerToken", "no"), "rejects the credentials of the git Secret"},
		"half":         {basic, secret(t, "password", "x"), "a password without a username"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := fetch(t, build.FetchOptions{URL: tt.url, Credentials: tt.creds})
			if tt.want != "" {
				require.Contains(t, r.Error, tt.want)
				require.NotContains(t, strings.Join(r.Log, ""), "s3cret")
				return
			}
			require.Empty(t, r.Error)
			require.Equal(t, head, r.Commit)
		})
	}
}

func TestFetch_OverSSH(t *testing.T) {
	t.Parallel()
	repo := gittest.New(t)
	head := repo.Commit("main", "agents/ok.yaml", okAgent)
	server := gittest.StartSSH(t)
	emptyDir := gittest.New(t).Dir
	_, stranger := gittest.NewKey(t)
	strangersKey, _ := gittest.NewKey(t)
	url := fmt.Sprintf("ssh://%s@127.0.0.1:%d%s/repo.git", server.User, server.Port, repo.Dir)
	otherHost := fmt.Sprintf("[127.0.0.1]:%d ssh-ed25519 %s", server.Port, strings.Fields(string(marshalKey(stranger)))[1])
	for name, tt := range map[string]struct {
		url, creds, want string
	}{
		"key":                {url, secret(t, "identity", server.Identity, "known_hosts", server.KnownHosts), ""},
		"wrong key":          {url, secret(t, "identity", strangersKey, "known_hosts", server.KnownHosts), "rejects the key of the git Secret (identity)"},
		"no key":             {url, secret(t, "known_hosts", server.KnownHosts), "put it into the Secret as identity"},
		"no known hosts":     {url, secret(t, "identity", server.Identity), "put the output of `ssh-keyscan 127.0.0.1` into the Secret as known_hosts"},
		"other known hosts":  {url, secret(t, "identity", server.Identity, "known_hosts", "example.com "+strings.SplitN(server.KnownHosts, " ", 2)[1]), "does not name the host"},
		"changed host key":   {url, secret(t, "identity", server.Identity, "known_hosts", otherHost), "the host key of"},
		"no key at all":      {url, secret(t, "identity", "hello", "known_hosts", server.KnownHosts), "not a private key in PEM"},
		"empty":              {strings.Replace(url, repo.Dir, emptyDir, 1), secret(t, "identity", server.Identity, "known_hosts", server.KnownHosts), "is empty; push a commit"},
		"no such repository": {strings.Replace(url, "repo.git", "it's not.git", 1), secret(t, "identity", server.Identity, "known_hosts", server.KnownHosts), "the server said: fatal: '" + repo.Dir + "/it's not.git' does not appear to be a git repository"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := fetch(t, build.FetchOptions{URL: tt.url, Credentials: tt.creds})
			if tt.want != "" {
				require.Contains(t, r.Error, tt.want)
				return
			}
			require.Empty(t, r.Error)
			require.Equal(t, head, r.Commit)
		})
	}
}

func TestFetch_ErrorsNameCauseAndRemedy(t *testing.T) {
	t.Parallel()
	repo := gittest.New(t)
	repo.Commit("main", "agents/ok.yaml", okAgent)
	url, ca := repo.HTTPS(t, nil)
	locked, lockedCA := repo.HTTPS(t, func(http.ResponseWriter, *http.Request) int { return http.StatusUnauthorized })
	busy, busyCA := repo.HTTPS(t, func(http.ResponseWriter, *http.Request) int { return http.StatusBadGateway })
	emptyURL, emptyCA := gittest.New(t).HTTPS(t, nil)
	movedURL, movedCA := repo.HTTPS(t, func(http.ResponseWriter, *http.Request) int { return http.StatusMovedPermanently })
	creds := secret(t, "ca.crt", ca)
	for name, tt := range map[string]struct {
		opts build.FetchOptions
		want string
	}{
		"no repository": {build.FetchOptions{URL: strings.Replace(url, "repo.git", "none.git", 1), Credentials: creds}, "does not exist; correct git.url of the Project"},
		"no branch":     {build.FetchOptions{URL: url, Credentials: creds, Branch: "nope"}, `has no branch or tag "nope"`},
		"no commit":     {build.FetchOptions{URL: url, Credentials: creds, Commit: strings.Repeat("a", 40)}, "has no commit aaaaaaaa"},
		"short commit":  {build.FetchOptions{URL: url, Credentials: creds, Commit: "abc"}, "not a full hash"},
		"no folder":     {build.FetchOptions{URL: url, Credentials: creds, Path: "gone"}, `has no folder "gone"; correct git.path`},
		"authority":     {build.FetchOptions{URL: url}, "is not trusted; put the authority that signed it into the git Secret as ca.crt"},
		"locked":        {build.FetchOptions{URL: locked, Credentials: secret(t, "ca.crt", lockedCA)}, "rejects the credentials"},
		"busy":          {build.FetchOptions{URL: busy, Credentials: secret(t, "ca.crt", busyCA)}, "the server answered 502 Bad Gateway"},
		"empty":         {build.FetchOptions{URL: emptyURL, Credentials: secret(t, "ca.crt", emptyCA)}, "is empty; push a commit"},
		"redirect":      {build.FetchOptions{URL: movedURL, Credentials: secret(t, "ca.crt", movedCA)}, "redirect"},
		"no host":       {build.FetchOptions{URL: "https://nowhere.invalid/x.git"}, "host nowhere.invalid of the git URL does not exist; correct git.url"},
		"closed port":   {build.FetchOptions{URL: "https://127.0.0.1:1/x.git"}, "cannot reach https://127.0.0.1:1/x.git"},
		"scheme":        {build.FetchOptions{URL: "git://127.0.0.1/x.git"}, `scheme "git" is not supported; use https or ssh`},
		"file":          {build.FetchOptions{URL: "file:///etc"}, "is not of the form"},
		"path":          {build.FetchOptions{URL: repo.Dir}, "is not of the form"},
		"ext":           {build.FetchOptions{URL: "ext::sh -c id"}, "is not of the form"},
		"password":      {build.FetchOptions{URL: "https://ada:s3cret@127.0.0.1/x.git"}, "put them into the Secret"},
		"forbidden":     {build.FetchOptions{URL: url, Guard: egress.New(egress.Rules{})}, "127.0.0.1 is not a public address; the platform operator can open it for the egress purpose git"},
		"forbidden ssh": {build.FetchOptions{URL: "ssh://git@10.0.0.1/x.git", Guard: egress.New(egress.Rules{}), Credentials: secret(t, "identity", firstOf(gittest.NewKey(t)), "known_hosts", "10.0.0.1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl")}, "10.0.0.1 is not a public address"},
		"plain http":    {build.FetchOptions{URL: "http://93.184.216.34/x.git", Guard: egress.New(egress.Rules{})}, "plain http"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := fetch(t, tt.opts)
			require.Contains(t, r.Error, tt.want)
			all := r.Error + strings.Join(r.Log, "")
			require.Contains(t, all, r.Error)
			require.NotContains(t, all, "s3cret")
		})
	}
}

func TestFetch_WritesLinksAsLinks(t *testing.T) {
	t.Parallel()
	repo := gittest.New(t)
	require.NoError(t, os.Mkdir(filepath.Join(repo.Work, "agents"), 0o755))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(repo.Work, "agents", "link.yaml")))
	require.NoError(t, os.Symlink("/etc", filepath.Join(repo.Work, "tools")))
	repo.Commit("main")
	url, ca := repo.HTTPS(t, nil)
	r, dir := fetch(t, build.FetchOptions{URL: url, Credentials: secret(t, "ca.crt", ca)})
	require.Empty(t, r.Error)
	for _, name := range []string{"agents/link.yaml", "tools"} {
		target, err := os.Readlink(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, "refused", target)
	}
}

func TestFetch_LimitsRepositorySize(t *testing.T) {
	t.Parallel()
	repo := gittest.New(t)
	repo.Commit("main", "tests/files/big", strings.Repeat("x", 26<<20))
	url, ca := repo.HTTPS(t, nil)
	r, _ := fetch(t, build.FetchOptions{URL: url, Credentials: secret(t, "ca.crt", ca)})
	require.Contains(t, r.Error, `"tests/files/big": more than a bundle can hold (25 MiB); remove large files`)

	repo.Git(repo.Work, "rm", "-q", "tests/files/big")
	repo.Commit("main", "docs/big", strings.Repeat("y", 26<<20), "agents/ok.yaml", okAgent)
	r, dir := fetch(t, build.FetchOptions{URL: url, Credentials: secret(t, "ca.crt", ca)})
	require.Empty(t, r.Error, "what agents do not need may be large")
	require.FileExists(t, filepath.Join(dir, "agents/ok.yaml"))
}

func TestFetch_FailsIfFolderIsReadOnly(t *testing.T) {
	t.Parallel()
	err := build.Fetch(t.Context(), build.FetchOptions{URL: "x", Dir: filepath.Join(t.TempDir(), "missing"), Guard: egress.New(egress.Rules{})})
	require.Error(t, err)
}
