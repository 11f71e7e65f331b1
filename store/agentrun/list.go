// SPDX-License-Identifier: Apache-2.0

package agentrun

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/timewindow"
)

// listedColumns drops the output and a large context, which lists do not return.
func listedColumns(columns string) string {
	small := "CASE WHEN octet_length(r.context) <= " + strconv.Itoa(store.MaxListedContext) + " THEN r.context ELSE '' END AS context,"
	return strings.NewReplacer("r.output,", "'' AS output,", "r.context,", small).Replace(columns)
}

// selectCandidates selects the newest runs of a window that may match, open or ended as their status
// allows: at most so many, by an index. It returns "" if there can be none.
func selectCandidates(q store.RunQuery, window timewindow.Window, most int, l *sqldb.Args) string {
	open, ended := runrow.CanBeOpen(q.Statuses), runrow.CanHaveEnded(q.Statuses) && len(window.History) > 0
	if !open && !ended {
		return ""
	}
	among := ``
	if q.AgentName != "" {
		among = ` AND r.agent_name = ` + l.Add(sqldb.Text(q.AgentName))
	}
	if q.Before != nil {
		among += ` AND r.id < ` + l.Add(*q.Before)
	}
	first := l.Add(most)
	of := func(columns, table, among string) string {
		return `SELECT * FROM (SELECT ` + listedColumns(columns) + ` FROM ` + table + ` r WHERE r.project_id = $1` + among +
			` ORDER BY r.id DESC LIMIT ` + first + `)` + ` AS ` + table
	}
	var from []string
	if open {
		started := ``
		if q.DeploymentID != uuid.Nil {
			started = ` AND r.deployment_id IS NOT NULL` // a backlog of runs that have not started yet would fill the candidates
		}
		from = append(from, of(runrow.OpenColumns, `open_runs`, among+timewindow.Condition("r.id", window.All, l)+started))
	}
	if ended {
		from = append(from, of(runrow.EndedColumns, `ended_runs`, among+timewindow.DaysCondition("r.id", window, l)+sqldb.ReadableCondition("$1")+runrow.StatusCondition(q.Statuses)))
	}
	return `SELECT * FROM (` + strings.Join(from, ` UNION ALL `) + `) AS u ORDER BY u.id DESC LIMIT ` + first
}

// A list reads as many candidates as its page has rows, or extraCandidates more if not all of them match,
// and then candidateGrowth times as many until the page is full.
const (
	extraCandidates = 4
	candidateGrowth = 8
)

// ListRuns implements store.History. New runs have a higher ID than the runs that are read, and
// ended runs keep their ID. A run that ends during the list was open when the days were read, so its
// day is among them. So the list misses no run that one snapshot would show.
func (s *Store) ListRuns(ctx context.Context, q store.RunQuery) (runs []store.Run, next *uuid.UUID, err error) {
	if q.EnvironmentIDs != nil && len(q.EnvironmentIDs) == 0 {
		return nil, nil, nil
	}
	if q.Search != nil {
		return s.search(ctx, q)
	}
	windows, err := timewindow.List(ctx, s.db, s.db.Lists(), "ended_runs", q.ProjectID, timewindow.Between(q.Since, q.Until), q.Before)
	if err != nil {
		return nil, nil, sqldb.Wrap(err, "listing runs of project %s", q.ProjectID)
	}
	some, limit, left := q.Limit, q.Limit, store.MaxCandidates
	if runrow.QueryCondition("x", q, &sqldb.Args{}) != "" {
		some *= extraCandidates
	}
	for {
		some = min(some, left)
		page, last, err := someRuns(ctx, s.db, q, windows[0], some)
		if err != nil {
			return nil, nil, sqldb.Wrap(err, "listing runs of project %s", q.ProjectID)
		}
		runs, left, q.Limit = append(runs, page...), left-some, q.Limit-len(page)
		if len(runs) == limit && limit > 0 {
			return runs, &runs[limit-1].ID, nil
		}
		switch {
		case last != nil:
			q.Before, some = last, some*candidateGrowth
		case len(windows) == 1:
			return runs, nil, nil
		default:
			first := store.Stamp(uuid.UUID{}, windows[0].All.From, 0)
			q.Before, windows = &first, windows[1:]
		}
		if left == 0 {
			return runs, q.Before, nil
		}
	}
}

// someRuns returns the matching runs among the next candidates of a window, and the last candidate
// unless the page is full; nil if there are no more.
func someRuns(ctx context.Context, db *sqldb.DB, q store.RunQuery, window timewindow.Window, some int) ([]store.Run, *uuid.UUID, error) {
	l := sqldb.Args{Values: []any{q.ProjectID}}
	from := selectCandidates(q, window, some, &l)
	if from == "" {
		return nil, nil, nil
	}
	narrow := runrow.QueryCondition("x", q, &l)
	runs, err := sqldb.Collect(ctx, db.Lists(), runrow.Scan, `SELECT x.* FROM (`+from+`) AS x WHERE x.project_id = $1`+narrow+
		` ORDER BY x.id DESC LIMIT `+l.Add(q.Limit), l.Values...)
	if err != nil || len(runs) == q.Limit || narrow == "" {
		return runs, nil, err
	}
	last, err := lastCandidate(ctx, db, q, window, some)
	return runs, last, err
}

// lastCandidate returns the last of so many candidates of a window, nil if there are fewer.
func lastCandidate(ctx context.Context, db *sqldb.DB, q store.RunQuery, window timewindow.Window, some int) (*uuid.UUID, error) {
	l := sqldb.Args{Values: []any{q.ProjectID}}
	from := selectCandidates(q, window, some, &l)
	id, err := sqldb.ScanUUID(db.Lists().QueryRowContext(ctx, `SELECT x.id FROM (`+from+`) AS x WHERE x.project_id = $1
		ORDER BY x.id DESC LIMIT 1 OFFSET `+l.Add(some-1), l.Values...))
	if err = sqldb.MapNoRows(err); errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return &id, err
}
