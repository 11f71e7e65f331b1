// SPDX-License-Identifier: Apache-2.0

package sqlcore

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

// How many candidates a search requests at first, and at most at a time.
const (
	firstCandidates     = 2 * searchedAtOnce
	maxCandidatesAtOnce = 20 * searchedAtOnce
)

// runSearch is a search through runs of a project, newest first.
type runSearch struct {
	*Core
	store.Search
	project uuid.UUID
	// window is the period of queueing.
	window timewindow.Period
	// environment, agent and testName are known fields of every match, or the zero ID and "".
	// statuses are the possible statuses, none for any.
	environment     uuid.UUID
	agent, testName string
	statuses        []store.RunStatus
	// narrow returns a condition on open or ended runs r that selects the runs to read.
	narrow func(l *sqldb.Args, ended bool) string
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

// searchIn returns a search among runs that a query selects by other fields.
func (c *Core) searchIn(of store.Search, project uuid.UUID, window timewindow.Period, agent, testName string, statuses []store.RunStatus) *runSearch {
	s := &runSearch{
		Core: c, Search: of, project: project, window: window, agent: cmp.Or(agent, of.AgentName), testName: cmp.Or(testName, of.TestName),
		statuses: slices.Compact(slices.Sorted(slices.Values(statuses))), begun: time.Now(),
	}
	if of.Status != "" && len(s.statuses) != 1 {
		s.statuses = []store.RunStatus{of.Status}
	}
	return s
}

// errSearchTimeout means that the time of a search is over.
var errSearchTimeout = errors.New("the search has timed out")

// hasTimedOut reports whether the time is over.
func (s *runSearch) hasTimedOut() bool { return s.Left != nil && s.Left() <= 0 }

// readTimed runs fn, which reads, with one part of the remaining time. Concurrent searches leave a connection
// for other lists. The error is errSearchTimeout if the time is over.
func (s *runSearch) readTimed(ctx context.Context, part time.Duration, fn func(ctx context.Context) error) error {
	within, cancel := s.withTimeLimit(ctx, part)
	defer cancel()
	if within.Err() != nil && ctx.Err() == nil {
		return errSearchTimeout
	}
	if err := s.acquireSlot(within); err != nil {
		return err
	}
	defer func() { <-s.searches }()
	err := fn(within)
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		return errSearchTimeout
	}
	return err
}

// acquireSlot waits for a slot among the searches that read.
func (s *runSearch) acquireSlot(ctx context.Context) error {
	begun := time.Now()
	defer func() { s.waited += time.Since(begun) }()
	select {
	case s.searches <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// timeoutError returns ErrSearchBusy if more than half of the time went to waiting for other searches,
// and otherwise ErrSearchTooBroad.
func (s *runSearch) timeoutError() error {
	if 2*s.waited > time.Since(s.begun) {
		return store.ErrSearchBusy
	}
	return store.ErrSearchTooBroad
}

// eachMatch passes matches to take, newest first, until take has enough or the search must end. It
// returns the last run that was read; nil at the end. ErrSearchTooBroad and ErrSearchBusy mean that
// no run could be read in time.
func (s *runSearch) eachMatch(ctx context.Context, before *uuid.UUID, take func(store.Searched) (enough bool, err error)) (*uuid.UUID, error) {
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
func (s *runSearch) resultOnError(err error, before, looked *uuid.UUID) (*uuid.UUID, error) {
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
func (s *runSearch) matchPiece(ctx context.Context, piece []uuid.UUID, take func(store.Searched) (enough bool, err error)) (last *uuid.UUID, enough bool, err error) {
	var runs map[uuid.UUID]store.Searched
	err = s.readTimed(ctx, 1, func(ctx context.Context) (err error) {
		runs, err = s.searchedRuns(ctx, s.engine.Lists(), s.project, piece, s.runCondition)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	within, cancel := s.withTimeLimit(ctx, 1)
	defer cancel()
	for _, id := range piece {
		run, there := runs[id]
		matches := there && s.Match(within, run)
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
func (s *runSearch) withTimeLimit(ctx context.Context, part time.Duration) (context.Context, context.CancelFunc) {
	if s.Left == nil {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, s.Left()/part, errSearchTimeout)
}

// runCondition returns the condition on runs r to read.
func (s *runSearch) runCondition(l *sqldb.Args, ended bool) string {
	text := s.narrow(l, ended)
	if s.AgentName != "" {
		text += ` AND r.agent_name = ` + l.Add(sqldb.Text(s.AgentName))
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
func (s *runSearch) candidates(ctx context.Context, before *uuid.UUID, most int) (out candidateRuns, err error) {
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
func (s *runSearch) newestCandidates(ctx context.Context, before *uuid.UUID, most int) (ids []uuid.UUID, to *uuid.UUID, err error) {
	if runrow.CanBeOpen(s.statuses) {
		l := sqldb.Args{Values: []any{s.project}}
		ids, err = s.readIDs(ctx, `SELECT r.id FROM open_runs r WHERE r.project_id = $1`+s.windowCondition("r.id", before, &l)+s.agentCondition(&l)+` ORDER BY r.id DESC LIMIT `+l.Add(most), l)
	}
	if err != nil || !runrow.CanHaveEnded(s.statuses) {
		return ids, nil, err
	}
	var ended []uuid.UUID
	if len(s.Words) > 0 {
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
func (s *runSearch) readByWords(ctx context.Context, before *uuid.UUID, most int) (ids []uuid.UUID, to *uuid.UUID, err error) {
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
func (s *runSearch) readEnded(ctx context.Context, before *uuid.UUID, most int) (ids []uuid.UUID, err error) {
	windows, err := timewindow.List(ctx, s.DB, s.engine.Lists(), "ended_runs", s.project, s.window, before)
	for _, window := range windows {
		if err != nil || len(ids) >= most {
			break
		}
		l := sqldb.Args{Values: []any{s.project}}
		among := ``
		if before != nil {
			among = ` AND r.id < ` + l.Add(*before)
		}
		among += timewindow.DaysCondition("r.id", window, &l) + s.agentCondition(&l) + sqldb.ReadableCondition("$1") + runrow.StatusCondition(s.statuses)
		var some []uuid.UUID
		some, err = s.readIDs(ctx, `SELECT r.id FROM ended_runs r WHERE r.project_id = $1`+among+` ORDER BY r.id DESC LIMIT `+l.Add(most-len(ids)), l)
		ids = append(ids, some...)
	}
	return ids, err
}

func (s *runSearch) readIDs(ctx context.Context, statement string, l sqldb.Args) ([]uuid.UUID, error) {
	return sqldb.Collect(ctx, s.engine.Lists(), sqldb.ScanUUID, statement, l.Values...)
}

// windowCondition limits to IDs of the search's window before an ID.
func (s *runSearch) windowCondition(id string, before *uuid.UUID, l *sqldb.Args) string {
	return beforeAndInWindow(id, s.window, before, l)
}

// beforeAndInWindow limits to IDs of a window before an ID.
func beforeAndInWindow(id string, window timewindow.Period, before *uuid.UUID, l *sqldb.Args) (text string) {
	if before != nil {
		text += ` AND ` + id + ` < ` + l.Add(*before)
	}
	return text + timewindow.Condition(id, window, l)
}

// agentCondition limits to the agent.
func (s *runSearch) agentCondition(l *sqldb.Args) string {
	if s.agent == "" {
		return ""
	}
	return ` AND r.agent_name = ` + l.Add(sqldb.Text(s.agent))
}

// searchTerms returns the terms of every match.
func (s *runSearch) searchTerms() (terms []Term) {
	for _, word := range s.Words {
		terms = append(terms, hashTerm(s.project, wordTerm, word))
	}
	if s.environment != uuid.Nil {
		terms = append(terms, hashTerm(s.project, environmentTerm, s.environment.String()))
	}
	if s.agent != "" {
		terms = append(terms, hashTerm(s.project, agentTerm, sqldb.Text(s.agent)))
	}
	if s.testName != "" {
		terms = append(terms, hashTerm(s.project, testTerm, runrow.StoredTestName(s.testName)))
	}
	if len(s.statuses) == 1 { // with several, runs have different terms
		terms = append(terms, hashTerm(s.project, statusTerm, string(s.statuses[0])))
	}
	return terms
}

// searchRuns is ListRuns for a query with a search.
func (c *Core) searchRuns(ctx context.Context, q store.RunQuery) (runs []store.Run, next *uuid.UUID, err error) {
	s := c.searchIn(*q.Search, q.ProjectID, timewindow.Period{From: timewindow.Bound(q.Since, timewindow.Always), To: timewindow.Bound(q.Until, timewindow.Never)}, q.AgentName, q.TestName, q.Statuses)
	if len(q.EnvironmentIDs) == 1 {
		s.environment = q.EnvironmentIDs[0]
	}
	s.narrow = func(l *sqldb.Args, _ bool) string {
		text := runrow.QueryCondition("r", q, l)
		if q.AgentName != "" {
			text += ` AND r.agent_name = ` + l.Add(sqldb.Text(q.AgentName))
		}
		return text
	}
	next, err = s.eachMatch(ctx, q.Before, func(run store.Searched) (bool, error) {
		runs = append(runs, runrow.TrimForList(run.Run))
		return len(runs) >= q.Limit, nil
	})
	return runs, next, sqldb.Wrap(err, "searching runs of project %s", q.ProjectID)
}

// searchStatistics is RunStatistics for a query with a search.
func (c *Core) searchStatistics(ctx context.Context, q store.StatisticsQuery) (store.RunStatistics, error) {
	of := &statistics{
		Core: c, query: q, bill: bill{}, window: timewindow.Period{From: timewindow.Bound(q.Since, timewindow.Always), To: timewindow.Bound(q.Until, timewindow.Never)},
		out: store.RunStatistics{Runs: map[store.RunStatus]int64{}},
	}
	var err error
	if of.tally, err = newTally(); err != nil {
		return of.out, err
	}
	s := c.searchIn(*q.Search, q.Environment.ProjectID, of.window, q.AgentName, "", q.Statuses)
	s.environment, s.narrow = q.Environment.ID, func(l *sqldb.Args, ended bool) string {
		if !ended && len(q.Outcomes) > 0 { // an open run has none yet
			return ` AND FALSE`
		}
		if !ended {
			return of.filterCondition(l)
		}
		return of.endedCondition(l)
	}
	var ended []runFigures
	last, err := s.eachMatch(ctx, nil, func(run store.Searched) (bool, error) {
		if run.EndedAt == nil {
			of.out.Runs[run.Status]++
			return false, nil
		}
		ended = append(ended, runFigures{Key: run.Key(), status: run.Status, startedAt: run.StartedAt, endedAt: *run.EndedAt, usage: run.Usage})
		return false, nil
	})
	switch {
	case err != nil:
		return of.out, sqldb.Wrap(err, "searching runs of agent %q of environment %s", q.AgentName, q.Environment)
	case s.exhausted && last != nil:
		return of.out, store.ErrSearchTooBroad
	case last != nil:
		return of.out, s.timeoutError()
	}
	err = s.readTimed(ctx, 1, func(ctx context.Context) error { return of.addRuns(ctx, c.engine.Lists(), ended) })
	switch {
	case errors.Is(err, errSearchTimeout):
		return of.out, s.timeoutError()
	case err != nil:
		return of.out, sqldb.Wrap(err, "counting runs of agent %q of environment %s", q.AgentName, q.Environment)
	}
	return of.out, of.computeResult()
}
