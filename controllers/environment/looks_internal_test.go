// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLooksAreApart: by ten seconds, or by more each time where there is no answer.
func TestLooksAreApart(t *testing.T) {
	t.Parallel()
	var l looks
	now := time.Unix(1, 0)
	require.Zero(t, l.rest("a", now))
	l.took("a", now, time.Minute, false)
	require.Equal(t, 10*time.Second, l.rest("a", now))
	require.Equal(t, time.Second, l.rest("a", now.Add(9*time.Second)))
	require.Zero(t, l.rest("a", now.Add(time.Hour)))
	require.Zero(t, l.rest("b", now))
	for _, want := range []time.Duration{2, 4, 8, 10, 10} {
		l.took("a", now, time.Minute, true)
		require.Equal(t, want*time.Minute, l.rest("a", now))
	}
	l.forget("a", now)
	require.Equal(t, 10*time.Minute, l.rest("a", now), "no way to be asked sooner")
	l.took("a", now, time.Minute, false)
	require.Equal(t, 10*time.Second, l.rest("a", now))
	l.forget("a", now.Add(10*time.Second))
	require.Empty(t, l.of)
}

// TestWhoIsSlowIsLeftAloneForLonger: for so many times as long, however it ended.
func TestWhoIsSlowIsLeftAloneForLonger(t *testing.T) {
	t.Parallel()
	var l looks
	now := time.Unix(1, 0)
	for _, step := range []struct {
		held time.Duration
		late bool
		want time.Duration
	}{
		{held: 9900 * time.Millisecond, want: 297 * time.Second},
		{want: 10 * time.Second},
		{held: 100 * time.Millisecond, want: 10 * time.Second},
		{held: 10 * time.Second, late: true, want: 5 * time.Minute},
		{late: true, want: 10 * time.Minute},
		{held: time.Hour, want: 10 * time.Minute},
	} {
		if step.held > 0 {
			l.held("a", step.held)
		}
		l.took("a", now, time.Minute, step.late)
		require.Equal(t, step.want, l.rest("a", now))
	}
	require.Zero(t, l.rest("b", now))
}

// TestFoldersAreWaitedFor: four times; then every commit counts.
func TestFoldersAreWaitedFor(t *testing.T) {
	t.Parallel()
	var l looks
	for _, want := range []bool{true, true, true, true, false, true} {
		require.Equal(t, want, l.unseen("a"))
	}
	l.seen("a")
	for range foldersPatience - 1 {
		require.True(t, l.unseen("a"))
	}
}

// TestAnAnswerBeginsInTime: or what asks for it ends, and says so.
func TestAnAnswerBeginsInTime(t *testing.T) {
	t.Parallel()
	ctx, _, cancel := unlessAnswered(t.Context(), 0)
	defer cancel()
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded)

	ctx, answered, cancel := unlessAnswered(t.Context(), time.Hour)
	answered()
	require.NoError(t, ctx.Err())
	cancel()
	require.ErrorIs(t, context.Cause(ctx), context.Canceled)
}
