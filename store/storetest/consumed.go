// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// inOneRow merges the rows of an outbox of the project into one row, as from one transaction.
func (w *world) inOneRow(table string, runs []uuid.UUID) {
	ids := make([]string, len(runs))
	for i, id := range runs {
		ids[i] = id.String()
	}
	w.updateRows(`DELETE FROM ` + table)
	into := map[string]string{
		"outbox_rollups": `INSERT INTO outbox_rollups (project_id, ended_id, posted_at, run_ids) VALUES ($1, $2, 1, $3)`,
		"outbox_words":   `INSERT INTO outbox_words (project_id, ended_id, posted_at, run_ids) VALUES ($1, $2, 1, $3)`,
	}
	w.execStatement(into[table], w.project.ID.String(), ids[0], "{"+strings.Join(ids, ",")+"}")
}

// manyWaiting adds outbox rows of runs that were queued yesterday, end soon, and are deleted.
func (w *world) manyWaiting(runs int) {
	now := w.readClock()
	yesterday, postedAt := now.Add(-24*time.Hour).UnixMicro(), now.Add(time.Minute).UnixMicro()
	var ids []uuid.UUID
	for n := range runs {
		ids = append(ids, store.Stamp(uuid.New(), yesterday, n))
	}
	for some := range slices.Chunk(ids, 1000) {
		texts := make([]string, len(some))
		for i, id := range some {
			texts[i] = id.String()
		}
		for _, outbox := range []string{"outbox_rollups", "outbox_words"} {
			w.execStatement(`INSERT INTO `+outbox+` (project_id, ended_id, run_ids, posted_at) VALUES ($1, $2, $3, $4)`,
				w.project.ID.String(), texts[0], "{"+strings.Join(texts, ",")+"}", postedAt)
		}
	}
}

var consumedPromises = []promise{
	{"a consumer skips rows that another one will read next", withAgent(func(w *world) {
		w.endEvents(10)
		oldest := func(n int) int64 {
			return w.queryCount(`SELECT posted_at FROM outbox_words WHERE project_id = $1 ORDER BY posted_at LIMIT 1 OFFSET ` + strconv.Itoa(n))
		}
		next, inner := oldest(1), 0
		n, err := w.s.IndexRuns(w.ctx, 1, func(run store.Searched) []string {
			if inner == 0 {
				inner = w.indexRuns(1)
			}
			return wordsIn(run)
		})
		w.NoError(err)
		w.Equal([2]int{1, 1}, [2]int{n, inner})
		w.Equal(next, oldest(0), "others have it")
		w.Positive(w.indexRuns(10))
		w.Len(w.searchBoth(store.RunQuery{}), 10)
	})},
	{"a consumer waits if others consume all rows", withAgent(func(w *world) {
		w.endEvents(2)
		inner := 0
		n, err := w.s.IndexRuns(w.ctx, 1, func(run store.Searched) []string {
			if inner == 0 {
				inner = w.indexRuns(1)
			}
			return wordsIn(run)
		})
		w.NoError(err)
		w.Equal([2]int{0, 1}, [2]int{n, inner})
		w.EqualValues(1, w.queryCount(`SELECT count(*) FROM outbox_words WHERE project_id = $1`))
	})},
	{"a project with many ended runs delays only itself", func(w *world) {
		twin := w.twinProject()
		for _, of := range []*world{w, twin} {
			of.deploy("one", "first")
		}
		w.endEvents(30)
		twin.endEvents(1)
		w.rollUpRows(8)
		w.indexRuns(8)
		for _, outbox := range []string{"outbox_rollups", "outbox_words"} {
			w.Zero(twin.queryCount(`SELECT count(*) FROM ` + outbox + ` WHERE project_id = $1`))
			w.Positive(w.queryCount(`SELECT count(*) FROM `+outbox+` WHERE project_id = $1`), "others have more rows")
		}
	}},
	{"runs of an event share the words of its input", withAgents(func(w *world) {
		e := w.event()
		var given []string
		for n := range 300 {
			given = append(given, "given"+strconv.Itoa(n))
		}
		e.Input, e.ContentType = []byte(strings.Join(given, " ")), "text/plain"
		w.accept(&e)
		var ids []uuid.UUID
		for _, c := range w.claim(2, lease) {
			end := completed(c)
			end.Output = "from" + c.Run.AgentName
			w.NoError(w.complete(end))
			ids = append(ids, c.Run.ID)
		}
		w.countAllStored()
		stored := w.storedBytes()
		w.inOneRow("outbox_words", ids)
		w.Equal(1, w.indexRuns(10))
		w.countAllStored()
		bytes := w.queryCount(`SELECT sum(bytes) FROM run_words WHERE project_id = $1`)
		w.EqualValues(2*128+16*(300+2*1+2+3), bytes, "two rows; terms that are given, that each wrote, of two agents, and that they have in common")
		w.Equal(stored+bytes, w.storedBytes())
		w.EqualValues(1, w.queryCount(`SELECT count(*) FROM run_words WHERE project_id = $1 AND shared <> run_id`))
		w.Len(w.searchBoth(store.RunQuery{}, "given7"), 2)
		for _, agent := range []string{"first", "second"} {
			w.Len(w.searchBoth(store.RunQuery{AgentName: agent}, "given7"), 1)
			w.Len(w.searchBoth(store.RunQuery{}, "from"+agent), 1)
			w.Len(w.searchBoth(store.RunQuery{}, "given299", "from"+agent), 1)
		}
		w.Empty(w.searchBoth(store.RunQuery{}, "fromfirst", "fromsecond"))

		_, err := w.db.ExecContext(w.ctx, `INSERT INTO outbox_words (project_id, ended_id, run_ids, posted_at) VALUES ($1, $2, $3, 0)`,
			w.project.ID.String(), ids[1].String(), "{"+newUUIDv7().String()+"}")
		w.NoError(err, "the rest of the second row")
		for n, id := range ids {
			w.NoError(w.s.EraseRun(w.ctx, w.key(id)))
			left := len(ids) - 1 - n
			w.Zero(w.queryCount(`SELECT count(*) FROM run_words WHERE project_id = $1`), "the others wait to be indexed again")
			w.Len(w.searchBoth(store.RunQuery{}, "given7"), left)
			w.indexRuns(10)
			w.Len(w.searchBoth(store.RunQuery{}, "given7"), left)
			w.EqualValues(left, w.queryCount(`SELECT count(*) FROM run_words WHERE project_id = $1`))
		}
		w.countAllStored()
		w.EqualValues(2*512, w.storedBytes(), "the stored bytes of two rows without words")
	})},
	{"the number of unindexed and unrolled rows read is limited", withAgent(func(w *world) {
		e := w.eventWithWords("oldest")
		w.NoError(w.complete(completed(w.claim(1, lease)[0])))
		q := store.StatisticsQuery{Environment: w.environment.Key(), AgentName: "first", Since: store.TimeOf(e.Runs[0].ID)}
		list := store.RunQuery{ProjectID: w.project.ID, Limit: 3, Search: searchFor("oldest"), Since: q.Since}
		has := func() (listed int, next *uuid.UUID, counted int64) {
			runs, next, err := w.s.ListRuns(w.ctx, list)
			w.NoError(err)
			whole := q
			whole.Since = time.Time{}
			numbers := w.runStatistics(whole)
			return len(runs), next, numbers.Runs[store.RunCompleted]
		}
		listed, next, counted := has()
		w.Equal([]any{1, (*uuid.UUID)(nil), int64(1)}, []any{listed, next, counted})

		exists, err := w.s.HasRuns(w.ctx, w.environment.Key())
		w.NoError(err)
		w.True(exists)

		w.manyWaiting(store.MaxWaiting)
		exists, err = w.s.HasRuns(w.ctx, w.environment.Key())
		w.NoError(err)
		w.False(exists)
		listed, next, counted = has()
		w.Equal([]any{0, int64(0)}, []any{listed, counted})
		w.NotNil(next, "there may be earlier matches")
		list.Before = next
		_, _, err = w.s.ListRuns(w.ctx, list)
		w.ErrorIs(err, store.ErrSearchTooBroad, "until more are indexed")
		q.Search = searchFor("oldest")
		w.ErrorIs(errorOf(w.s.RunStatistics(w.ctx, q)), store.ErrSearchTooBroad)
	})},
	{"rows posted during the last batch wait for more", withAgent(func(w *world) {
		w.endEvents(3)
		some := w.indexRuns(10)
		w.endEvents(3)
		ends := 0
		n, err := w.s.IndexRuns(w.ctx, 100, func(run store.Searched) []string {
			if ends < 3 {
				w.endEvents(1)
				ends++
			}
			return wordsIn(run)
		})
		w.NoError(err)
		w.Equal(some, n)
		w.Positive(w.queryCount(`SELECT count(*) FROM outbox_words WHERE project_id = $1`))
		w.Positive(w.indexRuns(100))
		w.Len(w.searchBoth(store.RunQuery{}), 9, "nothing is lost")
		w.Zero(w.queryCount(`SELECT count(*) FROM outbox_words WHERE project_id = $1`))
	})},
	{"a failing rollup row is set aside and blocks no other", withAgents(func(w *world) {
		now, err := w.s.Now(w.ctx)
		w.NoError(err)
		ended := func(i int, agent string) uuid.UUID {
			run := pastRun{id: store.Stamp(newUUIDv7(), now.UnixMicro(), i), environment: w.environment.ID, agent: agent, status: store.RunCompleted, began: true}
			run.insertInto(w)
			return run.id
		}
		ended(0, "first")
		w.rollUpAll(10)
		var sketch []byte
		w.NoError(w.db.QueryRowContext(w.ctx, `SELECT durations FROM run_rollups WHERE project_id = $1 AND grain = 'hour'`, w.project.ID.String()).Scan(&sketch))
		w.updateRows(`UPDATE run_rollups SET durations = $2`, []byte("none"))
		var runs []uuid.UUID
		for i, agent := range []string{"first", "second", "second", "first", "second"} {
			runs = append(runs, ended(i+1, agent))
		}
		w.inOneRow("outbox_rollups", runs)
		other := w.twinProject()
		other.deploy("one", "first")
		other.endEvents(1)
		aside := 0
		for n := 1; n > 0; {
			var found *store.SetAsideError
			n, err = w.s.RollUp(w.ctx, 100)
			if err != nil {
				w.ErrorAs(err, &found)
				aside += len(found.Rows)
			}
		}
		w.Equal(2, aside)
		w.EqualValues(1, other.queryCount(`SELECT sum(runs) FROM run_rollups WHERE project_id = $1 AND grain = 'hour'`), "the failing row is another one")
		w.EqualValues(3, w.queryCount(`SELECT sum(runs) FROM run_rollups WHERE project_id = $1 AND grain = 'hour' AND agent_name = 'second'`), "neither are these")
		w.EqualValues(2, w.readFigures().OutboxAside)
		w.updateRows(`UPDATE outbox_rollups SET posted_at = 1`)
		w.updateRows(`UPDATE run_rollups SET durations = $2`, sketch)
		w.rollUpAll(10)
		w.EqualValues(6, w.queryCount(`SELECT sum(runs) FROM run_rollups WHERE project_id = $1 AND grain = 'hour'`), "nothing is lost")
		w.Zero(w.queryCount(`SELECT count(*) FROM outbox_rollups WHERE project_id = $1`))
	})},
	{"a failing row is halved beside a row that has the ID of one of its runs", withAgent(func(w *world) {
		ids := w.endMany(3)
		w.inOneRow("outbox_words", ids[:2])
		_, err := w.db.ExecContext(w.ctx, `INSERT INTO outbox_words (project_id, ended_id, run_ids, posted_at) VALUES ($1, $2, $3, 2)`,
			w.project.ID.String(), ids[1].String(), "{"+ids[2].String()+"}")
		w.NoError(err, "the rest of a row whose first run was indexed, erased and posted again")
		cure := w.failWrites("INSERT", "run_words", "run_id", ids[0])
		w.NoError(errorOf(w.s.IndexRuns(w.ctx, 1, wordsIn)))
		w.EqualValues(3, w.countRunsIn(`SELECT run_ids FROM outbox_words WHERE project_id = $1`), "each half is tried again")
		w.EqualValues(3, w.queryCount(`SELECT count(*) FROM outbox_words WHERE project_id = $1`))
		cure()
		for w.indexRuns(10) > 0 {
		}
		w.EqualValues(3, w.queryCount(`SELECT count(*) FROM run_words WHERE project_id = $1`))
	})},
	{"a row with many words is indexed in parts", withAgent(func(w *world) {
		const runs = 25
		var ids []uuid.UUID
		for _, e := range w.singles(runs) {
			ids = append(ids, e.Runs[0].ID)
		}
		for _, c := range w.claim(runs, lease) {
			w.NoError(w.complete(completed(c)))
		}
		w.inOneRow("outbox_words", ids)
		words := func(run store.Searched) (all []string) {
			for i := range 9_000 {
				all = append(all, strconv.Itoa(i))
			}
			return all
		}
		indexed := func() int64 { return w.queryCount(`SELECT count(*) FROM run_words WHERE project_id = $1`) }
		for before := int64(0); before < runs; {
			n, err := w.s.IndexRuns(w.ctx, 1, words)
			w.NoError(err)
			w.Equal(1, n)
			w.Greater(indexed(), before)
			w.LessOrEqual(indexed(), before+12, "100,000 terms are enough for once")
			before = indexed()
			w.EqualValues(runs-before, w.countRunsIn(`SELECT run_ids FROM outbox_words WHERE project_id = $1`))
		}
		w.requireNone(w.s.IndexRuns(w.ctx, 1, words))
	})},
	{"a row with many runs is rolled up in parts", withAgent(func(w *world) {
		now := w.readClock()
		const runs = 2_100
		var ids []uuid.UUID
		for i := range runs {
			run := pastRun{id: store.Stamp(newUUIDv7(), now.UnixMicro(), i), environment: w.environment.ID, agent: "first", status: store.RunCompleted}
			run.insertInto(w)
			ids = append(ids, run.id)
		}
		w.inOneRow("outbox_rollups", ids)
		rolledUp := func() int64 {
			return w.queryCount(`SELECT COALESCE(sum(runs), 0) FROM run_rollups WHERE project_id = $1 AND grain = 'hour'`)
		}
		w.Equal(1, w.rollUpRows(1))
		first := rolledUp()
		w.Positive(first)
		w.Less(first, int64(runs))
		w.EqualValues(runs-first, w.countRunsIn(`SELECT run_ids FROM outbox_rollups WHERE project_id = $1`))
		w.Positive(w.rollUpRows(10))
		w.EqualValues(runs, rolledUp(), "a call continues with the rest of a row, up to its limit")
		w.Zero(w.rollUpRows(1))
	})},
}

// countRunsIn returns the number of runs in the lists of IDs that a statement selects.
func (w *world) countRunsIn(statement string) (n int) {
	rows, err := w.db.QueryContext(w.ctx, statement, w.project.ID.String())
	w.NoError(err)
	defer func() { w.NoError(rows.Close()) }()
	for rows.Next() {
		var list string
		w.NoError(rows.Scan(&list))
		n += strings.Count(list, ",") + 1
	}
	w.NoError(rows.Err())
	return n
}
