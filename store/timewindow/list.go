// SPDX-License-Identifier: Apache-2.0

package timewindow

import (
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// A list without a time window reads the first firstWindow days of a project's history, and then
// windowGrowth times as many days each time.
const (
	firstWindow  = 16
	windowGrowth = 8
)

// Window is the part of a list that is read at once.
type Window struct {
	// All is the period of the window. Open rows are read from all of it.
	All Period
	// History are the days with history in it, in order.
	History []Period
}

// List splits the period of a list into windows, newest first. A list reads one window after
// the other until its page is full. So it locks only the partitions of days in these windows on
// which the project has history.
func List(
	ctx context.Context, d *sqldb.DB, q sqldb.Queryer, table string, project uuid.UUID, of Period, before *uuid.UUID,
) ([]Window, error) {
	days, parted, err := d.ProjectDays(ctx, q, table, project)
	if err != nil || !parted {
		return []Window{{of, []Period{of}}}, sqldb.Wrap(err, "reading the days of project %s", project)
	}
	last := of.To
	if before != nil {
		last = min(last, store.TimeOf(*before).UnixMicro()+1)
	}
	return windowsOf(days, of, last), nil
}

// windowsOf splits a period into windows of days with history, which are ordered newest first. The
// list reads no row from last on, so later days do not count.
func windowsOf(days []int64, of Period, last int64) (windows []Window) {
	groups := splitDays(daysWithin(days, Period{of.From, last}))
	for i, group := range groups {
		next := Period{of.From, of.To}
		if i < len(groups)-1 {
			next.From = sqldb.DayStart(group[len(group)-1])
		}
		windows = append(windows, Window{next, joinDays(group, next)})
		of.To = next.From
	}
	return windows
}

// OfHistory splits the period of a read of history into windows, oldest first.
func OfHistory(ctx context.Context, d *sqldb.DB, q sqldb.Queryer, table string, project uuid.UUID, of Period) (windows []Window, err error) {
	days, parted, err := d.ProjectDays(ctx, q, table, project)
	if err != nil || !parted {
		return []Window{{of, []Period{of}}}, sqldb.Wrap(err, "reading the days of project %s", project)
	}
	slices.Reverse(days)
	for _, group := range splitDays(daysWithin(days, of)) {
		if periods := joinDays(group, of); len(periods) > 0 {
			windows = append(windows, Window{Period{periods[0].From, of.To}, periods})
		}
	}
	return windows, nil
}

// FirstSince returns the first ID of a project in a history table from a time on, the zero ID if
// there is none.
func FirstSince(ctx context.Context, d *sqldb.DB, table string, project uuid.UUID, from int64) (uuid.UUID, error) {
	windows, err := OfHistory(ctx, d, d.Lists(), table, project, Period{from, Never})
	for _, window := range windows {
		l := sqldb.Args{Values: []any{project}}
		ids, err := sqldb.Collect(ctx, d.Lists(), sqldb.ScanUUID, `SELECT r.id FROM `+table+` r WHERE r.project_id = $1`+DaysCondition("r.id", window, &l)+` ORDER BY r.id LIMIT 1`, l.Values...)
		if err != nil || len(ids) > 0 {
			return slices.Concat(ids, []uuid.UUID{uuid.Nil})[0], err
		}
	}
	return uuid.Nil, err
}

// NextSince returns when the next row of a project in a history table was queued, never without any.
func NextSince(ctx context.Context, d *sqldb.DB, table string, project uuid.UUID, from int64) (int64, error) {
	id, err := FirstSince(ctx, d, table, project, from)
	if err != nil || id == uuid.Nil {
		return Never, err
	}
	return store.TimeOf(id).UnixMicro(), nil
}

// daysWithin returns the days that overlap a period.
func daysWithin(days []int64, of Period) []int64 {
	return slices.DeleteFunc(days, func(d int64) bool { return sqldb.DayStart(d) >= of.To || sqldb.DayStart(d+1) <= of.From })
}

// splitDays splits days into groups of growing size, at least one.
func splitDays(days []int64) (groups [][]int64) {
	for size := firstWindow; size < len(days); size *= windowGrowth {
		groups, days = append(groups, days[:size]), days[size:]
	}
	return append(groups, days)
}

// joinDays returns the periods of days in order, within a period. Consecutive days are one period.
func joinDays(days []int64, within Period) (periods []Period) {
	for _, d := range slices.Sorted(slices.Values(days)) {
		next := Period{sqldb.DayStart(d), sqldb.DayStart(d + 1)}.Overlap(within)
		if last := len(periods) - 1; last >= 0 && periods[last].To == next.From {
			periods[last].To = next.To
			continue
		}
		periods = append(periods, next)
	}
	return periods
}

// Clip returns the parts of periods within a period.
func Clip(periods []Period, within Period) (clipped []Period) {
	for _, p := range periods {
		if p = p.Overlap(within); !p.IsEmpty() {
			clipped = append(clipped, p)
		}
	}
	return clipped
}

// DaysCondition limits to IDs of history in a window. The planner skips the partitions of other days. The
// last alternative matches no ID. It keeps the planner from a search by the bounds of the days alone,
// because the bounds look more selective than they are.
func DaysCondition(id string, window Window, l *sqldb.Args) string {
	if len(window.History) == 0 {
		return ` AND FALSE`
	}
	text := Condition(id, window.All, l)
	if len(window.History) == 1 && window.History[0] == window.All {
		return text
	}
	text += ` AND (`
	for _, p := range window.History {
		text += strings.TrimPrefix(Condition(id, p, l), ` AND `) + ` OR `
	}
	return text + id + ` = '` + uuid.Nil.String() + `')`
}
