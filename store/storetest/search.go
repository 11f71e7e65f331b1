// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// wordsIn returns the words of a run in this suite: everything between blanks.
func wordsIn(run store.Searched) []string {
	return strings.Fields(run.Output + " " + run.Error + " " + string(run.Input))
}

// searchFor returns a search for runs with words, which the index gets.
func searchFor(words ...string) *store.Search {
	s := searchUnindexed(words...)
	s.Words = words
	return s
}

// searchUnindexed returns the same search without words for the index.
func searchUnindexed(words ...string) *store.Search {
	return &store.Search{Match: func(_ context.Context, run store.Searched) bool {
		has := wordsIn(run)
		return !slices.ContainsFunc(words, func(word string) bool { return !slices.Contains(has, word) })
	}}
}

// indexRuns indexes ended runs of limit outbox rows.
func (w *world) indexRuns(limit int) int {
	n, err := w.s.IndexRuns(w.ctx, limit, wordsIn)
	w.NoError(err)
	return n
}

// searchBoth returns the runs that a search finds. The result must be the same with and without the index.
func (w *world) searchBoth(q store.RunQuery, words ...string) []uuid.UUID {
	q.ProjectID, q.Limit = w.project.ID, 3
	q.Search = searchUnindexed(words...)
	all := w.listAllRuns(q)
	q.Search = searchFor(words...)
	w.Equal(all, w.listAllRuns(q), words)
	return all
}

// eventWithWords returns an event with one run whose input has words.
func (w *world) eventWithWords(words ...string) store.Event {
	e := w.singleEvent()
	e.Input, e.ContentType = []byte(strings.Join(words, " ")), "text/plain"
	w.accept(&e)
	return e
}

// answered returns such a run that has ended with an answer.
func (w *world) answered(answer string, words ...string) uuid.UUID {
	w.eventWithWords(words...)
	run := w.claim(1, lease)[0]
	end := completed(run)
	end.Output = answer
	w.NoError(w.complete(end))
	return run.Run.ID
}

// readsSomeAtATime returns the check that about a MiB of large runs is in memory at a time. A run that is erased while the first
// ones are read is not found.
func readsSomeAtATime(enlarge func(*store.Event, *store.Completion)) func(w *world) {
	return func(w *world) {
		const many = 50 // short ones that are read at a time
		w.deploy("one", "first")
		for range many {
			e, end := w.singleEvent(), store.Completion{Status: store.RunFailed}
			enlarge(&e, &end)
			w.accept(&e)
			end.Lease = leaseOf(w.claim(1, lease)[0])
			w.NoError(w.complete(end))
		}
		all := w.listAllRuns(store.RunQuery{ProjectID: w.project.ID, Limit: many})
		w.Len(all, many)
		var seen []uuid.UUID
		search := &store.Search{Match: func(_ context.Context, run store.Searched) bool {
			if seen = append(seen, run.ID); len(seen) == 1 {
				w.NoError(w.s.EraseRun(w.ctx, w.key(all[many-1])))
			}
			return false
		}}
		_, _, err := w.s.ListRuns(w.ctx, store.RunQuery{ProjectID: w.project.ID, Search: search, Limit: many})
		w.NoError(err)
		w.Equal(all[:many-1], seen)
	}
}

var searchPromises = []promise{
	{"runs with long errors and many headers are read in batches", readsSomeAtATime(func(e *store.Event, end *store.Completion) {
		e.Headers = map[string]string{}
		for i := range 16 {
			e.Headers[fmt.Sprint("x-", i)] = strings.Repeat("h", 1000)
		}
		end.Error = strings.Repeat("e", store.MaxError)
	})},
	{"runs with large contexts are read in batches", readsSomeAtATime(func(_ *store.Event, end *store.Completion) {
		end.Context = json.RawMessage(`{"a":"` + strings.Repeat("c", 30_000) + `"}`)
	})},
	{"an ended run is found by its context, with and without the index", withAgent(func(w *world) {
		w.singles(2)
		runs := w.claim(2, lease)
		one, other := completed(runs[0]), completed(runs[1])
		one.Context, other.Context = json.RawMessage(`{"customer": "acme"}`), json.RawMessage(`{"customer": "beta"}`)
		w.NoError(w.complete(one))
		w.NoError(w.complete(other))
		search := &store.Search{Match: func(_ context.Context, run store.Searched) bool { return strings.Contains(string(run.Context), "acme") }}
		q := store.RunQuery{ProjectID: w.project.ID, Limit: 3, Search: search}
		w.Equal([]uuid.UUID{one.Run.ID}, w.listAllRuns(q))
		n, err := w.s.IndexRuns(w.ctx, 100, func(run store.Searched) []string { return strings.Fields(string(run.Context)) })
		w.NoError(err)
		w.Positive(n)
		search.Words = []string{`"acme"}`}
		w.Equal([]uuid.UUID{one.Run.ID}, w.listAllRuns(q))
		search.Words = []string{`"beta"}`}
		w.Empty(w.listAllRuns(q), "the index has the words of each run")
		search.Words = []string{`"acme"}`}
		w.NoError(w.s.EraseRun(w.ctx, one.Run))
		w.Empty(w.listAllRuns(q))
	})},
	{"a run is found by input and output, from its acceptance on", withAgent(func(w *world) {
		run := w.eventWithWords("apple", "pear").Runs[0].ID
		w.Equal([]uuid.UUID{run}, w.searchBoth(store.RunQuery{}, "apple", "pear"))
		claimed := w.claim(1, lease)[0]
		w.Equal([]uuid.UUID{run}, w.searchBoth(store.RunQuery{Statuses: []store.RunStatus{store.RunRunning}}, "apple"))
		end := completed(claimed)
		end.Output, end.Status, end.Error = "plum", store.RunFailed, "no cherry"
		w.NoError(w.complete(end))
		for range 2 {
			w.Equal([]uuid.UUID{run}, w.searchBoth(store.RunQuery{}, "apple", "plum", "cherry"))
			w.Equal([]uuid.UUID{run}, w.searchBoth(store.RunQuery{Statuses: []store.RunStatus{store.RunFailed}, AgentName: "first", TestName: store.BaseRuns, EnvironmentIDs: []uuid.UUID{w.environment.ID}}, "apple"))
			w.Empty(w.searchBoth(store.RunQuery{}, "apple", "melon"))
			w.Empty(w.searchBoth(store.RunQuery{Statuses: []store.RunStatus{store.RunCompleted}}, "apple"))
			w.Empty(w.searchBoth(store.RunQuery{AgentName: "second"}, "apple"))
			w.indexRuns(10)
		}
		w.Zero(w.indexRuns(10), "once")
		runs := w.listRuns(store.RunQuery{ProjectID: w.project.ID, Search: searchFor("plum"), Limit: 10})
		w.Len(runs, 1)
		w.Empty(runs[0].Output, "lists have none")
		w.Equal("no cherry", runs[0].Error)
	})},
	{"known fields narrow a search", withAgent(func(w *world) {
		run := w.answered("plum")
		w.indexRuns(10)
		for _, want := range []struct {
			search store.Search
			found  bool
		}{
			{store.Search{AgentName: "first", Status: store.RunCompleted, TestName: store.BaseRuns}, true},
			{store.Search{AgentName: "second"}, false},
			{store.Search{Status: store.RunFailed}, false},
			{store.Search{TestName: "short"}, false},
		} {
			for _, words := range [][]string{nil, {"plum"}} {
				s := want.search
				s.Words, s.Match = words, searchUnindexed().Match
				got := w.listAllRuns(store.RunQuery{ProjectID: w.project.ID, Search: &s, Limit: 2})
				w.Equal(want.found, slices.Equal(got, []uuid.UUID{run}), want)
				w.Equal(want.found, len(got) > 0, want)
				q := store.StatisticsQuery{Environment: w.environment.Key(), AgentName: "first", Search: &s}
				w.Equal(want.found, w.runStatistics(q).Total() == 1, want)
			}
		}
	})},
	{"the beginning of large values is searched", withAgent(func(w *world) {
		filler := " " + strings.Repeat("x", store.MaxInlineText) + " "
		e, blob := w.singleEvent(), newUUIDv7()
		w.NoError(errorOf(w.s.PutBlob(w.ctx, w.key(blob), strings.NewReader("apple"+filler+"pear"))))
		e.Input, e.InputBlob = nil, &blob
		w.accept(&e)
		run := w.claim(1, lease)[0]
		end := completed(run)
		end.Output = "plum" + filler + "cherry"
		w.NoError(w.complete(end))
		for range 2 {
			w.Equal([]uuid.UUID{run.Run.ID}, w.searchBoth(store.RunQuery{}, "apple", "plum"))
			w.Empty(w.searchBoth(store.RunQuery{}, "pear"))
			w.Empty(w.searchBoth(store.RunQuery{}, "cherry"))
			w.indexRuns(10)
		}
	})},
	{"a run with too many words is read", withAgent(func(w *world) {
		var all []string
		for i := range 12_000 {
			all = append(all, fmt.Sprint(i))
		}
		run := w.answered("", all...)
		w.indexRuns(10)
		w.Equal([]uuid.UUID{run}, w.searchBoth(store.RunQuery{}, "0", "11999"))
		w.Empty(w.searchBoth(store.RunQuery{}, "12000"))
	})},
	{"another project's words are not found", withAgent(func(w *world) {
		run := w.answered("plum")
		twin := w.twinProject()
		twin.deploy("one", "first")
		theirs := twin.answered("plum")
		for w.indexRuns(10) > 0 {
		}
		w.Equal([]uuid.UUID{run}, w.searchBoth(store.RunQuery{}, "plum"))
		w.Equal([]uuid.UUID{theirs}, twin.searchBoth(store.RunQuery{}, "plum"))
	})},
	{"an erased run is not found, even if indexed later", withAgent(func(w *world) {
		for _, early := range []bool{true, false} {
			run := w.answered("plum")
			if early {
				w.indexRuns(10)
				w.EqualValues(1, w.queryCount(`SELECT count(*) FROM run_words WHERE project_id = $1`))
			}
			w.NoError(w.s.EraseRun(w.ctx, w.key(run)))
			w.indexRuns(10)
			w.Zero(w.queryCount(`SELECT count(*) FROM run_words WHERE project_id = $1`))
			w.Empty(w.searchBoth(store.RunQuery{}, "plum"))
		}
	})},
	{"runs beyond the retention are neither found nor indexed", withAgent(func(w *world) {
		w.answered("plum")
		w.indexRuns(10)
		w.answered("plum")
		w.forgets()
		w.Empty(w.searchBoth(store.RunQuery{}, "plum"))
		w.indexRuns(10)
		w.EqualValues(1, w.queryCount(`SELECT count(*) FROM run_words WHERE project_id = $1`))
	})},
	{"a search out of time returns its matches and continues", withAgent(func(w *world) {
		var want []uuid.UUID
		for range 4 {
			want = append(want, w.answered("plum"), w.answered("pear"))
		}
		slices.Reverse(want)
		for w.indexRuns(10) > 0 {
		}
		for _, words := range [][]string{nil, {"plum"}} {
			search, left := searchFor("plum"), time.Duration(0)
			matches := search.Match
			search.Words, search.Left = words, func() time.Duration { return left }
			search.Match = func(ctx context.Context, run store.Searched) bool {
				left = 0
				return matches(ctx, run)
			}
			var ids []uuid.UUID
			pages := 0
			for q := (store.RunQuery{ProjectID: w.project.ID, Search: search, Limit: 10}); ; pages++ {
				left = time.Minute
				page, next, err := w.s.ListRuns(w.ctx, q)
				w.NoError(err)
				for _, run := range page {
					ids = append(ids, run.ID)
				}
				if q.Before = next; next == nil {
					break
				}
			}
			w.Equal([]uuid.UUID{want[1], want[3], want[5], want[7]}, ids)
			w.GreaterOrEqual(pages, 4)
			left = time.Minute
			_, err := w.s.RunStatistics(w.ctx, store.StatisticsQuery{Environment: w.environment.Key(), AgentName: "first", Search: search})
			w.ErrorIs(err, store.ErrSearchTooBroad)
			_, _, err = w.s.ListRuns(w.ctx, store.RunQuery{ProjectID: w.project.ID, Search: search, Limit: 10})
			w.ErrorIs(err, store.ErrSearchTooBroad, "nothing can be read")
			left = time.Minute
			search.Left = func() time.Duration { left -= 12 * time.Second; return left }
			_, next, err := w.s.ListRuns(w.ctx, store.RunQuery{ProjectID: w.project.ID, TestName: "short", Search: search, Limit: 10})
			w.NoError(err)
			w.Equal(words == nil, next != nil, "runs excluded by other fields take time, too, unless the index has the fields")
		}
		ctx, cancel := context.WithCancel(w.ctx)
		gone := searchFor("plum")
		gone.Match = func(context.Context, store.Searched) bool { cancel(); return false }
		_, err := w.s.RunStatistics(ctx, store.StatisticsQuery{Environment: w.environment.Key(), AgentName: "first", Search: gone})
		w.ErrorIs(err, context.Canceled, "a match after the timeout does not count")
	})},
	{"a match has only the remaining time", withAgent(func(w *world) {
		w.acceptEvent(w.singleEvent())
		waits := &store.Search{
			Match: func(ctx context.Context, _ store.Searched) bool { <-ctx.Done(); return false },
			Left:  func() time.Duration { return 100 * time.Millisecond },
		}
		ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
		defer cancel()
		_, _, err := w.s.ListRuns(ctx, store.RunQuery{ProjectID: w.project.ID, Search: waits, Limit: 10})
		w.ErrorIs(err, store.ErrSearchTooBroad)
		w.NoError(ctx.Err())
	})},
	{"a search reads no more runs than a list", func(w *world) {
		begin := time.Now().UTC().Truncate(24 * time.Hour)
		w.manyPast(begin, store.MaxCandidates+1)
		looked := 0
		search := &store.Search{Match: func(context.Context, store.Searched) bool { looked++; return false }}
		runs, next, err := w.s.ListRuns(w.ctx, store.RunQuery{ProjectID: w.project.ID, Search: search, Limit: 10})
		w.NoError(err)
		w.Empty(runs)
		w.NotNil(next)
		w.Equal(store.MaxCandidates, looked)
		q := store.StatisticsQuery{Environment: w.environment.Key(), AgentName: "first", Search: search}
		w.ErrorIs(errorOf(w.s.RunStatistics(w.ctx, q)), store.ErrSearchTooBroad)
		q.Since = begin.Add(time.Second)
		w.NoError(errorOf(w.s.RunStatistics(w.ctx, q)), "fewer runs of a window are read")
	}},
	{"a search finds the same runs as a full scan", func(w *world) { w.searchesAtRandom() }},
	{"a search by old words scans no newer runs", func(w *world) { w.looksNoFurtherThanItMust() }},
	{"a search by common words finds the newest and continues", func(w *world) { w.searchesAmongMany() }},
	{"runs are listed by further fields", withAgent(func(w *world) {
		spec := w.deploy("two", "first")
		e := w.acceptEvent(w.singleEvent())
		w.endEvents(1)
		all := w.listAllRuns(store.RunQuery{ProjectID: w.project.ID, Limit: 10})
		w.Len(all, 2)
		for name, c := range map[string]struct {
			query store.RunQuery
			want  int
		}{
			"deployment":        {store.RunQuery{DeploymentID: spec.ID}, 1},
			"connector":         {store.RunQuery{ConnectorID: w.connector.ID}, 2},
			"no connector":      {store.RunQuery{ConnectorID: uuid.New()}, 0},
			"event":             {store.RunQuery{ConnectorRunID: e.ConnectorRunID}, 1},
			"since":             {store.RunQuery{Since: store.TimeOf(all[1]).Add(-time.Hour)}, 2},
			"until":             {store.RunQuery{Until: store.TimeOf(all[1])}, 0},
			"in the future":     {store.RunQuery{Since: store.TimeOf(all[0]).Add(time.Hour)}, 0},
			"one after another": {store.RunQuery{Since: store.TimeOf(all[1]), Until: store.TimeOf(all[0]).Add(time.Hour)}, 2},
		} {
			c.query.ProjectID, c.query.Limit = w.project.ID, 10
			w.Len(w.listAllRuns(c.query), c.want, name)
			c.query.Search = searchUnindexed()
			w.Len(w.listAllRuns(c.query), c.want, name)
		}
	})},
}

// manyPast inserts ended runs of the first agent, a millisecond apart.
func (w *world) manyPast(begin time.Time, n int) {
	for written := 0; written < n; {
		var rows []string
		for ; written < n && len(rows) < 1000; written++ {
			at := begin.Add(time.Duration(written) * time.Millisecond).UnixMicro()
			id := store.Stamp(newUUIDv7(), at, 0)
			rows = append(rows, fmt.Sprintf(`('%s', '%s', '%s', 'first', '%s', 'completed', 1, 1, '', '', '', '', 0, 0, 0, 0, 0, %d, %d)`,
				w.project.ID, id, w.environment.ID, id, at, at))
		}
		w.execStatement(`INSERT INTO ended_runs (project_id, id, environment_id, agent_name, input_id, status, token, attempt, runner_id, error_code,
			error, output, input_tokens, output_tokens, thinking_tokens, cached_input_tokens, total_tokens, queued_at, ended_at) VALUES ` + strings.Join(rows, ", "))
	}
	w.recordDay(begin)
	w.recordDay(begin.Add(time.Duration(n) * time.Millisecond))
}

// searchesAtRandom accepts and ends runs, indexes some of them, and searches at random.
func (w *world) searchesAtRandom() {
	c := dice{rand.New(rand.NewPCG(3, 4))} //nolint:gosec // a test is the same each time
	fruit := []string{"apple", "pear", "plum", "cherry", "melon"}
	w.deploy("one", "first", "second")
	for range 8 {
		for range 6 {
			e := w.event()
			e.Input, e.ContentType = []byte(strings.Join(drawSome(c, fruit...), " ")), "text/plain"
			w.accept(&e)
		}
		for _, run := range w.claim(8, lease) {
			end := completed(run)
			end.Output, end.Status = strings.Join(drawSome(c, fruit...), " "), drawOne(c, store.RunCompleted, store.RunFailed)
			if c.IntN(4) > 0 {
				w.NoError(w.complete(end))
			}
		}
		w.indexRuns(c.IntN(6))
	}
	all := w.allSearched()
	w.Len(all, 8*6*2)
	for range 60 {
		words := drawSome(c, fruit...)
		q := store.RunQuery{
			AgentName: drawOne(c, "", "first", "second"), Statuses: drawSome(c, store.RunCompleted, store.RunFailed, store.RunQueued, store.RunRunning),
			EnvironmentIDs: drawOne(c, nil, []uuid.UUID{w.environment.ID}),
		}
		if c.IntN(3) == 0 {
			q.Since = store.TimeOf(drawOne(c, all...).ID)
		}
		if c.IntN(3) == 0 {
			q.Until = store.TimeOf(drawOne(c, all...).ID)
		}
		var (
			want   []uuid.UUID
			counts = map[store.RunStatus]int64{}
		)
		agent := drawOne(c, "first", "second")
		for _, run := range all {
			at := store.TimeOf(run.ID)
			if !q.Since.IsZero() && at.Before(q.Since) || !q.Until.IsZero() && !at.Before(q.Until) || !searchFor(words...).Match(w.ctx, run) {
				continue
			}
			if (q.AgentName == "" || run.AgentName == q.AgentName) && (len(q.Statuses) == 0 || slices.Contains(q.Statuses, run.Status)) {
				want = append(want, run.ID)
			}
			if run.AgentName == agent {
				counts[run.Status]++
			}
		}
		w.Equal(want, w.searchBoth(q, words...), "%v of %+v", words, q)
		for _, search := range []*store.Search{searchFor(words...), searchUnindexed(words...)} {
			n := w.runStatistics(store.StatisticsQuery{
				Environment: w.environment.Key(), AgentName: agent, Since: q.Since, Until: q.Until, Search: search,
			})
			w.Equal(counts, n.Runs, words)
		}
	}
}

// allSearched returns all runs of the project with their searchable texts, newest first.
func (w *world) allSearched() (all []store.Searched) {
	for _, id := range w.listAllRuns(store.RunQuery{ProjectID: w.project.ID, Limit: 100}) {
		run := store.Searched{Run: w.run(id)}
		_, body, err := w.s.RunInput(w.ctx, w.key(id))
		run.Input = w.readAll(body, err)
		all = append(all, run)
	}
	return all
}
