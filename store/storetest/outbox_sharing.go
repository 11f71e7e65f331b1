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

// wordsPerRun is the number of words of a run in these tests. The runs of one transaction reach its
// limit of terms after about eleven runs.
const wordsPerRun = 9_000

func heavyWords(store.Searched) (all []string) {
	for i := range wordsPerRun {
		all = append(all, strconv.Itoa(i))
	}
	return all
}

// endMany ends n runs of the project and returns their IDs.
func (w *world) endMany(n int) (ids []uuid.UUID) {
	w.singles(n)
	for len(ids) < n {
		for _, c := range w.claim(min(n-len(ids), store.MaxCandidates), lease) {
			w.NoError(w.complete(completed(c)))
			ids = append(ids, c.Run.ID)
		}
	}
	return ids
}

// postRows puts IDs into a column of an outbox, a number of them per row. Any earlier rows of the
// project in this outbox are deleted.
func (w *world) postRows(outbox, column string, perRow int, ids []uuid.UUID) {
	w.updateRows(`DELETE FROM ` + outbox)
	for some := range slices.Chunk(ids, perRow) {
		texts := make([]string, len(some))
		for i, id := range some {
			texts[i] = id.String()
		}
		columns, values := column, `$3`
		if column != "run_ids" {
			columns, values = column+`, run_ids`, `$3, '{}'`
		}
		w.execStatement(`INSERT INTO `+outbox+` (project_id, ended_id, posted_at, `+columns+`) VALUES ($1, $2, 1, `+values+`)`,
			w.project.ID.String(), texts[0], "{"+strings.Join(texts, ",")+"}")
	}
}

// stampedIDs returns n IDs of a time. No rows have them.
func stampedIDs(at time.Time, n int) (ids []uuid.UUID) {
	for i := range n {
		ids = append(ids, store.Stamp(uuid.New(), at.UnixMicro(), i))
	}
	return ids
}

// inOrder returns two worlds in the order of their project IDs.
func inOrder(a, b *world) (first, second *world) {
	if b.project.ID.String() < a.project.ID.String() {
		return b, a
	}
	return a, b
}

var outboxSharingPromises = []promise{
	{"index entries count as stored once if two gateways index the same row", withAgent(func(w *world) {
		const runs = 25
		w.postRows("outbox_words", "run_ids", runs, w.endMany(runs))
		w.updateRows(`DELETE FROM outbox`)
		other := 0
		n, err := w.s.IndexRuns(w.ctx, 1, func(run store.Searched) []string {
			if other == 0 { // after this gateway has read the row
				var err error
				other, err = w.s.IndexRuns(w.ctx, 1, heavyWords)
				w.NoError(err)
			}
			return heavyWords(run)
		})
		w.NoError(err)
		w.Equal([2]int{0, 1}, [2]int{n, other}, "the rest of the row is no work of the second gateway")
		check := func() {
			entries := w.queryCount(`SELECT COALESCE(SUM(bytes), 0) FROM run_words WHERE project_id = $1`)
			w.Equal(entries, w.queryCount(`SELECT COALESCE(SUM(bytes), 0) FROM outbox WHERE consumer = 'storage' AND project_id = $1`))
		}
		check()
		for n := 1; n > 0; {
			n, err = w.s.IndexRuns(w.ctx, 1, heavyWords)
			w.NoError(err)
		}
		w.EqualValues(runs, w.queryCount(`SELECT count(*) FROM run_words WHERE project_id = $1`))
		check()
	})},
	{"entries that the index has do not count again", withAgent(func(w *world) {
		ids := w.endMany(2)
		w.indexRuns(10)
		w.countAllStored()
		stored := w.storedBytes()
		w.postRows("outbox_words", "run_ids", 2, ids)
		w.Equal(1, w.indexRuns(10))
		w.countAllStored()
		w.Equal(stored, w.storedBytes())
	})},
	{"runs with many words of one project do not delay the index of another", func(w *world) {
		twin := w.twinProject()
		busy, light := inOrder(w, twin)
		for _, of := range []*world{busy, light} {
			of.deploy("one", "first")
		}
		light.endEvents(1)
		busy.postRows("outbox_words", "run_ids", 25, busy.endMany(50))
		w.NoError(errorOf(w.s.IndexRuns(w.ctx, 2, heavyWords)))
		w.Zero(light.queryCount(`SELECT count(*) FROM outbox_words WHERE project_id = $1`))
		w.Positive(busy.queryCount(`SELECT count(*) FROM run_words WHERE project_id = $1`))
		w.Positive(busy.queryCount(`SELECT count(*) FROM outbox_words WHERE project_id = $1`), "the project has a backlog")
	}},
	{"many runs of one project do not delay the statistics of another", func(w *world) {
		now := w.readClock()
		twin := w.twinProject()
		for _, column := range []string{"run_ids", "connector_run_ids"} {
			for _, of := range [][2]*world{{w, twin}, {twin, w}} {
				busy, light := of[0], of[1]
				busy.postRows("outbox_rollups", "run_ids", 2_500, stampedIDs(now, 5_000))
				light.postRows("outbox_rollups", column, 1, stampedIDs(now, 1))
				w.NoError(errorOf(w.s.RollUp(w.ctx, 2)))
				w.Zero(light.queryCount(`SELECT count(*) FROM outbox_rollups WHERE project_id = $1`), column)
				w.Positive(busy.queryCount(`SELECT count(*) FROM outbox_rollups WHERE project_id = $1`), "the project has a backlog")
			}
		}
	}},
	{"many runs of a project do not delay the statistics of its connectors", func(w *world) {
		now := w.readClock()
		w.postRows("outbox_rollups", "run_ids", 5_000, stampedIDs(now, 5_000))
		w.updateRows(`UPDATE outbox_rollups SET connector_run_ids = $2`, "{"+newUUIDv7().String()+"}")
		w.NoError(errorOf(w.s.RollUp(w.ctx, 1)))
		w.EqualValues(1, w.queryCount(`SELECT count(*) FROM outbox_rollups WHERE project_id = $1 AND connector_run_ids = '{}'`))
	}},
}
