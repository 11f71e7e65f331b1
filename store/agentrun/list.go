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

// windowPart is the part of a list that is read at once: the newest runs of a window, at most most. Older runs than first are left
// out unless it is nil.
type windowPart struct {
	window timewindow.Window
	first  *uuid.UUID
	most   int
}

// selectCandidates selects the runs of a part that may match, open or ended as their status allows. It returns "" if there can be
// none.
func selectCandidates(q store.RunQuery, of windowPart, l *sqldb.Args) string {
	window := of.window
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
	if of.first != nil {
		among += ` AND r.id >= ` + l.Add(*of.first)
	}
	most := l.Add(of.most)
	newest := func(columns, table, among string) string {
		return `SELECT * FROM (SELECT ` + listedColumns(columns) + ` FROM ` + table + ` r WHERE r.project_id = $1` + among +
			` ORDER BY r.id DESC LIMIT ` + most + `)` + ` AS ` + table
	}
	var from []string
	if open {
		started := ``
		if q.DeploymentID != uuid.Nil {
			started = ` AND r.deployment_id IS NOT NULL` // a backlog of runs that have not started yet would fill the candidates
		}
		from = append(from, newest(runrow.OpenColumns, `open_runs`, among+timewindow.Condition("r.id", window.All, l)+started))
	}
	if ended {
		from = append(from, newest(runrow.EndedColumns, `ended_runs`, among+timewindow.DaysCondition("r.id", window, l)+sqldb.ReadableCondition("$1")+runrow.StatusCondition(q.Statuses)))
	}
	return `SELECT * FROM (` + strings.Join(from, ` UNION ALL `) + `) AS u ORDER BY u.id DESC LIMIT ` + most
}

// firstCandidate returns the last open run that a list may read, nil if it may read all of them. No index has the agent or the
// deployment of open runs, so a list of these reads all open runs up to its page.
func (s *Store) firstCandidate(ctx context.Context, q store.RunQuery) (*uuid.UUID, error) {
	if q.AgentName == "" && q.DeploymentID == uuid.Nil || !runrow.CanBeOpen(q.Statuses) {
		return nil, nil
	}
	l := sqldb.Args{Values: []any{q.ProjectID}}
	within := timewindow.Condition("r.id", timewindow.Between(q.Since, q.Until), &l)
	if q.Before != nil {
		within += ` AND r.id < ` + l.Add(*q.Before)
	}
	return idOrNil(s.db.Lists().QueryRowContext(ctx, `SELECT r.id FROM open_runs r WHERE r.project_id = $1`+within+`
		ORDER BY r.id DESC LIMIT 1 OFFSET `+l.Add(store.MaxCandidates-1), l.Values...))
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
	first, err := s.firstCandidate(ctx, q)
	if err != nil {
		return nil, nil, sqldb.Wrap(err, "listing runs of project %s", q.ProjectID)
	}
	some, limit, left := q.Limit, q.Limit, store.MaxCandidates
	if runrow.QueryCondition("x", q, &sqldb.Args{}) != "" {
		some *= extraCandidates
	}
	for {
		some = min(some, left)
		page, last, err := someRuns(ctx, s.db, q, windowPart{windows[0], first, some})
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
		case len(windows) == 1 || first != nil && store.TimeOf(*first).UnixMicro() >= windows[0].All.From:
			return runs, first, nil
		default:
			begin := store.Stamp(uuid.UUID{}, windows[0].All.From, 0)
			q.Before, windows = &begin, windows[1:]
		}
		if left == 0 {
			return runs, q.Before, nil
		}
	}
}

// someRuns returns the matching candidates of a part, and the last candidate unless the page is full; nil if there are no more.
func someRuns(ctx context.Context, db *sqldb.DB, q store.RunQuery, of windowPart) ([]store.Run, *uuid.UUID, error) {
	l := sqldb.Args{Values: []any{q.ProjectID}}
	from := selectCandidates(q, of, &l)
	if from == "" {
		return nil, nil, nil
	}
	narrow := runrow.QueryCondition("x", q, &l)
	runs, err := sqldb.Collect(ctx, db.Lists(), runrow.Scan, `SELECT x.* FROM (`+from+`) AS x WHERE x.project_id = $1`+narrow+
		` ORDER BY x.id DESC LIMIT `+l.Add(q.Limit), l.Values...)
	if err != nil || len(runs) == q.Limit || narrow == "" {
		return runs, nil, err
	}
	last, err := lastCandidate(ctx, db, q, of)
	return runs, last, err
}

// lastCandidate returns the last candidate of a part, nil if the part has fewer than it may.
func lastCandidate(ctx context.Context, db *sqldb.DB, q store.RunQuery, of windowPart) (*uuid.UUID, error) {
	l := sqldb.Args{Values: []any{q.ProjectID}}
	from := selectCandidates(q, of, &l)
	return idOrNil(db.Lists().QueryRowContext(ctx, `SELECT x.id FROM (`+from+`) AS x WHERE x.project_id = $1
		ORDER BY x.id DESC LIMIT 1 OFFSET `+l.Add(of.most-1), l.Values...))
}

// idOrNil reads an ID, nil if there is no row.
func idOrNil(row sqldb.Scanner) (*uuid.UUID, error) {
	id, err := sqldb.ScanUUID(row)
	if err = sqldb.MapNoRows(err); errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return &id, err
}
