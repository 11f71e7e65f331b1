// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// A list without a time window reads the first firstWindow days of a project's history, and then
// windowGrowth times as many days each time.
const (
	firstWindow  = 16
	windowGrowth = 8
)

// listWindow is the part of a list that is read at once.
type listWindow struct {
	// all is the period of the window. Open rows are read from all of it.
	all period
	// history are the days with history in it, in order.
	history []period
}

// listWindows splits the period of a list into windows, newest first. A list reads one window after
// the other until its page is full. So it locks only the partitions of days in these windows on
// which the project has history.
func (c *Core) listWindows(
	ctx context.Context, q Queryer, table string, project uuid.UUID, of period, before *uuid.UUID,
) ([]listWindow, error) {
	days, parted, err := c.engine.ProjectDays(ctx, q, table, project)
	if err != nil || !parted {
		return []listWindow{{of, []period{of}}}, wrap(err, "reading the days of project %s", project)
	}
	last := of.to
	if before != nil {
		last = min(last, store.TimeOf(*before).UnixMicro()+1)
	}
	return windowsOf(days, of, last), nil
}

// windowsOf splits a period into windows of days with history, which are ordered newest first. The
// list reads no row from last on, so later days do not count.
func windowsOf(days []int64, of period, last int64) (windows []listWindow) {
	groups := splitDays(daysWithin(days, period{of.from, last}))
	for i, group := range groups {
		next := period{of.from, of.to}
		if i < len(groups)-1 {
			next.from = dayStart(group[len(group)-1])
		}
		windows = append(windows, listWindow{next, joinDays(group, next)})
		of.to = next.from
	}
	return windows
}

// historyWindows splits the period of a read of history into windows, oldest first.
func (c *Core) historyWindows(ctx context.Context, q Queryer, table string, project uuid.UUID, of period) (windows []listWindow, err error) {
	days, parted, err := c.engine.ProjectDays(ctx, q, table, project)
	if err != nil || !parted {
		return []listWindow{{of, []period{of}}}, wrap(err, "reading the days of project %s", project)
	}
	slices.Reverse(days)
	for _, group := range splitDays(daysWithin(days, of)) {
		if periods := joinDays(group, of); len(periods) > 0 {
			windows = append(windows, listWindow{period{periods[0].from, of.to}, periods})
		}
	}
	return windows, nil
}

// firstSince returns the first ID of a project in a history table from a time on, the zero ID if
// there is none.
func (c *Core) firstSince(ctx context.Context, table string, project uuid.UUID, from int64) (uuid.UUID, error) {
	windows, err := c.historyWindows(ctx, c.engine.Lists(), table, project, period{from, never})
	for _, window := range windows {
		l := argList{args: []any{project}}
		ids, err := collect(ctx, c.engine.Lists(), scanUUID, `SELECT r.id FROM `+table+` r WHERE r.project_id = $1`+dayCondition("r.id", window, &l)+` ORDER BY r.id LIMIT 1`, l.args...)
		if err != nil || len(ids) > 0 {
			return slices.Concat(ids, []uuid.UUID{uuid.Nil})[0], err
		}
	}
	return uuid.Nil, err
}

// nextSince returns when the next row of a project in a history table was queued, never without any.
func (c *Core) nextSince(ctx context.Context, table string, project uuid.UUID, from int64) (int64, error) {
	id, err := c.firstSince(ctx, table, project, from)
	if err != nil || id == uuid.Nil {
		return never, err
	}
	return store.TimeOf(id).UnixMicro(), nil
}

// daysWithin returns the days that overlap a period.
func daysWithin(days []int64, of period) []int64 {
	return slices.DeleteFunc(days, func(d int64) bool { return dayStart(d) >= of.to || dayStart(d+1) <= of.from })
}

// splitDays splits days into groups of growing size, at least one.
func splitDays(days []int64) (groups [][]int64) {
	for size := firstWindow; size < len(days); size *= windowGrowth {
		groups, days = append(groups, days[:size]), days[size:]
	}
	return append(groups, days)
}

// joinDays returns the periods of days in order, within a period. Consecutive days are one period.
func joinDays(days []int64, within period) (periods []period) {
	for _, d := range slices.Sorted(slices.Values(days)) {
		next := period{dayStart(d), dayStart(d + 1)}.overlap(within)
		if last := len(periods) - 1; last >= 0 && periods[last].to == next.from {
			periods[last].to = next.to
			continue
		}
		periods = append(periods, next)
	}
	return periods
}

// clipPeriods returns the parts of periods within a period.
func clipPeriods(periods []period, within period) (clipped []period) {
	for _, p := range periods {
		if p = p.overlap(within); !p.isEmpty() {
			clipped = append(clipped, p)
		}
	}
	return clipped
}

// dayCondition limits to IDs of history in a window. The planner skips the partitions of other days. The
// last alternative matches no ID. It keeps the planner from a search by the bounds of the days alone,
// because the bounds look more selective than they are.
func dayCondition(id string, window listWindow, l *argList) string {
	if len(window.history) == 0 {
		return ` AND FALSE`
	}
	text := inWindow(id, window.all, l)
	if len(window.history) == 1 && window.history[0] == window.all {
		return text
	}
	text += ` AND (`
	for _, p := range window.history {
		text += strings.TrimPrefix(inWindow(id, p, l), ` AND `) + ` OR `
	}
	return text + id + ` = '` + uuid.Nil.String() + `')`
}
