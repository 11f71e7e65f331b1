// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// aroundInline are sizes around the limit of texts in rows.
var aroundInline = []int{store.MaxInlineText - 1, store.MaxInlineText, store.MaxInlineText + 1, store.BlobChunk + 1, 1 << 20}

// variedText returns a text of this size without repetitions, whose characters do not end at chunk
// boundaries.
func variedText(bytes int) string {
	var b strings.Builder
	b.WriteString(textOf(bytes % 8))
	for i := range bytes / 8 {
		fmt.Fprintf(&b, "%06xé", i)
	}
	return b.String()
}

// answerOfSize returns a journal entry with data of this size.
func answerOfSize(sequence int64, bytes int) store.JournalEntry {
	return store.JournalEntry{Sequence: sequence, Kind: store.JournalModelAnswer, Data: json.RawMessage(`"` + variedText(bytes-2) + `"`)}
}

// sameEntries compares entries without printing their data.
func (w *world) sameEntries(want, got []store.JournalEntry) {
	w.Len(got, len(want))
	for i, e := range want {
		w.Equal(e.Sequence, got[i].Sequence)
		w.Equal(e.Kind, got[i].Kind)
		w.True(string(e.Data) == string(got[i].Data), "entry %d of %d bytes has %d", e.Sequence, len(e.Data), len(got[i].Data))
	}
}

// recorded checks that every read of a run's journal returns these entries.
func (w *world) recorded(run uuid.UUID, want []store.JournalEntry) {
	got := w.readJournal(w.key(run))
	w.sameEntries(want, got)
	w.sameEntries(want, w.readPages(run, store.MaxEntries))
	w.sameEntries(want, w.readPages(run, 2))
}

// readPages reads a journal in pages and checks their sizes.
func (w *world) readPages(run uuid.UUID, limit int) (all []store.JournalEntry) {
	var after int64
	for {
		page, err := w.s.JournalAfter(w.ctx, w.key(run), after, limit)
		w.NoError(err)
		w.LessOrEqual(len(page), limit)
		size := 0
		for _, e := range page {
			size, after = size+len(e.Data), e.Sequence
		}
		w.LessOrEqual(size, store.MaxJournalPage)
		all = append(all, page...)
		if store.LastJournalPage(page, limit) {
			next, err := w.s.JournalAfter(w.ctx, w.key(run), after, limit)
			w.NoError(err)
			w.Empty(next, "it is the last one")
			return all
		}
	}
}

// requireOutput checks that every read of an ended run returns this output.
func (w *world) requireOutput(event, run uuid.UUID, output string) {
	w.True(w.run(run).Output == output, "%d bytes", len(output))
	for _, r := range w.outcome(event).Runs {
		if r.ID == run {
			w.True(r.Output == output, "%d bytes", len(output))
		}
	}
	listed := w.listRuns(store.RunQuery{ProjectID: w.project.ID, Limit: 100})
	for _, r := range listed {
		w.Empty(r.Output)
	}
}

// queryCount returns a count that a query selects.
func (w *world) queryCount(query string) (n int64) {
	w.NoError(w.db.QueryRowContext(w.ctx, query, w.project.ID.String()).Scan(&n))
	return n
}

// keptBlobs checks that so many outputs and entries are in marked blobs, and that there is no other
// blob except bundles.
func (w *world) keptBlobs(want int) {
	w.EqualValues(want, w.queryCount(`SELECT (SELECT count(*) FROM ended_runs r JOIN blobs b ON b.project_id = r.project_id AND b.id = r.output_blob_id
			WHERE r.project_id = $1 AND b.complete AND b.mark = 'history' AND r.output = '')
		+ (SELECT count(*) FROM journal j JOIN blobs b ON b.project_id = j.project_id AND b.id = j.blob_id
			WHERE j.project_id = $1 AND b.complete AND b.mark = 'history' AND j.data IS NULL)`), "they are in blobs")
	w.EqualValues(want, w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1 AND mark <> 'bundle'`), "there are no others")
	w.Zero(w.queryCount(`SELECT count(*) FROM blob_chunks c WHERE project_id = $1
		AND NOT EXISTS (SELECT 1 FROM blobs b WHERE b.project_id = c.project_id AND b.id = c.blob_id)`))
}

// largeCompletion returns the completion of a claim with an output and an entry that are too large for rows.
func largeCompletion(c store.Claimed) store.Completion {
	done := completed(c)
	done.Output = variedText(store.MaxInlineText + 1)
	done.Journal = []store.JournalEntry{answerOfSize(c.JournalLength+1, store.MaxInlineText+2)}
	return done
}

// drawSize draws a text size just below or above the limit of rows; mostly 0, for a short text.
func drawSize(rt *rapid.T) int {
	return rapid.SampledFrom([]int{0, 0, 0, 0, 0, store.MaxInlineText - 1, store.MaxInlineText, store.MaxInlineText + 1}).Draw(rt, "size")
}

// missing runs do while a table is missing.
func (w *world) missing(table string, do func()) {
	rename := func(from, to string) {
		w.execStatement(`ALTER TABLE ` + from + ` RENAME TO ` + to)
	}
	rename(table, "elsewhere")
	do()
	rename("elsewhere", table)
}

var largePromises = []promise{
	{"outputs and entries of any size are read unchanged", withAgent(func(w *world) {
		for _, size := range aroundInline {
			e, c := w.running(lease)
			appended := []store.JournalEntry{answerOfSize(1, size), newEntry(2, store.JournalToolStarted, false), answerOfSize(3, size)}
			w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), appended))
			w.recorded(c.Run.ID, appended)
			w.Empty(w.run(c.Run.ID).Output)
			done := completed(c)
			done.Output, done.Journal = variedText(size), []store.JournalEntry{answerOfSize(4, size)}
			w.NoError(w.complete(done))
			w.recorded(c.Run.ID, append(appended, done.Journal...))
			w.requireOutput(e.ConnectorRunID, c.Run.ID, done.Output)
		}
		w.keptBlobs(3 * 4)
	})},
	{"suspensions and resumptions may be large", withAgent(func(w *world) {
		e, c := w.running(lease)
		before, data := answerOfSize(1, 100_000), answerOfSize(2, 200_000).Data
		w.ErrorIs(w.s.Resume(w.ctx, c.Run.Key(), data), store.ErrConflict, "it does not wait")
		w.keptBlobs(0)
		w.NoError(w.s.Suspend(w.ctx, store.Suspension{Lease: leaseOf(c), For: time.Hour, Journal: []store.JournalEntry{before}}))
		w.NoError(w.s.Resume(w.ctx, c.Run.Key(), data))
		w.ErrorIs(w.s.Resume(w.ctx, c.Run.Key(), data), store.ErrConflict)
		again := w.claim(1, lease)
		w.EqualValues(2, again[0].JournalLength)
		w.NoError(w.complete(largeCompletion(again[0])))
		w.recorded(c.Run.ID, []store.JournalEntry{before, {Sequence: 2, Kind: store.JournalResumed, Data: data}, largeCompletion(again[0]).Journal[0]})
		w.requireOutput(e.ConnectorRunID, c.Run.ID, largeCompletion(again[0]).Output)
		w.keptBlobs(4)
	})},
	{"an entry too large for its row is recorded once", withAgent(func(w *world) {
		_, c := w.running(lease)
		entries := []store.JournalEntry{answerOfSize(1, 100_000), answerOfSize(2, 100), answerOfSize(3, 70_000)}
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), entries[:1]))
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), entries[:1]), "again")
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), entries[:2]), "some again")
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{entries[1], entries[2], answerOfSize(3, 90_000)}), "one twice")
		w.recorded(c.Run.ID, entries)
		w.ErrorIs(w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{answerOfSize(5, 100_000)}), store.ErrConflict, "a gap")
		done := largeCompletion(c)
		done.Journal = []store.JournalEntry{entries[2], answerOfSize(4, 80_000)}
		w.NoError(w.complete(done), "its journal is partly repeated")
		w.recorded(c.Run.ID, append(entries, done.Journal[1]))
		w.keptBlobs(4)
	})},
	{"a journal is limited, in rows and blobs", withAgent(func(w *world) {
		e, c := w.running(lease)
		var all []store.JournalEntry
		size, small := int64(0), 0
		for n := int64(1); ; n++ {
			next := answerOfSize(n, []int{1 << 20, 60_000, 300_000, 70_000}[n%4])
			if size += next.Size(); size > store.MaxJournal {
				w.ErrorIs(w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{next}), store.ErrTooLarge)
				break
			}
			w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{next}))
			if all = append(all, next); len(next.Data) <= store.MaxInlineText {
				small++
			}
		}
		w.Greater(len(all), 20)
		w.recorded(c.Run.ID, all)
		done := largeCompletion(c)
		done.Journal, done.FinishReason = []store.JournalEntry{answerOfSize(int64(len(all))+1, 1<<20)}, "stop"
		w.NoError(w.complete(done))
		w.Equal(runerror.JournalTooLarge, w.run(c.Run.ID).ErrorCode)
		w.Equal("stop", w.run(c.Run.ID).FinishReason)
		w.requireOutput(e.ConnectorRunID, c.Run.ID, "")
		w.keptBlobs(len(all) - small)
	})},
	{"contents of blobs count as stored", withAgent(func(w *world) {
		w.endEvents(1)
		w.countStored(10)
		least := w.storedBytes()
		_, c := w.running(lease)
		first, done := answerOfSize(1, 100_000), largeCompletion(c)
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{first}))
		done.Journal[0].Sequence = 2
		w.NoError(w.complete(done))
		w.NoError(w.complete(done), "again")
		w.countStored(10)
		w.Equal(2*least+int64(len(done.Output)-len("done"))+first.Size()+done.Journal[0].Size(), w.storedBytes())
	})},
}

// largeFailures are about blobs whose transaction failed.
var largeFailures = []promise{
	{"a caller without a claim writes no blob", withAgent(func(w *world) {
		_, c := w.running(lease)
		w.NoError(w.s.Release(w.ctx, leaseOf(c), 0))
		w.missing("blobs", func() { // a write would fail the call
			w.ErrorIs(w.complete(largeCompletion(c)), store.ErrFenced)
			w.ErrorIs(w.s.AppendJournal(w.ctx, leaseOf(c), largeCompletion(c).Journal), store.ErrFenced)
			w.ErrorIs(w.s.Suspend(w.ctx, store.Suspension{Lease: leaseOf(c), For: time.Hour, Journal: largeCompletion(c).Journal}), store.ErrFenced)
		})
		again := w.claim(1, lease)[0]
		w.NoError(w.complete(largeCompletion(again)))
		w.missing("blobs", func() {
			w.NoError(w.complete(largeCompletion(again)), "a repetition")
			w.ErrorIs(w.complete(largeCompletion(c)), store.ErrFenced)
		})
		w.keptBlobs(2)
	})},
	{"a claim lost meanwhile leaves no blob", withAgent(func(w *world) {
		_, c := w.running(expired)
		w.Equal(1, w.sweep(10))
		// Its runner might revive it, so the blobs are written.
		w.ErrorIs(w.complete(largeCompletion(c)), store.ErrFenced)
		w.ErrorIs(w.s.AppendJournal(w.ctx, leaseOf(c), largeCompletion(c).Journal), store.ErrFenced)
		w.keptBlobs(0)
		w.requireNone(w.s.Heartbeat(w.ctx, w.environment.Key(), heldClaims(leaseOf(c)), lease))
		w.NoError(w.complete(largeCompletion(c)))
		w.keptBlobs(2)
	})},
	{"blobs of a failed transaction are unmarked", withAgent(func(w *world) {
		e, c := w.running(lease)
		w.missing("outbox", func() {
			w.Error(w.complete(largeCompletion(c)))
			w.Equal(store.RunRunning, w.run(c.Run.ID).Status)
			w.recorded(c.Run.ID, nil)
		})
		w.keptBlobs(0)
		w.missing("model_calls", func() {
			costly := answerOfSize(1, 100_000)
			costly.Usage = &store.ModelUsage{Model: "p/m"}
			w.Error(w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{costly}))
		})
		w.keptBlobs(0)
		w.NoError(w.complete(largeCompletion(c)))
		w.requireOutput(e.ConnectorRunID, c.Run.ID, largeCompletion(c).Output)
		w.recorded(c.Run.ID, largeCompletion(c).Journal)
		w.keptBlobs(2)
	})},
	{"an unmarked blob is swept, a marked one is not", withAgent(func(w *world) {
		e, c := w.running(lease)
		w.NoError(w.complete(largeCompletion(c)))
		w.NoError(errorOf(w.s.PutBlob(w.ctx, w.key(newUUIDv7()), strings.NewReader(variedText(100_000)))))
		w.updateRows(`UPDATE blobs SET created_at = created_at - $2`, (25 * time.Hour).Microseconds())
		w.NoError(errorOf(w.s.SweepExpired(w.ctx, 100)))
		w.keptBlobs(2)
		w.requireOutput(e.ConnectorRunID, c.Run.ID, largeCompletion(c).Output)
	})},
	{"each large completion of a call has its own result", withAgent(func(w *world) {
		w.singles(5)
		w.acceptEvent(w.contender("a key"))
		c := w.claim(6, lease)
		w.Len(c, 6)
		w.NoError(w.s.Release(w.ctx, leaseOf(c[1]), time.Hour))
		w.NoError(w.complete(largeCompletion(c[2])))
		gap := largeCompletion(c[3])
		gap.Journal[0].Sequence = 2
		answers, err := w.s.Complete(w.ctx, []store.Completion{
			largeCompletion(c[0]), largeCompletion(c[1]), largeCompletion(c[2]), gap, completed(c[4]), largeCompletion(c[5]), largeCompletion(c[0]),
		})
		w.NoError(err)
		for i, want := range []error{nil, store.ErrFenced, nil, store.ErrConflict, nil, nil, nil} {
			w.ErrorIs(answers[i], want, "answer %d", i)
		}
		for _, i := range []int{0, 2, 5} {
			w.True(w.run(c[i].Run.ID).Output == largeCompletion(c[i]).Output)
			w.recorded(c[i].Run.ID, largeCompletion(c[i]).Journal)
		}
		w.keptBlobs(6)
		w.noSlots()
		transactions, _ := w.uncounted()
		w.Equal(3, transactions, "the previous one, small values, large values")
	})},
	{"concurrent ends of a run leave its blobs and no others", withAgent(func(w *world) {
		e, c := w.running(lease)
		w.NoError(together(func(int) error { return w.complete(largeCompletion(c)) }))
		w.requireOutput(e.ConnectorRunID, c.Run.ID, largeCompletion(c).Output)
		w.keptBlobs(2)
	})},
}
