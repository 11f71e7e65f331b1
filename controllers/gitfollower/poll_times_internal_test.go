// SPDX-License-Identifier: Apache-2.0

package gitfollower

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
