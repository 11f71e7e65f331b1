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
)

// How many runs a search looks for at first that it may have to look at, and at most at a time.
const (
	looksFor     = 2 * searchedAtOnce
	looksForMost = 20 * searchedAtOnce
)

// searching looks through runs of a project, newest first.
type searching struct {
	*Core
	store.Search
	project uuid.UUID
	// window is of when they were queued.
	window period
	// environment, agent and testName are what each of them has, where it is known; the zero id and
	// "" where it is not. statuses are those of which each has one, none where any will do.
	environment     uuid.UUID
	agent, testName string
	statuses        []store.RunStatus
	// narrow is a condition on open or ended runs r that tells which of them are looked at.
	narrow func(l *list, ended bool) string
	// crowded, unless nil, is the part of the index that has so many runs with the words that it is
	// looked through.
	crowded *uuid.UUID
	// sparse, unless nil, is one of which that has found few.
	sparse *uuid.UUID
	// exhausted: it has looked at as many runs as it may.
	exhausted bool
	// begun is when it began, waited for how long it has waited for a place since.
	begun  time.Time
	waited time.Duration
}

// searchIn is a search among runs that a query selects otherwise.
func (c *Core) searchIn(of store.Search, project uuid.UUID, window period, agent, testName string, statuses []store.RunStatus) *searching {
	s := &searching{
		Core: c, Search: of, project: project, window: window, agent: cmp.Or(agent, of.AgentName), testName: cmp.Or(testName, of.TestName),
		statuses: slices.Compact(slices.Sorted(slices.Values(statuses))), begun: time.Now(),
	}
	if of.Status != "" && len(s.statuses) != 1 {
		s.statuses = []store.RunStatus{of.Status}
	}
	return s
}

// errOver says that the time of a search is over.
var errOver = errors.New("the time of the search is over")

// over says that no more is to be looked at.
func (s *searching) over() bool { return s.Left != nil && s.Left() <= 0 }

// read runs fn, which reads, in one part of the time that is left, together with as many other
// searches as leave a connection to who lists without one. Where that is over the error is errOver.
func (s *searching) read(ctx context.Context, part time.Duration, fn func(ctx context.Context) error) error {
	within, cancel := s.timed(ctx, part)
	defer cancel()
	if within.Err() != nil && ctx.Err() == nil {
		return errOver
	}
	if err := s.place(within); err != nil {
		return err
	}
	defer func() { <-s.searches }()
	err := fn(within)
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		return errOver
	}
	return err
}

// place waits for a place among those that read.
func (s *searching) place(ctx context.Context) error {
	begun := time.Now()
	defer func() { s.waited += time.Since(begun) }()
	select {
	case s.searches <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refusal is what one is told whose time is over: that others took it, where more than half of it
// went by in waiting for them.
func (s *searching) refusal() error {
	if 2*s.waited > time.Since(s.begun) {
		return store.ErrSearchBusy
	}
	return store.ErrSearchTooBroad
}

// each hands those that match to a function, newest first, until that says that it has enough, or
// no more may be looked at. It returns the last one that was looked at; nil where none are left.
// ErrSearchTooBroad and ErrSearchBusy say that none could be looked at in time.
func (s *searching) each(ctx context.Context, before *uuid.UUID, take func(store.Searched) (enough bool, err error)) (*uuid.UUID, error) {
	looked, left, some := before, store.MaxCandidates, looksFor
	for {
		some = min(some, left)
		found, err := s.candidates(ctx, looked, some)
		if err != nil {
			return s.stopped(err, before, looked)
		}
		for _, piece := range found.pieces {
			last, enough, err := s.match(ctx, piece, take)
			if last != nil {
				looked = last
			}
			if err != nil {
				return s.stopped(err, before, looked)
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
		if s.exhausted = left == 0; s.exhausted || s.over() {
			return looked, nil
		}
		some = min(2*some, looksForMost)
	}
}

// stopped is what a search returns that an error ends: of one whose time is over that is no error
// unless it has looked at nothing.
func (s *searching) stopped(err error, before, looked *uuid.UUID) (*uuid.UUID, error) {
	switch {
	case !errors.Is(err, errOver):
		return nil, err
	case looked == before:
		return nil, s.refusal()
	}
	return looked, nil
}

// match hands those of some runs that match to a function. It returns the last one that it has
// looked at, and whether no more is to be.
func (s *searching) match(ctx context.Context, piece []uuid.UUID, take func(store.Searched) (enough bool, err error)) (last *uuid.UUID, enough bool, err error) {
	var runs map[uuid.UUID]store.Searched
	err = s.read(ctx, 1, func(ctx context.Context) (err error) {
		runs, err = s.searchedRuns(ctx, s.engine.Lists(), s.project, piece, s.narrowed)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	within, cancel := s.timed(ctx, 1)
	defer cancel()
	for _, id := range piece {
		run, there := runs[id]
		matches := there && s.Match(within, run)
		if within.Err() != nil && !matches { // then nothing matches
			return last, false, context.Cause(within)
		}
		last = &id
		if matches {
			if enough, err := take(run); err != nil || enough {
				return last, enough, err
			}
		}
		if s.over() {
			return last, true, nil
		}
	}
	return last, false, nil
}

// timed returns a context that ends with one part of the time that is left, for errOver.
func (s *searching) timed(ctx context.Context, part time.Duration) (context.Context, context.CancelFunc) {
	if s.Left == nil {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, s.Left()/part, errOver)
}

// narrowed is the condition on runs r that are looked at.
func (s *searching) narrowed(l *list, ended bool) string {
	text := s.narrow(l, ended)
	if s.AgentName != "" {
		text += ` AND r.agent_name = ` + l.add(Text(s.AgentName))
	}
	if s.Search.TestName != "" {
		text += ` AND r.test_name = ` + l.add(testNameOf(s.Search.TestName))
	}
	if s.Search.Status != "" {
		text += ` AND r.status = ` + l.add(Text(string(s.Search.Status)))
	}
	return text
}

// testNameOf is the name of a variant in a query as rows have it.
func testNameOf(name string) string {
	if name == store.BaseRuns {
		return ""
	}
	return Text(name)
}

// candidateRuns are runs that may match.
type candidateRuns struct {
	// pieces are those of them that are read at a time, all in order, number how many they are.
	pieces [][]uuid.UUID
	number int
	// to, unless nil, is the id down to which none is left out, and beyond which nobody has looked.
	to *uuid.UUID
}

// candidates are the newest runs, at most so many, that may match. Finding them, and then how large
// they are, has half of the time that is left, so that there is some to look at them.
func (s *searching) candidates(ctx context.Context, before *uuid.UUID, most int) (out candidateRuns, err error) {
	var ids []uuid.UUID
	if err := s.read(ctx, 2, func(ctx context.Context) (err error) {
		ids, out.to, err = s.newest(ctx, before, most)
		return err
	}); err != nil {
		return out, err
	}
	if out.number = len(ids); out.number == 0 {
		return out, nil
	}
	return out, s.read(ctx, 2, func(ctx context.Context) (err error) {
		out.pieces, err = s.pieces(ctx, ids, max(searchedAtOnce, most/2)) // who has to look at many asks seldom
		return err
	})
}

// newest are candidates, with the id down to which none is left out where the time was over. They
// are looked for in the order that a run goes: open, ended and not indexed yet, indexed. So none
// is missed that is on its way.
func (s *searching) newest(ctx context.Context, before *uuid.UUID, most int) (ids []uuid.UUID, to *uuid.UUID, err error) {
	if canBeOpen(s.statuses) {
		l := list{args: []any{s.project}}
		ids, err = s.ids(ctx, `SELECT r.id FROM open_runs r WHERE r.project_id = $1`+s.within("r.id", before, &l)+s.ofAgent(&l)+` ORDER BY r.id DESC LIMIT `+l.add(most), l)
	}
	if err != nil || !canHaveEnded(s.statuses) {
		return ids, nil, err
	}
	var ended []uuid.UUID
	if len(s.Words) > 0 {
		ended, to, err = s.byWords(ctx, before, most)
	} else {
		ended, err = s.ended(ctx, before, most)
	}
	if err != nil {
		return nil, nil, err
	}
	ids = append(ids, ended...)
	if to != nil {
		ids = slices.DeleteFunc(ids, func(id uuid.UUID) bool { return compareIDs(id, *to) < 0 })
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return compareIDs(b, a) })
	ids = slices.Compact(ids)
	return ids[:min(len(ids), most)], to, nil
}

// byWords are ended runs that may have the words. If more wait to be indexed than are read, and these go back
// no further than where the search has come, its time is over: it finds more once they are indexed.
func (s *searching) byWords(ctx context.Context, before *uuid.UUID, most int) (ids []uuid.UUID, to *uuid.UUID, err error) {
	waiting, unread, err := s.waiting(ctx, before)
	if err != nil {
		return nil, nil, err
	}
	if unread != nil && before != nil && compareIDs(*unread, *before) >= 0 {
		return nil, nil, errOver
	}
	ids, to, err = s.indexed(ctx, before, most)
	if unread != nil && (to == nil || compareIDs(*unread, *to) > 0) {
		to = unread
	}
	return append(ids, waiting...), to, err
}

// ended are the newest ended runs, at most so many, of which no words are known.
func (s *searching) ended(ctx context.Context, before *uuid.UUID, most int) (ids []uuid.UUID, err error) {
	windows, err := s.listWindows(ctx, s.window, before)
	for _, window := range windows {
		if err != nil || len(ids) >= most {
			break
		}
		l := list{args: []any{s.project}}
		among := within("r.id", window, before, &l) + s.ofAgent(&l) + readable("$1") + byStatus(s.statuses)
		var some []uuid.UUID
		some, err = s.ids(ctx, `SELECT r.id FROM ended_runs r WHERE r.project_id = $1`+among+` ORDER BY r.id DESC LIMIT `+l.add(most-len(ids)), l)
		ids = append(ids, some...)
	}
	return ids, err
}

func (s *searching) ids(ctx context.Context, statement string, l list) ([]uuid.UUID, error) {
	return collect(ctx, s.engine.Lists(), scanID, statement, l.args...)
}

// within narrows to ids of the search's window that come before one.
func (s *searching) within(id string, before *uuid.UUID, l *list) string {
	return within(id, s.window, before, l)
}

// within narrows to ids of a window that come before one.
func within(id string, window period, before *uuid.UUID, l *list) (text string) {
	if before != nil {
		text += ` AND ` + id + ` < ` + l.add(*before)
	}
	return text + inWindow(id, window, l)
}

// inWindow narrows to ids of a period.
func inWindow(id string, window period, l *list) (text string) {
	if window.from != always {
		text += ` AND ` + id + ` >= id_at(` + l.add(window.from) + `)`
	}
	if window.to != never {
		text += ` AND ` + id + ` < id_at(` + l.add(window.to) + `)`
	}
	return text
}

// ofAgent narrows to the agent's.
func (s *searching) ofAgent(l *list) string {
	if s.agent == "" {
		return ""
	}
	return ` AND r.agent_name = ` + l.add(Text(s.agent))
}

// terms are what an entry of the index has of each run that matches.
func (s *searching) terms() (terms []Term) {
	for _, word := range s.Words {
		terms = append(terms, termOf(s.project, wordTerm, word))
	}
	if s.environment != uuid.Nil {
		terms = append(terms, termOf(s.project, environmentTerm, s.environment.String()))
	}
	if s.agent != "" {
		terms = append(terms, termOf(s.project, agentTerm, Text(s.agent)))
	}
	if s.testName != "" {
		terms = append(terms, termOf(s.project, testTerm, testNameOf(s.testName)))
	}
	if len(s.statuses) == 1 { // of several, each run has another
		terms = append(terms, termOf(s.project, statusTerm, string(s.statuses[0])))
	}
	return terms
}

// searchRuns is ListRuns of a query with a search.
func (c *Core) searchRuns(ctx context.Context, q store.RunQuery) (runs []store.Run, next *uuid.UUID, err error) {
	s := c.searchIn(*q.Search, q.ProjectID, period{boundOf(q.Since, always), boundOf(q.Until, never)}, q.AgentName, q.TestName, q.Statuses)
	if len(q.EnvironmentIDs) == 1 {
		s.environment = q.EnvironmentIDs[0]
	}
	s.narrow = func(l *list, _ bool) string {
		text := narrowed("r", q, l)
		if q.AgentName != "" {
			text += ` AND r.agent_name = ` + l.add(Text(q.AgentName))
		}
		return text
	}
	next, err = s.each(ctx, q.Before, func(run store.Searched) (bool, error) {
		run.Output = ""
		runs = append(runs, run.Run)
		return len(runs) >= q.Limit, nil
	})
	return runs, next, wrap(err, "searching runs of project %s", q.ProjectID)
}

// searchStatistics is RunStatistics of a query with a search.
func (c *Core) searchStatistics(ctx context.Context, q store.StatisticsQuery) (store.RunStatistics, error) {
	of := &statistics{
		Core: c, query: q, bill: bill{}, window: period{boundOf(q.Since, always), boundOf(q.Until, never)},
		out: store.RunStatistics{Runs: map[store.RunStatus]int64{}},
	}
	var err error
	if of.tally, err = newTally(); err != nil {
		return of.out, err
	}
	s := c.searchIn(*q.Search, q.Environment.ProjectID, of.window, q.AgentName, "", q.Statuses)
	s.environment, s.narrow = q.Environment.ID, func(l *list, ended bool) string {
		if !ended && len(q.Outcomes) > 0 { // which it has not had yet
			return ` AND FALSE`
		}
		if !ended {
			return of.narrow(l)
		}
		return of.narrowEnded(l)
	}
	var ended []measured
	last, err := s.each(ctx, nil, func(run store.Searched) (bool, error) {
		if run.EndedAt == nil {
			of.out.Runs[run.Status]++
			return false, nil
		}
		ended = append(ended, measured{Key: run.Key(), status: run.Status, startedAt: run.StartedAt, endedAt: *run.EndedAt, usage: run.Usage})
		return false, nil
	})
	switch {
	case err != nil:
		return of.out, wrap(err, "searching runs of agent %q of environment %s", q.AgentName, q.Environment)
	case s.exhausted && last != nil:
		return of.out, store.ErrSearchTooBroad
	case last != nil:
		return of.out, s.refusal()
	}
	err = s.read(ctx, 1, func(ctx context.Context) error { return of.addRuns(ctx, c.engine.Lists(), ended) })
	switch {
	case errors.Is(err, errOver):
		return of.out, s.refusal()
	case err != nil:
		return of.out, wrap(err, "counting runs of agent %q of environment %s", q.AgentName, q.Environment)
	}
	return of.out, of.tell()
}
