// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"slices"

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
	// environment, agent, testName and status are what each of them has, where it is known; the
	// zero id and "" where it is not.
	environment     uuid.UUID
	agent, testName string
	status          store.RunStatus
	// narrow is a condition on open or ended runs r that tells which of them are looked at.
	narrow func(l *list, ended bool) string
}

// searchIn is a search among runs that a query selects otherwise.
func (c *Core) searchIn(of store.Search, project uuid.UUID, window period, agent, testName string, status store.RunStatus) *searching {
	s := &searching{Core: c, Search: of, project: project, window: window, agent: agent, testName: testName, status: status}
	for _, known := range []struct {
		have *string
		more string
	}{{&s.agent, of.AgentName}, {&s.testName, of.TestName}, {(*string)(&s.status), string(of.Status)}} {
		if *known.have == "" {
			*known.have = known.more
		}
	}
	return s
}

// each hands those that match to a function, newest first, until that says that it has enough, or
// no more may be looked at. It returns the last one that was looked at; nil where none are left.
func (s *searching) each(ctx context.Context, before *uuid.UUID, take func(store.Searched) (enough bool, err error)) (*uuid.UUID, error) {
	for left, some := store.MaxCandidates, looksFor; ; some = min(2*some, looksForMost) {
		some = min(some, left)
		ids, err := s.candidates(ctx, before, some)
		if err != nil {
			return nil, err
		}
		for among := range slices.Chunk(ids, searchedAtOnce) {
			runs, err := s.searchedRuns(ctx, s.engine.Lists(), s.project, among, s.narrowed)
			if err != nil {
				return nil, err
			}
			for _, id := range among {
				before = &id
				if run, there := runs[id]; there && s.Match(ctx, run) {
					if enough, err := take(run); err != nil || enough {
						return before, err
					}
				}
				if ctx.Err() != nil { // then nothing matches
					return nil, context.Cause(ctx)
				}
				if s.Over != nil && s.Over() {
					return before, nil
				}
			}
		}
		if left -= len(ids); len(ids) < some {
			return nil, nil
		}
		if left == 0 {
			return before, nil
		}
	}
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

// candidates are the newest runs, at most so many, that may match. They are looked for in the
// order that a run goes: open, ended and not indexed yet, indexed. So none is missed that is on
// its way.
func (s *searching) candidates(ctx context.Context, before *uuid.UUID, most int) (ids []uuid.UUID, err error) {
	l := list{args: []any{s.project}}
	ids, err = s.ids(ctx, `SELECT r.id FROM open_runs r WHERE r.project_id = $1`+s.within("r.id", before, &l)+s.ofAgent(&l)+` ORDER BY r.id DESC LIMIT `+l.add(most), l)
	if err != nil {
		return nil, err
	}
	var ended []uuid.UUID
	if len(s.Words) > 0 {
		ended, err = s.indexed(ctx, before, most)
	} else {
		l := list{args: []any{s.project}}
		among := s.within("r.id", before, &l) + s.ofAgent(&l) + readable("$1")
		if s.agent == "" && (s.status == store.RunFailed || s.status == store.RunCancelled) {
			among += failed
		}
		ended, err = s.ids(ctx, `SELECT r.id FROM ended_runs r WHERE r.project_id = $1`+among+` ORDER BY r.id DESC LIMIT `+l.add(most), l)
	}
	if err != nil {
		return nil, err
	}
	ids = append(ids, ended...)
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return compareIDs(b, a) })
	ids = slices.Compact(ids)
	return ids[:min(len(ids), most)], nil
}

func (s *searching) ids(ctx context.Context, statement string, l list) ([]uuid.UUID, error) {
	return collect(ctx, s.engine.Lists(), scanID, statement, l.args...)
}

// within narrows to ids of the window that come before one.
func (s *searching) within(id string, before *uuid.UUID, l *list) (text string) {
	if before != nil {
		text += ` AND ` + id + ` < ` + l.add(*before)
	}
	return text + inWindow(id, s.window, l)
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

// indexed are ended runs that have the words, or are not indexed yet.
func (s *searching) indexed(ctx context.Context, before *uuid.UUID, most int) (ids []uuid.UUID, err error) {
	waiting, err := collect(ctx, s.engine.Lists(), scanEndedIDs, `SELECT project_id, run_ids FROM outbox_words WHERE project_id = $1`, s.project)
	if err != nil {
		return nil, err
	}
	for _, run := range slices.Concat(waiting...) {
		at := store.TimeOf(run.ID).UnixMicro()
		if (before == nil || compareIDs(run.ID, *before) < 0) && at >= s.window.from && at < s.window.to {
			ids = append(ids, run.ID)
		}
	}
	l := list{args: []any{s.project}}
	has, args := s.engine.HasTerms(s.terms(), termOf(s.project, moreTerm, ""), len(l.args)+1)
	l.args = append(l.args, args...)
	found, err := s.ids(ctx, `SELECT w.run_id FROM run_words w WHERE w.project_id = $1 AND `+has+s.within("w.run_id", before, &l)+since("w.run_id", "$1")+`
		ORDER BY w.run_id DESC LIMIT `+l.add(most), l)
	return append(ids, found...), err
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
	if s.status != "" {
		terms = append(terms, termOf(s.project, statusTerm, string(s.status)))
	}
	return terms
}

// searchRuns is ListRuns of a query with a search.
func (c *Core) searchRuns(ctx context.Context, q store.RunQuery) (runs []store.Run, next *uuid.UUID, err error) {
	s := c.searchIn(*q.Search, q.ProjectID, period{boundOf(q.Since, always), boundOf(q.Until, never)}, q.AgentName, q.TestName, q.Status)
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
	s := c.searchIn(*q.Search, q.Environment.ProjectID, of.window, q.AgentName, "", "")
	s.environment, s.narrow = q.Environment.ID, func(l *list, ended bool) string {
		if !ended && len(q.Outcomes) > 0 { // which it has not had yet
			return ` AND FALSE`
		}
		if !ended {
			return of.narrow(l)
		}
		return of.narrowEnded(l)
	}
	var ended []tallied
	last, err := s.each(ctx, nil, func(run store.Searched) (bool, error) {
		if run.EndedAt == nil {
			of.out.Runs[run.Status]++
			return false, nil
		}
		ended = append(ended, tallied{Key: run.Key(), status: run.Status, startedAt: run.StartedAt, endedAt: *run.EndedAt, usage: run.Usage})
		return false, nil
	})
	switch {
	case err != nil:
		return of.out, wrap(err, "searching runs of agent %q of environment %s", q.AgentName, q.Environment)
	case last != nil:
		return of.out, store.ErrSearchTooBroad
	}
	if err := of.addRuns(ctx, c.engine.Lists(), ended); err != nil {
		return of.out, wrap(err, "counting runs of agent %q of environment %s", q.AgentName, q.Environment)
	}
	return of.out, of.tell()
}
