// SPDX-License-Identifier: Apache-2.0

package searchindex

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/timewindow"
)

const (
	// searchedAtOnce is the number of runs that a search reads at a time.
	searchedAtOnce = 50
	// firstCandidates is the number of candidates that a search requests at first, and
	// maxCandidatesAtOnce at most at a time.
	firstCandidates     = 2 * searchedAtOnce
	maxCandidatesAtOnce = 20 * searchedAtOnce
)

// Query selects the runs of a search.
type Query struct {
	store.Search
	Project uuid.UUID
	// Window is the period of queueing.
	Window timewindow.Period
	// Environment, AgentName and TestName are known fields of every match, or the zero ID and "".
	// Statuses are the possible statuses, none for any.
	Environment         uuid.UUID
	AgentName, TestName string
	Statuses            []store.RunStatus
	// Narrow returns a condition on open or ended runs r that selects the runs to read.
	Narrow func(l *sqldb.Args, ended bool) string
}

// Search is a search through runs of a project, newest first.
type Search struct {
	Query
	db     *sqldb.DB
	engine Engine
	// slots has a slot for each search that reads.
	slots chan struct{}
	// crowded, unless nil, is the partition of the index with so many matching entries that entries
	// are scanned by key.
	crowded *uuid.UUID
	// sparse, unless nil, is a partition where that scan has found few.
	sparse *uuid.UUID
	// exhausted means that the maximum number of runs was read.
	exhausted bool
	// begun is the start of the search. waited is the time spent waiting for a slot.
	begun  time.Time
	waited time.Duration
}

// NewSearch returns a search. Its agent, variant and status narrow the query.
func (s *Store) NewSearch(q Query) *Search {
	of := q.Search
	q.AgentName, q.TestName = cmp.Or(q.AgentName, of.AgentName), cmp.Or(q.TestName, of.TestName)
	q.Statuses = slices.Compact(slices.Sorted(slices.Values(q.Statuses)))
	if of.Status != "" && len(q.Statuses) != 1 {
		q.Statuses = []store.RunStatus{of.Status}
	}
	return &Search{Query: q, db: s.db, engine: s.engine, slots: s.slots, begun: time.Now()}
}

// errSearchTimeout means that the time of a search is over.
var errSearchTimeout = errors.New("the search has timed out")

// hasTimedOut reports whether the time is over.
func (s *Search) hasTimedOut() bool { return s.Search.Left != nil && s.Search.Left() <= 0 }

// readTimed runs fn, which reads, with one part of the remaining time. Concurrent searches leave a connection
// for other lists. The error is errSearchTimeout if the time is over.
func (s *Search) readTimed(ctx context.Context, part time.Duration, fn func(ctx context.Context) error) error {
	within, cancel := s.withTimeLimit(ctx, part)
	defer cancel()
	if within.Err() != nil && ctx.Err() == nil {
		return errSearchTimeout
	}
	if err := s.acquireSlot(within); err != nil {
		return err
	}
	defer func() { <-s.slots }()
	err := fn(within)
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		return errSearchTimeout
	}
	return err
}

// acquireSlot waits for a slot among the searches that read.
func (s *Search) acquireSlot(ctx context.Context) error {
	begun := time.Now()
	defer func() { s.waited += time.Since(begun) }()
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// timeoutError returns ErrSearchBusy if more than half of the time went to waiting for other searches,
// and otherwise ErrSearchTooBroad.
func (s *Search) timeoutError() error {
	if 2*s.waited > time.Since(s.begun) {
		return store.ErrSearchBusy
	}
	return store.ErrSearchTooBroad
}

// eachMatch passes matches to take, newest first, until take has enough or the search must end. It
// returns the last run that was read; nil at the end. ErrSearchTooBroad and ErrSearchBusy mean that
// no run could be read in time.
func (s *Search) eachMatch(ctx context.Context, before *uuid.UUID, take func(store.Searched) (enough bool, err error)) (*uuid.UUID, error) {
	looked, left, some := before, store.MaxCandidates, firstCandidates
	for {
		some = min(some, left)
		found, err := s.candidates(ctx, looked, some)
		if err != nil {
			return s.resultOnError(err, before, looked)
		}
		for _, piece := range found.pieces {
			last, enough, err := s.matchPiece(ctx, piece, take)
			if last != nil {
				looked = last
			}
			if err != nil {
				return s.resultOnError(err, before, looked)
			}
			if enough {
				return looked, nil
			}
		}
		switch left -= found.number; {
		case found.number < some && found.to == nil:
			return nil, nil
		case found.number < some:
			looked = found.to
		}
		if s.exhausted = left == 0; s.exhausted || s.hasTimedOut() {
			return looked, nil
		}
		some = min(2*some, maxCandidatesAtOnce)
	}
}

// resultOnError returns the result of a search that ends with an error. The end of its time is no error
// unless nothing was read.
func (s *Search) resultOnError(err error, before, looked *uuid.UUID) (*uuid.UUID, error) {
	switch {
	case !errors.Is(err, errSearchTimeout):
		return nil, err
	case looked == before:
		return nil, s.timeoutError()
	}
	return looked, nil
}

// matchPiece passes the matching runs of a piece to take. It returns the last run that was read, and
// whether the search ends.
func (s *Search) matchPiece(ctx context.Context, piece []uuid.UUID, take func(store.Searched) (enough bool, err error)) (last *uuid.UUID, enough bool, err error) {
	var runs map[uuid.UUID]store.Searched
	err = s.readTimed(ctx, 1, func(ctx context.Context) (err error) {
		runs, err = readSearched(ctx, s.db, s.db.Lists(), s.Project, piece, s.runCondition)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	within, cancel := s.withTimeLimit(ctx, 1)
	defer cancel()
	for _, id := range piece {
		run, there := runs[id]
		matches := there && s.Search.Match(within, run)
		if within.Err() != nil && !matches { // no match then
			return last, false, context.Cause(within)
		}
		last = &id
		if matches {
			if enough, err := take(run); err != nil || enough {
				return last, enough, err
			}
		}
		if s.hasTimedOut() {
			return last, true, nil
		}
	}
	return last, false, nil
}

// withTimeLimit returns a context that ends with one part of the remaining time, with the cause
// errSearchTimeout.
func (s *Search) withTimeLimit(ctx context.Context, part time.Duration) (context.Context, context.CancelFunc) {
	if s.Search.Left == nil {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, s.Search.Left()/part, errSearchTimeout)
}

// runCondition returns the condition on runs r to read.
func (s *Search) runCondition(l *sqldb.Args, ended bool) string {
	text := s.Narrow(l, ended)
	if s.Search.AgentName != "" {
		text += ` AND r.agent_name = ` + l.Add(sqldb.Text(s.Search.AgentName))
	}
	if s.Search.TestName != "" {
		text += ` AND r.test_name = ` + l.Add(runrow.StoredTestName(s.Search.TestName))
	}
	if s.Search.Status != "" {
		text += ` AND r.status = ` + l.Add(sqldb.Text(string(s.Search.Status)))
	}
	return text
}

// candidateRuns are runs that may match.
type candidateRuns struct {
	// pieces are the candidates in order, split into reads. number is their total number.
	pieces [][]uuid.UUID
	number int
	// to, unless nil, is the lowest ID of the complete part of the candidates.
	to *uuid.UUID
}

// candidates returns the newest runs that may match, at most so many. Finding them and their sizes
// has half of the remaining time, so that time remains to read them.
func (s *Search) candidates(ctx context.Context, before *uuid.UUID, most int) (out candidateRuns, err error) {
	var ids []uuid.UUID
	if err := s.readTimed(ctx, 2, func(ctx context.Context) (err error) {
		ids, out.to, err = s.newestCandidates(ctx, before, most)
		return err
	}); err != nil {
		return out, err
	}
	if out.number = len(ids); out.number == 0 {
		return out, nil
	}
	return out, s.readTimed(ctx, 2, func(ctx context.Context) (err error) {
		out.pieces, err = s.splitPieces(ctx, ids, max(searchedAtOnce, most/2)) // few large reads if there are many candidates
		return err
	})
}

// newestCandidates returns candidates, with the lowest ID of their complete part if the time is over. It
// reads open runs, then ended but not indexed ones, then indexed ones. Runs move in this order, so
// none is missed.
func (s *Search) newestCandidates(ctx context.Context, before *uuid.UUID, most int) (ids []uuid.UUID, to *uuid.UUID, err error) {
	if runrow.CanBeOpen(s.Statuses) {
		l := sqldb.Args{Values: []any{s.Project}}
		ids, err = s.readIDs(ctx, `SELECT r.id FROM open_runs r WHERE r.project_id = $1`+s.windowCondition("r.id", before, &l)+s.agentCondition(&l)+` ORDER BY r.id DESC LIMIT `+l.Add(most), l)
	}
	if err != nil || !runrow.CanHaveEnded(s.Statuses) {
		return ids, nil, err
	}
	var ended []uuid.UUID
	if len(s.Search.Words) > 0 {
		ended, to, err = s.readByWords(ctx, before, most)
	} else {
		ended, err = s.readEnded(ctx, before, most)
	}
	if err != nil {
		return nil, nil, err
	}
	ids = append(ids, ended...)
	if to != nil {
		ids = slices.DeleteFunc(ids, func(id uuid.UUID) bool { return sqldb.CompareIDs(id, *to) < 0 })
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return sqldb.CompareIDs(b, a) })
	ids = slices.Compact(ids)
	return ids[:min(len(ids), most)], to, nil
}

// readByWords returns ended runs that may have the words. If more runs wait for the index than are read,
// and all read runs are newer than the search position, the search ends. It finds more after the runs are
// indexed.
func (s *Search) readByWords(ctx context.Context, before *uuid.UUID, most int) (ids []uuid.UUID, to *uuid.UUID, err error) {
	waiting, unread, err := s.readUnindexed(ctx, before)
	if err != nil {
		return nil, nil, err
	}
	if unread != nil && before != nil && sqldb.CompareIDs(*unread, *before) >= 0 {
		return nil, nil, errSearchTimeout
	}
	ids, to, err = s.readIndexed(ctx, before, most)
	if unread != nil && (to == nil || sqldb.CompareIDs(*unread, *to) > 0) {
		to = unread
	}
	return append(ids, waiting...), to, err
}

// readEnded returns the newest ended runs, at most so many, for a search without words.
func (s *Search) readEnded(ctx context.Context, before *uuid.UUID, most int) (ids []uuid.UUID, err error) {
	windows, err := timewindow.List(ctx, s.db, s.db.Lists(), "ended_runs", s.Project, s.Window, before)
	for _, window := range windows {
		if err != nil || len(ids) >= most {
			break
		}
		l := sqldb.Args{Values: []any{s.Project}}
		among := ``
		if before != nil {
			among = ` AND r.id < ` + l.Add(*before)
		}
		among += timewindow.DaysCondition("r.id", window, &l) + s.agentCondition(&l) + sqldb.ReadableCondition("$1") + runrow.StatusCondition(s.Statuses)
		var some []uuid.UUID
		some, err = s.readIDs(ctx, `SELECT r.id FROM ended_runs r WHERE r.project_id = $1`+among+` ORDER BY r.id DESC LIMIT `+l.Add(most-len(ids)), l)
		ids = append(ids, some...)
	}
	return ids, err
}

func (s *Search) readIDs(ctx context.Context, statement string, l sqldb.Args) ([]uuid.UUID, error) {
	return sqldb.Collect(ctx, s.db.Lists(), sqldb.ScanUUID, statement, l.Values...)
}

// windowCondition limits to IDs of the search's window before an ID.
func (s *Search) windowCondition(id string, before *uuid.UUID, l *sqldb.Args) string {
	return beforeAndInWindow(id, s.Window, before, l)
}

// beforeAndInWindow limits to IDs of a window before an ID.
func beforeAndInWindow(id string, window timewindow.Period, before *uuid.UUID, l *sqldb.Args) (text string) {
	if before != nil {
		text += ` AND ` + id + ` < ` + l.Add(*before)
	}
	return text + timewindow.Condition(id, window, l)
}

// agentCondition limits to the agent.
func (s *Search) agentCondition(l *sqldb.Args) string {
	if s.AgentName == "" {
		return ""
	}
	return ` AND r.agent_name = ` + l.Add(sqldb.Text(s.AgentName))
}

// searchTerms returns the terms of every match.
func (s *Search) searchTerms() (terms []Term) {
	for _, word := range s.Search.Words {
		terms = append(terms, hashTerm(s.Project, wordTerm, word))
	}
	if s.Environment != uuid.Nil {
		terms = append(terms, hashTerm(s.Project, environmentTerm, s.Environment.String()))
	}
	if s.AgentName != "" {
		terms = append(terms, hashTerm(s.Project, agentTerm, sqldb.Text(s.AgentName)))
	}
	if s.TestName != "" {
		terms = append(terms, hashTerm(s.Project, testTerm, runrow.StoredTestName(s.TestName)))
	}
	if len(s.Statuses) == 1 { // with several, runs have different terms
		terms = append(terms, hashTerm(s.Project, statusTerm, string(s.Statuses[0])))
	}
	return terms
}

// ReadAll passes all matches to take, newest first. ErrSearchTooBroad and ErrSearchBusy mean that
// some runs were not read.
func (s *Search) ReadAll(ctx context.Context, take func(store.Searched)) error {
	last, err := s.eachMatch(ctx, nil, func(run store.Searched) (bool, error) {
		take(run)
		return false, nil
	})
	switch {
	case err != nil:
		return err
	case s.exhausted && last != nil:
		return store.ErrSearchTooBroad
	case last != nil:
		return s.timeoutError()
	}
	return nil
}

// ReadInTime runs fn, which reads, with the remaining time. It returns ErrSearchTooBroad or
// ErrSearchBusy if the time is over.
func (s *Search) ReadInTime(ctx context.Context, fn func(ctx context.Context) error) error {
	err := s.readTimed(ctx, 1, fn)
	if errors.Is(err, errSearchTimeout) {
		return s.timeoutError()
	}
	return err
}

// SearchRuns is ListRuns of store.History for a query with a search.
func (s *Store) SearchRuns(ctx context.Context, q store.RunQuery) (runs []store.Run, next *uuid.UUID, err error) {
	of := Query{
		Search: *q.Search, Project: q.ProjectID, AgentName: q.AgentName, TestName: q.TestName, Statuses: q.Statuses,
		Window: timewindow.Between(q.Since, q.Until),
		Narrow: func(l *sqldb.Args, _ bool) string {
			text := runrow.QueryCondition("r", q, l)
			if q.AgentName != "" {
				text += ` AND r.agent_name = ` + l.Add(sqldb.Text(q.AgentName))
			}
			return text
		},
	}
	if len(q.EnvironmentIDs) == 1 {
		of.Environment = q.EnvironmentIDs[0]
	}
	next, err = s.NewSearch(of).eachMatch(ctx, q.Before, func(run store.Searched) (bool, error) {
		runs = append(runs, runrow.TrimForList(run.Run))
		return len(runs) >= q.Limit, nil
	})
	return runs, next, sqldb.Wrap(err, "searching runs of project %s", q.ProjectID)
}
