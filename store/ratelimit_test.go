// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var perMinute = RateLimit{Requests: 3, Window: time.Minute}

func TestRateWindows_Slide(t *testing.T) {
	t.Parallel()
	clock, project := time.Unix(1000, 0), uuid.New()
	w := &RateWindows{Now: func() time.Time { return clock }}
	take := func(after time.Duration) RateVerdict {
		clock = time.Unix(1000, 0).Add(after)
		verdict, err := w.TakeRequest(t.Context(), project, perMinute)
		require.NoError(t, err)
		return verdict
	}
	require.Equal(t, RateVerdict{Limit: 3, Allowed: true, Remaining: 2, Reset: time.Minute}, take(0))
	require.Equal(t, RateVerdict{Limit: 3, Allowed: true, Remaining: 1, Reset: 30 * time.Second}, take(30*time.Second))
	require.Equal(t, RateVerdict{Limit: 3, Allowed: true, Remaining: 0, Reset: time.Second}, take(59*time.Second))
	require.Equal(t, RateVerdict{Limit: 3, Reset: time.Nanosecond}, take(time.Minute-time.Nanosecond), "still inside the window")
	require.Equal(t, RateVerdict{Limit: 3, Allowed: true, Reset: 30 * time.Second}, take(time.Minute), "rejected requests do not count")
	require.Equal(t, RateVerdict{Limit: 3, Reset: 29 * time.Second}, take(61*time.Second))
	other, err := w.TakeRequest(t.Context(), uuid.New(), perMinute)
	require.NoError(t, err)
	require.True(t, other.Allowed, "for another project")
}

// The limit holds for every window, whenever the requests come.
func TestRateWindows_NeverExceedLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		clock, project := time.Unix(1000, 0), uuid.New()
		w := &RateWindows{Now: func() time.Time { return clock }}
		var allowed []time.Time
		for _, pause := range rapid.SliceOfN(rapid.IntRange(0, 40), 1, 100).Draw(t, "pauses") {
			clock = clock.Add(time.Duration(pause) * time.Second)
			verdict, err := w.TakeRequest(t.Context(), project, perMinute)
			require.NoError(t, err)
			inside := 0
			for _, at := range allowed {
				if clock.Sub(at) < perMinute.Window {
					inside++
				}
			}
			require.Equal(t, inside < perMinute.Requests, verdict.Allowed)
			if verdict.Allowed {
				allowed = append(allowed, clock)
			}
		}
	})
}

func TestRateWindows_ForgetIdleProjects(t *testing.T) {
	t.Parallel()
	clock := time.Unix(1000, 0)
	w := &RateWindows{Now: func() time.Time { return clock }}
	for range sweepAbove + 1 {
		_, err := w.TakeRequest(t.Context(), uuid.New(), perMinute)
		require.NoError(t, err)
	}
	clock = clock.Add(time.Minute)
	_, err := w.TakeRequest(t.Context(), uuid.New(), perMinute)
	require.NoError(t, err)
	require.Len(t, w.taken, 1)
}
