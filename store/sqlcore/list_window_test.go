// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"testing"

	"github.com/stretchr/testify/require"
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
	whole := period{always, never}
	between := func(from, to int64) []period { return []period{{from, to}} }
	for name, row := range map[string]struct {
		days []int64
		of   period
		last int64
		want []listWindow
	}{
		"no day":       {nil, whole, never, []listWindow{{whole, nil}}},
		"few days":     {days(16, 1), whole, never, []listWindow{{whole, between(at(1), at(17))}}},
		"one more day": {days(17, 1), whole, never, []listWindow{{period{at(2), never}, between(at(2), at(18))}, {period{always, at(2)}, between(at(1), at(2))}}},
		"a year": {days(400, 1), whole, never, []listWindow{
			{period{at(385), never}, between(at(385), at(401))}, {period{at(257), at(385)}, between(at(257), at(385))}, {period{always, at(257)}, between(at(1), at(257))},
		}},
		"missing days": {append(days(116, 103), 50, 16, 15, 1), whole, never, []listWindow{
			{period{at(16), never}, []period{{at(16), at(17)}, {at(50), at(51)}, {at(103), at(117)}}}, {period{always, at(16)}, []period{{at(1), at(2)}, {at(15), at(16)}}},
		}},
		"before a run": {days(400, 1), whole, at(30) + 5, []listWindow{
			{period{at(15), never}, between(at(15), at(31))}, {period{always, at(15)}, between(at(1), at(15))},
		}},
		"from a day on":         {days(400, 1), period{at(390) + 7, never}, never, []listWindow{{period{at(390) + 7, never}, between(at(390)+7, at(401))}}},
		"until a day":           {days(400, 1), period{always, at(20)}, at(20), []listWindow{{period{at(4), at(20)}, between(at(4), at(20))}, {period{always, at(4)}, between(at(1), at(4))}}},
		"between two days":      {days(400, 1), period{at(10) + 7, at(40) - 3}, at(40) - 3, []listWindow{{period{at(24), at(40) - 3}, between(at(24), at(40)-3)}, {period{at(10) + 7, at(24)}, between(at(10)+7, at(24))}}},
		"no day in between":     {days(400, 301), period{at(10), at(40)}, at(40), []listWindow{{period{at(10), at(40)}, nil}}},
		"a run before all days": {days(400, 301), whole, at(20), []listWindow{{whole, nil}}},
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
		window listWindow
		want   string
		args   []any
	}{
		"none":    {listWindow{period{1, 9}, nil}, ` AND FALSE`, nil},
		"all":     {listWindow{period{always, never}, []period{{always, never}}}, ``, nil},
		"whole":   {listWindow{period{1, 9}, []period{{1, 9}}}, ` AND r.id >= id_at($1) AND r.id < id_at($2)`, []any{int64(1), int64(9)}},
		"one":     {listWindow{period{1, never}, []period{{1, 2}}}, ` AND r.id >= id_at($1) AND (r.id >= id_at($2) AND r.id < id_at($3)` + none, []any{int64(1), int64(1), int64(2)}},
		"several": {listWindow{period{always, never}, []period{{1, 2}, {3, 4}}}, ` AND (r.id >= id_at($1) AND r.id < id_at($2) OR r.id >= id_at($3) AND r.id < id_at($4)` + none, []any{int64(1), int64(2), int64(3), int64(4)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l argList
			require.Equal(t, row.want, dayCondition("r.id", row.window, &l))
			require.Equal(t, row.args, l.args)
		})
	}
}
