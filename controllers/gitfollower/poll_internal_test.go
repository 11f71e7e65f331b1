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

// Polls are ten seconds apart, and further apart after each poll without a response.
func TestPollTimes_KeepMinimumInterval(t *testing.T) {
	t.Parallel()
	var l pollTimes
	now := time.Unix(1, 0)
	require.Zero(t, l.remainingPause("a", now))
	l.recordPoll("a", now, 0, time.Minute, false)
	require.Equal(t, 10*time.Second, l.remainingPause("a", now))
	require.Equal(t, time.Second, l.remainingPause("a", now.Add(9*time.Second)))
	require.Zero(t, l.remainingPause("a", now.Add(time.Hour)))
	require.Zero(t, l.remainingPause("b", now))
	for _, want := range []time.Duration{2, 4, 8, 10, 10} {
		l.recordPoll("a", now, 0, time.Minute, true)
		require.Equal(t, want*time.Minute, l.remainingPause("a", now))
	}
	l.forgetRepository("a", now)
	require.Equal(t, 10*time.Minute, l.remainingPause("a", now), "no way to be asked sooner")
	l.recordPoll("a", now, 0, time.Minute, false)
	require.Equal(t, 10*time.Second, l.remainingPause("a", now))
	l.forgetRepository("a", now.Add(10*time.Second))
	require.Empty(t, l.byNamespace)
}

// A slow repository has a pause proportional to the time of its folders and to that of the poll,
// whatever the result.
func TestPollTimes_PauseSlowRepositories(t *testing.T) {
	t.Parallel()
	var l pollTimes
	now := time.Unix(1, 0)
	for _, step := range []struct {
		held []time.Duration
		took time.Duration
		late bool
		want time.Duration
	}{
		{held: []time.Duration{9900 * time.Millisecond}, took: 10 * time.Second, want: 297 * time.Second},
		{want: 10 * time.Second},
		{took: time.Second, want: 10 * time.Second},
		{took: 30 * time.Second, want: 90 * time.Second},
		{held: []time.Duration{100 * time.Millisecond}, want: 10 * time.Second},
		{held: []time.Duration{time.Second, 3 * time.Second}, took: 5 * time.Second, want: 2 * time.Minute},
		{held: []time.Duration{10 * time.Second}, late: true, want: 5 * time.Minute},
		{late: true, want: 10 * time.Minute},
		{held: []time.Duration{time.Hour}, want: 10 * time.Minute},
		{took: time.Hour, want: 10 * time.Minute},
	} {
		for _, held := range step.held {
			l.recordTransferTime("a", held)
		}
		l.recordPoll("a", now, step.took, time.Minute, step.late)
		require.Equal(t, step.want, l.remainingPause("a", now))
	}
	require.Zero(t, l.remainingPause("b", now))
}

// Four polls may fail to read the folders. After that, every commit counts.
func TestPollTimes_BoundWaitForFolders(t *testing.T) {
	t.Parallel()
	var l pollTimes
	for _, want := range []bool{true, true, true, true, false, true} {
		require.Equal(t, want, l.recordTreeUnread("a"))
	}
	l.recordTreeRead("a")
	for range maxTreeFailures - 1 {
		require.True(t, l.recordTreeUnread("a"))
	}
}

// The context ends with an error if no response starts in time.
func TestWithResponseTimeout_Ends(t *testing.T) {
	t.Parallel()
	ctx, _, cancel := withResponseTimeout(t.Context(), 0)
	defer cancel()
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded)

	ctx, answered, cancel := withResponseTimeout(t.Context(), time.Hour)
	answered()
	require.NoError(t, ctx.Err())
	cancel()
	require.ErrorIs(t, context.Cause(ctx), context.Canceled)
}

// A server that says something else at each poll does not change the status of objects each time.
func TestHeads_KeepTextWhileCauseStays(t *testing.T) {
	t.Parallel()
	first := Head{Problem: "the server said: one", TreeProblem: "one", Cause: "the server said: ", Path: "a"}
	for name, tt := range map[string]struct {
		second, want Head
		changed      bool
	}{
		"other text":         {Head{Problem: "the server said: two", TreeProblem: "two", Cause: first.Cause, Path: "a"}, first, false},
		"other cause":        {Head{Problem: "not found", Cause: "not found", Path: "a"}, Head{Problem: "not found", Cause: "not found", Path: "a"}, true},
		"other folder":       {Head{TreeProblem: "two", Cause: first.Cause, Path: "b"}, Head{TreeProblem: "two", Cause: first.Cause, Path: "b"}, true},
		"no cause":           {Head{Commit: "c", Path: "a"}, Head{Commit: "c", Path: "a"}, true},
		"text, but no cause": {Head{Problem: "no branch", Path: "a"}, Head{Problem: "no branch", Path: "a"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			heads := NewHeads()
			require.True(t, heads.replaceHeads("team", map[string]Head{"main": first})["main"])
			require.Equal(t, tt.changed, heads.replaceHeads("team", map[string]Head{"main": tt.second})["main"])
			got, _ := heads.getHead("team", "main")
			require.Equal(t, tt.want, got)
		})
	}
}
