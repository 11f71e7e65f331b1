// SPDX-License-Identifier: Apache-2.0

package statistics

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// Retention deletes the oldest hours first, by whole days, and none of the last two days.
func TestWholeSince_SkipsIncompleteHours(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 10, 12, 30, 0, 0, time.UTC)
	at := func(month time.Month, day, hour, minute int) time.Time {
		return time.Date(2026, month, day, hour, minute, 0, 0, time.UTC)
	}
	for oldest, want := range map[time.Time]time.Time{
		at(3, 1, 10, 5):  at(3, 1, 11, 0),
		at(3, 1, 10, 0):  at(3, 1, 11, 0),
		at(2, 28, 23, 1): at(3, 1, 0, 0),
		at(3, 7, 23, 59): at(3, 8, 0, 0),
		at(3, 8, 0, 0):   at(3, 8, 0, 0),
		at(3, 10, 12, 0): at(3, 8, 0, 0),
	} {
		t.Run(fmt.Sprint(oldest), func(t *testing.T) {
			id := store.Stamp(uuid.New(), oldest.UnixMicro(), 0)
			require.Equal(t, want, time.UnixMicro(wholeSince(id, now)).UTC(), oldest)
		})
	}
	require.Equal(t, at(3, 8, 0, 0), time.UnixMicro(wholeSince(uuid.Nil, now)).UTC(), "without rows")
}
