// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver/rest"
)

// Windows follow the calendar in UTC in every time zone of the clock.
func TestTimeRange_UsesUTCCalendar(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 0, 30, 0, 0, time.UTC)
	at := func(year int, month time.Month, day, hour, minute int) time.Time {
		return time.Date(year, month, day, hour, minute, 0, 0, time.UTC)
	}
	for r, want := range map[AgentTimeRange][2]time.Time{
		"24h":        {at(2026, 2, 28, 0, 30)},
		"7d":         {at(2026, 2, 22, 0, 30)},
		"30d":        {at(2026, 1, 30, 0, 30)},
		"90d":        {at(2025, 12, 1, 0, 30)},
		"today":      {at(2026, 3, 1, 0, 0)},
		"this_month": {at(2026, 3, 1, 0, 0)},
		"last_month": {at(2026, 2, 1, 0, 0), at(2026, 3, 1, 0, 0)},
		"this_year":  {at(2026, 1, 1, 0, 0)},
		"all":        {},
	} {
		t.Run(fmt.Sprint(r), func(t *testing.T) {
			since, until, err := Window(r, rest.Moment{}, rest.Moment{}, now.In(time.FixedZone("elsewhere", -9*3600)))
			require.NoError(t, err)
			require.Equal(t, want, [2]time.Time{since, until}, r)
		})
	}
}
