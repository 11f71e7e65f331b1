// SPDX-License-Identifier: Apache-2.0

package timewindow

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Windows are adjacent, each has more days with history, and the last one ends with the period.
func TestWindowsOf_CoversPeriod(t *testing.T) {
	t.Parallel()
	days := func(newest, oldest int64) (days []int64) {
		for d := newest; d >= oldest; d-- {
			days = append(days, d)
		}
		return days
	}
	at := func(day int64) int64 { return day * 86_400_000_000 }
	whole := Period{Always, Never}
	between := func(from, to int64) []Period { return []Period{{from, to}} }
	for name, row := range map[string]struct {
		days []int64
		of   Period
		last int64
		want []Window
	}{
		"no day":       {nil, whole, Never, []Window{{whole, nil}}},
		"few days":     {days(16, 1), whole, Never, []Window{{whole, between(at(1), at(17))}}},
		"one more day": {days(17, 1), whole, Never, []Window{{Period{at(2), Never}, between(at(2), at(18))}, {Period{Always, at(2)}, between(at(1), at(2))}}},
		"a year": {days(400, 1), whole, Never, []Window{
			{Period{at(385), Never}, between(at(385), at(401))}, {Period{at(257), at(385)}, between(at(257), at(385))}, {Period{Always, at(257)}, between(at(1), at(257))},
		}},
		"missing days": {append(days(116, 103), 50, 16, 15, 1), whole, Never, []Window{
			{Period{at(16), Never}, []Period{{at(16), at(17)}, {at(50), at(51)}, {at(103), at(117)}}}, {Period{Always, at(16)}, []Period{{at(1), at(2)}, {at(15), at(16)}}},
		}},
		"before a run": {days(400, 1), whole, at(30) + 5, []Window{
			{Period{at(15), Never}, between(at(15), at(31))}, {Period{Always, at(15)}, between(at(1), at(15))},
		}},
		"from a day on":         {days(400, 1), Period{at(390) + 7, Never}, Never, []Window{{Period{at(390) + 7, Never}, between(at(390)+7, at(401))}}},
		"until a day":           {days(400, 1), Period{Always, at(20)}, at(20), []Window{{Period{at(4), at(20)}, between(at(4), at(20))}, {Period{Always, at(4)}, between(at(1), at(4))}}},
		"between two days":      {days(400, 1), Period{at(10) + 7, at(40) - 3}, at(40) - 3, []Window{{Period{at(24), at(40) - 3}, between(at(24), at(40)-3)}, {Period{at(10) + 7, at(24)}, between(at(10)+7, at(24))}}},
		"no day in between":     {days(400, 301), Period{at(10), at(40)}, at(40), []Window{{Period{at(10), at(40)}, nil}}},
		"a run before all days": {days(400, 301), whole, at(20), []Window{{whole, nil}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, windowsOf(row.days, row.of, row.last))
		})
	}
}

// The condition has an alternative for each period of history, unless that is the whole window.
func TestOnDays_MatchesIDsOfHistory(t *testing.T) {
	t.Parallel()
	const none = ` OR r.id = '00000000-0000-0000-0000-000000000000')`
	for name, row := range map[string]struct {
		window Window
		want   string
		args   []any
	}{
		"none":    {Window{Period{1, 9}, nil}, ` AND FALSE`, nil},
		"all":     {Window{Period{Always, Never}, []Period{{Always, Never}}}, ``, nil},
		"whole":   {Window{Period{1, 9}, []Period{{1, 9}}}, ` AND r.id >= id_at($1) AND r.id < id_at($2)`, []any{int64(1), int64(9)}},
		"one":     {Window{Period{1, Never}, []Period{{1, 2}}}, ` AND r.id >= id_at($1) AND (r.id >= id_at($2) AND r.id < id_at($3)` + none, []any{int64(1), int64(1), int64(2)}},
		"several": {Window{Period{Always, Never}, []Period{{1, 2}, {3, 4}}}, ` AND (r.id >= id_at($1) AND r.id < id_at($2) OR r.id >= id_at($3) AND r.id < id_at($4)` + none, []any{int64(1), int64(2), int64(3), int64(4)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l sqldb.Args
			require.Equal(t, row.want, DaysCondition("r.id", row.window, &l))
			require.Equal(t, row.args, l.Values)
		})
	}
}
