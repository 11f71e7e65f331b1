// SPDX-License-Identifier: Apache-2.0

package gitfollower

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/gitremote"
)

// hanging is a session with a server that sends nothing until it is released.
type hanging struct {
	gitremote.Session
	reached chan<- struct{}
	let     <-chan struct{}
}

// Pack implements gitremote.Session.
func (h hanging) Pack(context.Context, *packp.UploadPackRequest) (io.ReadCloser, error) {
	h.reached <- struct{}{}
	<-h.let
	return nil, io.ErrUnexpectedEOF
}

// Close implements gitremote.Session.
func (hanging) Close() error { return nil }

// While slow servers use all slots, a branch stays at its previous head for some polls. After that,
// every commit counts.
func TestPoll_StopsWaitingForSlowServers(t *testing.T) {
	t.Parallel()
	tips := packp.NewAdvRefs()
	require.NoError(t, tips.Capabilities.Set(capability.Filter))
	require.NoError(t, tips.Capabilities.Set(capability.Shallow))
	commit := plumbing.NewHash(strings.Repeat("1", 40))
	reached, let := make(chan struct{}), make(chan struct{})
	var others sync.WaitGroup
	t.Cleanup(func() { close(let); others.Wait() })
	for range 4 {
		others.Go(func() {
			hold := func() func() { return func() {} }
			_, _ = gitremote.Trees(context.Background(), hanging{reached: reached, let: let}, tips, "a", hold, commit)
		})
		<-reached
	}

	b := &Reconciler{Base: &base.Base{Clock: testclock.NewFakePassiveClock(time.Unix(1, 0))}, Heads: NewHeads()}
	project := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team"}, Spec: v1alpha1.ProjectSpec{Git: &v1alpha1.ProjectGit{URL: "https://git.example.com/a.git", Path: "a"}},
	}
	over, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	for look := range maxTreeFailures {
		head := Head{Seen: commit.String(), Commit: commit.String(), Path: "a"}
		seen := map[string]Head{"main": head}
		require.False(t, b.queryTrees(over, hanging{}, tips, project, map[string]plumbing.Hash{"main": commit}, seen), "its own server is not late")
		if look < maxTreeFailures-1 {
			require.Empty(t, seen["main"].Commit)
			require.Contains(t, seen["main"].TreeProblem, "too many other repositories are being read")
			continue
		}
		require.Equal(t, head, seen["main"])
	}
	b.polls.recordPoll("team", time.Unix(1, 0), 0, time.Minute, false)
	require.Equal(t, minPollInterval, b.polls.remainingPause("team", time.Unix(1, 0)), "it held no place")
}
