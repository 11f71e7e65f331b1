// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// failed narrows ended runs to those of indexes of their own.
const failed = ` AND r.status <> 'completed'`

// byStatus narrows ended runs to those, where all that are looked for are among them.
func byStatus(statuses []store.RunStatus) string {
	if len(statuses) == 0 || slices.Contains(statuses, store.RunCompleted) {
		return ""
	}
	return failed
}

// listedColumns are without the output, which lists do not carry.
func listedColumns(columns string) string {
	return strings.Replace(columns, "r.output", "'' AS output", 1)
}

// Lists of runs read the newest firstWindow days of history first, of which about 14 are days ahead, and then
// windowGrowth times as many days as before.
const (
	firstWindow  = 16
	windowGrowth = 8
)

// listWindows splits a period of a list into windows, the newest first. A list reads one window after the
// other until its page is full, so it locks the partitions of these days only.
func (c *Core) listWindows(ctx context.Context, of period, before *uuid.UUID) ([]period, error) {
	days, parted, err := c.engine.Days(ctx, "ended_runs")
	if err != nil || !parted {
		return []period{of}, err
	}
	last := of.to
	if before != nil {
		last = min(last, store.TimeOf(*before).UnixMicro()+1)
	}
	return windowsOf(days, of, last), nil
}

// windowsOf splits a period into windows of days of history, which are in order, the newest first. The list
// looks at no row from last on, so days from then on do not count.
func windowsOf(days []int64, of period, last int64) (windows []period) {
	days = slices.DeleteFunc(days, func(d int64) bool {
		return d*day.Microseconds() >= last || (d+1)*day.Microseconds() <= of.from
	})
	for size := firstWindow; size < len(days); size *= windowGrowth {
		begin := days[size-1] * day.Microseconds()
		windows, days = append(windows, period{begin, of.to}), days[size:]
		of.to = begin
	}
	return append(windows, of)
}

// candidates selects the newest runs of a window among which a list looks, of all that are open
// or ended, as their status can be: at most so many, found by an index.
func candidates(q store.RunQuery, window period, most int, l *list) string {
	among := ``
	if q.AgentName != "" {
		among = ` AND r.agent_name = ` + l.add(Text(q.AgentName))
	}
	if q.Before != nil {
		among += ` AND r.id < ` + l.add(*q.Before)
	}
	among += inWindow("r.id", window, l)
	past := among + readable("$1") + byStatus(q.Statuses)
	first := l.add(most)
	of := func(columns, table, among string) string {
		return `SELECT * FROM (SELECT ` + listedColumns(columns) + ` FROM ` + table + ` r WHERE r.project_id = $1` + among +
			` ORDER BY r.id DESC LIMIT ` + first + `)` + ` AS ` + table
	}
	var from []string
	if canBeOpen(q.Statuses) {
		from = append(from, of(openRunColumns, `open_runs`, among))
	}
	if canHaveEnded(q.Statuses) {
		from = append(from, of(endedRunColumns, `ended_runs`, past))
	}
	return `SELECT * FROM (` + strings.Join(from, ` UNION ALL `) + `) AS u ORDER BY u.id DESC LIMIT ` + first
}

// canBeOpen and canHaveEnded say of the statuses that are looked for, none for any, where there may
// be some.
func canBeOpen[S status](statuses []S) bool {
	return len(statuses) == 0 || slices.ContainsFunc(statuses, func(s S) bool { return !s.Terminal() })
}

func canHaveEnded[S status](statuses []S) bool {
	return len(statuses) == 0 || slices.ContainsFunc(statuses, S.Terminal)
}

// status is one of runs, or of connector runs.
type status interface {
	~string
	Terminal() bool
}

// narrowed is the condition on candidates of an alias, "" where all of them match.
func narrowed(alias string, q store.RunQuery, l *list) (narrow string) {
	if q.EnvironmentIDs != nil {
		narrow += ` AND ` + alias + `.environment_id IN ` + l.ids(q.EnvironmentIDs)
	}
	if len(q.Statuses) > 0 {
		narrow += ` AND ` + alias + `.status IN ` + texts(l, q.Statuses)
	}
	if q.TestName != "" {
		narrow += ` AND ` + alias + `.test_name = ` + l.add(testNameOf(q.TestName))
	}
	for _, of := range []struct {
		column string
		id     uuid.UUID
	}{{"deployment_id", q.DeploymentID}, {"connector_id", q.ConnectorID}, {"connector_run_id", q.ConnectorRunID}} {
		if of.id != uuid.Nil {
			narrow += ` AND ` + alias + `.` + of.column + ` = ` + l.add(of.id)
		}
	}
	return narrow
}

// A list looks among as many runs as its page has places, or a few more where not all of them
// match, and then among looksMore times as many, until the page is full.
const (
	looksFirst = 4
	looksMore  = 8
)

// ListRuns implements store.History. What comes in meanwhile has a greater id than what is
// looked at, and what ends keeps its own: so no run is missed that one snapshot would show.
func (c *Core) ListRuns(ctx context.Context, q store.RunQuery) (runs []store.Run, next *uuid.UUID, err error) {
	if q.EnvironmentIDs != nil && len(q.EnvironmentIDs) == 0 {
		return nil, nil, nil
	}
	if q.Search != nil {
		return c.searchRuns(ctx, q)
	}
	windows, err := c.listWindows(ctx, period{boundOf(q.Since, always), boundOf(q.Until, never)}, q.Before)
	if err != nil {
		return nil, nil, wrap(err, "listing runs of project %s", q.ProjectID)
	}
	some, limit, left := q.Limit, q.Limit, store.MaxCandidates
	if narrowed("x", q, &list{}) != "" {
		some *= looksFirst
	}
	for {
		some = min(some, left)
		page, last, err := c.someRuns(ctx, q, windows[0], some)
		if err != nil {
			return nil, nil, wrap(err, "listing runs of project %s", q.ProjectID)
		}
		runs, left, q.Limit = append(runs, page...), left-some, q.Limit-len(page)
		if len(runs) == limit && limit > 0 {
			return runs, &runs[limit-1].ID, nil
		}
		switch {
		case last != nil:
			q.Before, some = last, some*looksMore
		case len(windows) == 1:
			return runs, nil, nil
		default:
			first := store.Stamp(uuid.UUID{}, windows[0].from, 0)
			q.Before, windows = &first, windows[1:]
		}
		if left == 0 {
			return runs, q.Before, nil
		}
	}
}

// someRuns are those of the next so many candidates of a window that match, and the last one of these unless
// the page is full; nil where there are no more.
func (c *Core) someRuns(ctx context.Context, q store.RunQuery, window period, some int) ([]store.Run, *uuid.UUID, error) {
	l := list{args: []any{q.ProjectID}}
	from, narrow := candidates(q, window, some, &l), narrowed("x", q, &l)
	runs, err := collect(ctx, c.engine.Lists(), scanRun, `SELECT x.* FROM (`+from+`) AS x WHERE x.project_id = $1`+narrow+
		` ORDER BY x.id DESC LIMIT `+l.add(q.Limit), l.args...)
	if err != nil || len(runs) == q.Limit || narrow == "" {
		return runs, nil, err
	}
	last, err := c.lastCandidate(ctx, q, window, some)
	return runs, last, err
}

// lastCandidate is the last of so many runs of a window that a list looks at, nil when there are fewer.
func (c *Core) lastCandidate(ctx context.Context, q store.RunQuery, window period, some int) (*uuid.UUID, error) {
	l := list{args: []any{q.ProjectID}}
	from := candidates(q, window, some, &l)
	id, err := scanID(c.engine.Lists().QueryRowContext(ctx, `SELECT x.id FROM (`+from+`) AS x WHERE x.project_id = $1
		ORDER BY x.id DESC LIMIT 1 OFFSET `+l.add(some-1), l.args...))
	if err = found(err); errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return &id, err
}
