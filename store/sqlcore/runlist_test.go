// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWindowsOf: windows follow each other, each reaches over more days, and the last one has no other end than
// the period.
func TestWindowsOf(t *testing.T) {
	t.Parallel()
	days := func(newest, oldest int64) (days []int64) {
		for d := newest; d >= oldest; d-- {
			days = append(days, d)
		}
		return days
	}
	at := func(day int64) int64 { return day * 86_400_000_000 }
	for name, row := range map[string]struct {
		days []int64
		of   period
		last int64
		want []period
	}{
		"no day":                 {nil, period{always, never}, never, []period{{always, never}}},
		"few days":               {days(16, 1), period{always, never}, never, []period{{always, never}}},
		"one day more":           {days(17, 1), period{always, never}, never, []period{{at(2), never}, {always, at(2)}}},
		"a year":                 {days(400, 1), period{always, never}, never, []period{{at(385), never}, {at(257), at(385)}, {always, at(257)}}},
		"days that are missing":  {append(days(116, 101), 16, 1), period{always, never}, never, []period{{at(101), never}, {always, at(101)}}},
		"before a run":           {days(400, 1), period{always, never}, at(30) + 5, []period{{at(15), never}, {always, at(15)}}},
		"from a day on":          {days(400, 1), period{at(390) + 7, never}, never, []period{{at(390) + 7, never}}},
		"until a day":            {days(400, 1), period{always, at(20)}, at(20), []period{{at(4), at(20)}, {always, at(4)}}},
		"between two days":       {days(400, 1), period{at(10) + 7, at(40)}, at(40), []period{{at(24), at(40)}, {at(10) + 7, at(24)}}},
		"no day is in between":   {days(400, 301), period{at(10), at(40)}, at(40), []period{{at(10), at(40)}}},
		"a run before all of it": {days(400, 301), period{always, never}, at(20), []period{{always, never}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, windowsOf(row.days, row.of, row.last))
		})
	}
}
