// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// The number of runs of a day, and the number of its oldest runs that have a word: more than are
// sorted to find the newest, and further away than one scan reaches.
const (
	manyRuns = 3400
	oldRuns  = 2300
)

// manyWords are words, with the condition for the runs that have them; the oldest run is the first.
var manyWords = map[string]func(n int) bool{
	"all": func(int) bool { return true }, "old": func(n int) bool { return n < oldRuns },
	"even": func(n int) bool { return n%2 == 0 }, "odd": func(n int) bool { return n%2 == 1 }, "seldom": func(n int) bool { return n%40 == 7 },
}

// manyIndexed returns ended and indexed runs with those words, oldest first.
func (w *world) manyIndexed(runs int) []uuid.UUID {
	begin := time.Now().UTC().Truncate(24 * time.Hour)
	w.manyPast(begin, runs)
	w.execStatement(fmt.Sprintf(`UPDATE ended_runs SET output = 'all' || CASE WHEN (queued_at - %[1]d) / 1000 < %[2]d THEN ' old' ELSE '' END
		|| CASE WHEN (queued_at - %[1]d) / 1000 %% 2 = 0 THEN ' even' ELSE ' odd' END || CASE WHEN (queued_at - %[1]d) / 1000 %% 40 = 7 THEN ' seldom' ELSE '' END`,
		begin.UnixMicro(), oldRuns))
	ids := w.listAllRuns(store.RunQuery{ProjectID: w.project.ID, Limit: 1000})
	w.Len(ids, runs)
	slices.Reverse(ids)
	for some := range slices.Chunk(ids, 200) {
		texts := make([]string, len(some))
		for i, id := range some {
			texts[i] = id.String()
		}
		w.execStatement(`INSERT INTO outbox_words (project_id, ended_id, run_ids, posted_at) VALUES ($1, $2, $3, 0)`,
			w.project.ID.String(), texts[0], "{"+strings.Join(texts, ",")+"}")
	}
	for w.indexRuns(10) > 0 {
	}
	w.EqualValues(runs, w.queryCount(`SELECT count(*) FROM run_words WHERE project_id = $1`))
	return ids
}

// withWords returns the runs between two positions that have words, newest first.
func withWords(ids []uuid.UUID, from, to int, words ...string) (out []uuid.UUID) {
	for n := from; n < to; n++ {
		if !slices.ContainsFunc(words, func(word string) bool { return !manyWords[word](n) }) {
			out = append(out, ids[n])
		}
	}
	slices.Reverse(out)
	return out
}

// searchesAmongMany searches at random for common and rare words.
func (w *world) searchesAmongMany() {
	c := dice{rand.New(rand.NewPCG(5, 6))} //nolint:gosec // a test is the same each time
	ids := w.manyIndexed(manyRuns)
	for _, words := range [][]string{{"all"}, {"old"}, {"even", "odd"}, {"old", "seldom"}, {"all", "seldom"}, {"all", "even"}} {
		for range 3 {
			from, to := 0, manyRuns
			q := store.RunQuery{ProjectID: w.project.ID, Search: searchFor(words...), Limit: drawOne(c, 150, 1000)}
			if c.IntN(2) == 0 {
				from = c.IntN(manyRuns)
				q.Since = store.TimeOf(ids[from])
			}
			if c.IntN(2) == 0 {
				to = from + c.IntN(manyRuns-from)
				q.Until = store.TimeOf(ids[to])
			}
			w.Equal(withWords(ids, from, to, words...), w.listAllRuns(q), "%v from %d to %d", words, from, to)
		}
	}
	for range 3 { // pages of one run each
		at := c.IntN(manyRuns-10) + 10
		q := store.RunQuery{ProjectID: w.project.ID, Search: searchFor("all"), Limit: 1, Since: store.TimeOf(ids[at-10]), Until: store.TimeOf(ids[at])}
		w.Equal(withWords(ids, at-10, at, "all"), w.listAllRuns(q))
	}
	w.goesOnWhereItHasLooked(ids)
}

// goesOnWhereItHasLooked: a search without matches in its time returns its position.
func (w *world) goesOnWhereItHasLooked(ids []uuid.UUID) {
	search, turns := searchFor("old"), 0
	search.Left = func() time.Duration {
		if turns--; turns < 0 {
			return 0
		}
		return time.Minute
	}
	turns = 2
	runs, next, err := w.s.ListRuns(w.ctx, store.RunQuery{ProjectID: w.project.ID, Search: search, Limit: 1000})
	w.NoError(err)
	w.Empty(runs)
	w.NotNil(next)
	search.Left = nil
	w.Equal(withWords(ids, 0, manyRuns, "old"), w.listAllRuns(store.RunQuery{ProjectID: w.project.ID, Search: search, Limit: 1000, Before: next}))
}

// looksNoFurtherThanItMust: words of old runs only are found by the index, without a scan of the
// newer runs.
func (w *world) looksNoFurtherThanItMust() {
	ids := w.manyIndexed(4 * manyRuns)
	search, asked := searchFor("old"), 0
	search.Left = func() time.Duration {
		asked++
		return time.Minute
	}
	runs := w.listRuns(store.RunQuery{ProjectID: w.project.ID, Search: search, Limit: 100})
	found := make([]uuid.UUID, len(runs))
	for i, run := range runs {
		found[i] = run.ID
	}
	w.Equal(withWords(ids, 0, oldRuns, "old")[:100], found)
	w.Less(asked, 112, "once for each run that it has read, and for each turn; a scan would take more")
}
