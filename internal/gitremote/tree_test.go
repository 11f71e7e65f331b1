// SPDX-License-Identifier: Apache-2.0

package gitremote_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/gitremote"
	"github.com/agentplatform/agentplatform/internal/testenv/gittest"
)

// unheard ignores how long a slot is held.
func unheard() (received func()) { return func() {} }

// This works over both protocols, for folders at any depth, and without the files.
func TestTrees_IdentifyFolderContent(t *testing.T) {
	t.Parallel()
	repository := gittest.New(t)
	repository.Git(repository.Dir+"/repo.git", "config", "uploadpack.allowFilter", "true")
	one := repository.Commit("main", "a/b/c/x.yaml", "1", "y.yaml", "1")
	two := repository.Commit("other", "a/b/c/x.yaml", "1", "y.yaml", "2")
	url, ca := repository.HTTPS(t, nil)
	server := gittest.StartSSH(t)
	rules, err := egress.Flags{Allow: "git=127.0.0.0/8"}.Rules()
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		url    string
		secret map[string][]byte
	}{
		"https": {url, map[string][]byte{"ca.crt": []byte(ca)}},
		"ssh":   {server.URL(repository.Dir + "/repo.git"), map[string][]byte{"identity": []byte(server.Identity), "known_hosts": []byte(server.KnownHosts)}},
	} {
		t.Run(name, func(t *testing.T) {
			for folder, same := range map[string]bool{"": false, "a": true, "a/b": true, "/a/b/c/": true, "gone": true, "a/gone/c": true} {
				t.Run(folder, func(t *testing.T) {
					remote, err := gitremote.New(tt.url, gitremote.Values(tt.secret), egress.New(rules))
					require.NoError(t, err)
					session, err := remote.Connect(t.Context())
					require.NoError(t, err)
					refs, err := session.Tips(t.Context(), []string{"main"}, func() {})
					require.NoError(t, err)
					first, second := plumbing.NewHash(one), plumbing.NewHash(two)
					periods := 0
					hold := func() func() { return func() { periods++ } }
					trees, err := gitremote.Trees(t.Context(), session, refs, folder, hold, first, second)
					require.NoError(t, err, "%q", folder)
					require.Equal(t, 2, periods, "one for receiving and one for reading")
					require.NoError(t, session.Close())
					require.Len(t, trees, 2)
					require.Equal(t, same, trees[first] == trees[second], "%q", folder)
					want := ""
					if folder == "a" {
						want = repository.Git(repository.Work, "rev-parse", one+":a")
					}
					if want != "" {
						require.Equal(t, want, trees[first])
					}
				})
			}
		})
	}
}

// While a hanging server uses its slot, requests to other servers succeed.
func TestTrees_HangingServerBlocksNoOther(t *testing.T) {
	t.Parallel()
	repository := gittest.New(t)
	repository.Git(repository.Dir+"/repo.git", "config", "uploadpack.allowFilter", "true")
	commit := repository.Commit("main", "a/x.yaml", "1")
	rules, err := egress.Flags{Allow: "git=127.0.0.0/8"}.Rules()
	require.NoError(t, err)
	trees := func(ctx context.Context, url, ca string) (map[plumbing.Hash]string, error) {
		remote, err := gitremote.New(url, gitremote.Values(map[string][]byte{"ca.crt": []byte(ca)}), egress.New(rules))
		if err != nil {
			return nil, err
		}
		session, err := remote.Connect(ctx)
		if err != nil {
			return nil, err
		}
		defer session.Close()
		refs, err := session.Tips(ctx, []string{"main"}, func() {})
		if err != nil {
			return nil, err
		}
		return gitremote.Trees(ctx, session, refs, "a", unheard, plumbing.NewHash(commit))
	}
	reached, hangs := make(chan struct{}, 1), make(chan struct{})
	slow, slowCA := repository.HTTPS(t, func(_ http.ResponseWriter, r *http.Request) int {
		if r.Method == http.MethodPost {
			reached <- struct{}{}
			<-hangs
		}
		return 0
	})
	defer close(hangs)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		_, err := trees(ctx, slow, slowCA)
		ended <- err
	}()
	<-reached

	quick, quickCA := repository.HTTPS(t, nil)
	seen, err := trees(t.Context(), quick, quickCA)
	require.NoError(t, err)
	require.Equal(t, repository.Git(repository.Work, "rev-parse", commit+":a"), seen[plumbing.NewHash(commit)])
	require.Empty(t, ended, "it hangs all the while")
	stop()
	require.Error(t, <-ended)
}
