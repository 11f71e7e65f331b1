// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// savedFileOf describes a file with a text.
func savedFileOf(id, text string) store.SavedFile {
	digest := sha256.Sum256([]byte(text))
	return store.SavedFile{ID: id, Name: "a \"b\" <ä>", MIMEType: "text/plain", Size: int64(len(text)), SHA256: hex.EncodeToString(digest[:])}
}

// saveEntries returns the entries that save a file.
func saveEntries(sequence int64, file store.SavedFile) []store.JournalEntry {
	data, err := json.Marshal(file)
	if err != nil {
		panic(err) // impossible: it has texts and a number
	}
	return []store.JournalEntry{{Sequence: sequence, Kind: store.JournalFile, Data: data}, newEntry(sequence+1, store.JournalToolResult, false)}
}

// saveText saves a text as a file.
func (w *world) saveText(l store.Lease, sequence int64, id, text string) error {
	return w.s.SaveFile(w.ctx, l, saveEntries(sequence, savedFileOf(id, text)), strings.NewReader(text))
}

// requireSaved checks that a run has these files, by their IDs and texts in turn, and no other blobs.
func (w *world) requireSaved(run store.Key, idsAndTexts ...string) {
	files, err := w.s.RunSavedFiles(w.ctx, run)
	w.NoError(err)
	w.Len(files, len(idsAndTexts)/2)
	for i, file := range files {
		id, text := idsAndTexts[2*i], idsAndTexts[2*i+1]
		w.Equal(savedFileOf(id, text), file)
		for _, offset := range []int{0, 1, store.BlobChunk - 1, store.BlobChunk, store.BlobChunk + 1, len(text) - 1, len(text), len(text) + 1, 1 << 30} {
			got, body, err := w.s.OpenSavedFile(w.ctx, run, id, int64(offset))
			w.True(string(w.readAll(body, err)) == text[min(max(offset, 0), len(text)):], "from %d of %d bytes", offset, len(text))
			w.Equal(file, got)
		}
	}
	_, _, err = w.s.OpenSavedFile(w.ctx, run, "other", 0)
	w.ErrorIs(err, store.ErrNotFound)
	w.EqualValues(len(files), w.queryCount(`SELECT count(*) FROM journal j JOIN blobs b ON b.project_id = j.project_id AND b.id = j.blob_id
		WHERE j.project_id = $1 AND j.kind = 'file' AND j.data IS NOT NULL AND b.complete AND b.mark = 'history'`))
	w.EqualValues(len(files), w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1 AND mark <> 'bundle'`), "there are no other blobs")
}

var savedFilePromises = []promise{
	{"a saved file is read with its run, and its bytes are no part of the journal", withAgent(func(w *world) {
		_, c := w.running(lease)
		w.requireSaved(c.Run.Key())
		long := variedText(2*store.BlobChunk + 7)
		w.NoError(w.saveText(leaseOf(c), 1, "s1", "first text"))
		w.NoError(w.saveText(leaseOf(c), 3, "s2", long))
		for range 2 { // first of an open run, then of an ended run
			w.requireSaved(c.Run.Key(), "s1", "first text", "s2", long)
			want := append(saveEntries(1, savedFileOf("s1", "first text")), saveEntries(3, savedFileOf("s2", long))...)
			w.recorded(c.Run.ID, want)
			if w.run(c.Run.ID).Status == store.RunRunning {
				w.NoError(w.complete(completed(c)))
			}
		}
	})},
	{"a repeated save stores nothing, and a stale one neither", withAgent(func(w *world) {
		_, c := w.running(lease)
		w.NoError(w.saveText(leaseOf(c), 1, "s1", "text"))
		w.missing("blobs", func() { // a write would fail the call
			w.NoError(w.saveText(leaseOf(c), 1, "s1", "text"), "again")
			w.ErrorIs(w.saveText(leaseOf(c), 4, "s2", "text"), store.ErrConflict, "a gap")
		})
		w.NoError(w.s.Release(w.ctx, leaseOf(c), 0))
		w.missing("blobs", func() { w.ErrorIs(w.saveText(leaseOf(c), 3, "s2", "text"), store.ErrFenced) })
		again := w.claim(1, lease)[0]
		w.ErrorIs(w.saveText(leaseOf(c), 3, "s2", "text"), store.ErrFenced)
		w.ErrorIs(w.saveText(leaseOf(again), 1, "s1", "text"), store.ErrConflict, "another claim wrote it")
		w.NoError(w.saveText(leaseOf(again), 3, "s2", "text"))
		w.requireSaved(c.Run.Key(), "s1", "text", "s2", "text")
	})},
	{"a repeated entry of another kind is a conflict", withAgent(func(w *world) {
		_, c := w.running(lease)
		w.NoError(w.saveText(leaseOf(c), 1, "s1", "text"))
		rejected := []store.JournalEntry{newEntry(1, "step", false), newEntry(2, store.JournalToolResult, false)}
		further := append(rejected[:2:2], newEntry(3, store.JournalToolResult, false))
		for name, entries := range map[string][]store.JournalEntry{"repeated": rejected, "with a further entry": further} {
			w.ErrorIs(w.s.AppendJournal(w.ctx, leaseOf(c), entries), store.ErrConflict, name)
			done := completed(c)
			done.Journal = entries
			w.ErrorIs(w.complete(done), store.ErrConflict, "%s at the end", name)
		}
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{newEntry(3, "step", false)}))
		w.ErrorIs(w.saveText(leaseOf(c), 3, "s2", "text"), store.ErrConflict, "a late save")
		w.requireSaved(c.Run.Key(), "s1", "text")
	})},
	{"a save is checked", withAgent(func(w *world) {
		_, c := w.running(lease)
		file, text := savedFileOf("s1", "text"), "text"
		change := func(do func(f *store.SavedFile)) []store.JournalEntry {
			changed := file
			do(&changed)
			return saveEntries(1, changed)
		}
		for name, row := range map[string]struct {
			entries []store.JournalEntry
			want    error
		}{
			"other bytes":  {change(func(f *store.SavedFile) { f.SHA256 = strings.Repeat("0", 64) }), store.ErrInvalid},
			"fewer bytes":  {change(func(f *store.SavedFile) { f.Size = 5 }), store.ErrInvalid},
			"more bytes":   {change(func(f *store.SavedFile) { f.Size = 3 }), store.ErrInvalid},
			"no digest":    {change(func(f *store.SavedFile) { f.SHA256 = "x" }), store.ErrInvalid},
			"no ID":        {change(func(f *store.SavedFile) { f.ID = "" }), store.ErrInvalid},
			"no type":      {change(func(f *store.SavedFile) { f.MIMEType = "" }), store.ErrInvalid},
			"a header":     {change(func(f *store.SavedFile) { f.MIMEType = "text/plain\r\nX: y" }), store.ErrInvalid},
			"a long type":  {change(func(f *store.SavedFile) { f.MIMEType = "text/" + strings.Repeat("x", 123) }), store.ErrInvalid},
			"a path as ID": {change(func(f *store.SavedFile) { f.ID = "../s1" }), store.ErrInvalid},
			"a long name":  {change(func(f *store.SavedFile) { f.Name = strings.Repeat("n", store.MaxFileName+1) }), store.ErrInvalid},
			"a large file": {change(func(f *store.SavedFile) { f.Size = store.MaxSavedFile + 1 }), store.ErrTooLarge},
			"no file":      {saveEntries(1, file)[1:], store.ErrInvalid},
			"two files":    {append(saveEntries(1, file), saveEntries(3, file)...), store.ErrInvalid},
			"a sequence of two entries": {
				[]store.JournalEntry{newEntry(1, store.JournalToolResult, false), saveEntries(1, file)[0]}, store.ErrInvalid,
			},
			"a gap":   {[]store.JournalEntry{saveEntries(1, file)[0], newEntry(3, store.JournalToolResult, false)}, store.ErrInvalid},
			"no JSON": {[]store.JournalEntry{{Sequence: 1, Kind: store.JournalFile, Data: json.RawMessage(`"text"`)}}, store.ErrInvalid},
			"a large entry": {
				[]store.JournalEntry{{Sequence: 1, Kind: store.JournalFile, Data: json.RawMessage(`"` + strings.Repeat("x", 64<<10) + `"`)}}, store.ErrTooLarge,
			},
		} {
			w.ErrorIs(w.s.SaveFile(w.ctx, leaseOf(c), row.entries, strings.NewReader(text)), row.want, name)
		}
		w.ErrorIs(w.s.AppendJournal(w.ctx, leaseOf(c), saveEntries(1, file)), store.ErrInvalid, "without its bytes")
		done := completed(c)
		done.Journal = saveEntries(1, file)
		w.NoError(w.complete(done))
		w.Equal(store.RunFailed, w.run(c.Run.ID).Status, "its trailing entries have no bytes")
		w.recorded(c.Run.ID, nil)
		w.requireSaved(c.Run.Key())
	})},
	{"a run saves an ID once", withAgent(func(w *world) {
		_, c := w.running(lease)
		w.NoError(w.saveText(leaseOf(c), 1, "s1", "text"))
		w.missing("blobs", func() { w.ErrorIs(w.saveText(leaseOf(c), 3, "s1", "other"), store.ErrInvalid) })
		w.requireSaved(c.Run.Key(), "s1", "text")
	})},
	{"the entry of a file can have long texts of a model", withAgent(func(w *world) {
		_, c := w.running(lease)
		entries := saveEntries(1, savedFileOf("s1", "text"))
		entries[0].Data = append(entries[0].Data[:len(entries[0].Data)-1], `,"call_id":"`+strings.Repeat("c", 60<<10)+`"}`...)
		w.NoError(w.s.SaveFile(w.ctx, leaseOf(c), entries, strings.NewReader("text")))
		w.requireSaved(c.Run.Key(), "s1", "text")
		w.recorded(c.Run.ID, entries)
	})},
	{"a project with full storage saves no further file", withAgent(func(w *world) {
		_, c := w.running(lease)
		w.NoError(w.saveText(leaseOf(c), 1, "s1", "text"))
		w.countStored(10)
		w.project.Limits.Storage = 1
		w.project.Ref.Generation++
		w.NoError(w.s.PutProject(w.ctx, w.project))
		w.missing("blobs", func() {
			var full *store.StorageFullError
			w.ErrorAs(w.saveText(leaseOf(c), 3, "s2", "text"), &full)
			w.NoError(w.saveText(leaseOf(c), 1, "s1", "text"), "again")
		})
		w.requireSaved(c.Run.Key(), "s1", "text")
	})},
	{"the bytes of a run's files are limited", withAgent(func(w *world) {
		_, c := w.running(lease)
		full := strings.Repeat("x", store.MaxSavedFile)
		for i := range int64(5) {
			w.NoError(w.saveText(leaseOf(c), 2*i+1, fmt.Sprintf("s%d", i+1), full[:len(full)-int(i/4)]), "file %d", i)
		}
		w.ErrorIs(w.saveText(leaseOf(c), 11, "s6", "xx"), store.ErrTooLarge, "one byte beyond the limit")
		w.NoError(w.saveText(leaseOf(c), 11, "s6", "x"), "at the limit")
		w.ErrorIs(w.saveText(leaseOf(c), 13, "s7", "x"), store.ErrTooLarge)
		w.NoError(w.saveText(leaseOf(c), 13, "s7", ""))
		w.EqualValues(7, w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1 AND mark = 'history'`))
		w.EqualValues(store.MaxSavedBytes, w.queryCount(`SELECT sum(size) FROM blobs WHERE project_id = $1 AND mark = 'history'`))
	})},
	{"the number of a run's files is limited", withAgent(func(w *world) {
		_, c := w.running(lease)
		w.NoError(w.saveText(leaseOf(c), 1, "s1", "x"))
		w.EqualValues(1, w.queryCount(`SELECT saved_files FROM open_runs WHERE project_id = $1`))
		w.updateRows(`UPDATE open_runs SET saved_files = saved_files + $2`, store.MaxSavedFiles-2)
		w.NoError(w.saveText(leaseOf(c), 3, "s2", "x"))
		w.ErrorIs(w.saveText(leaseOf(c), 5, "more", "x"), store.ErrTooLarge)
		w.EqualValues(2, w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1 AND mark <> 'bundle'`))
	})},
	{"saved files count as stored from their save until their run is deleted", withAgent(func(w *world) {
		w.endEvents(1)
		w.countStored(10)
		least := w.storedBytes()
		_, c := w.running(lease)
		w.NoError(w.saveText(leaseOf(c), 1, "s1", variedText(100_000)))
		w.NoError(w.saveText(leaseOf(c), 1, "s1", variedText(100_000)), "again")
		w.Equal(least+100_000, w.storedBytes(), "while the run is open")
		w.missing("blobs", func() { w.Error(w.saveText(leaseOf(c), 3, "s2", "text")) })
		w.Equal(least+100_000, w.storedBytes(), "it is not saved")
		w.NoError(w.complete(completed(c)))
		w.countStored(10)
		entries := saveEntries(1, savedFileOf("s1", variedText(100_000)))
		w.Equal(2*least+entries[0].Size()+entries[1].Size()+100_000, w.storedBytes())
		w.updateRows(`UPDATE blobs SET created_at = created_at - $2`, (25 * time.Hour).Microseconds())
		w.NoError(errorOf(w.s.SweepExpired(w.ctx, 100)))
		w.requireSaved(c.Run.Key(), "s1", variedText(100_000))
		w.dropHistory(-4 * aDay)
		w.Zero(w.storedBytes())
	})},
	{"the files of an open run fill the storage of its project", withAgent(func(w *world) {
		_, c := w.running(lease)
		w.NoError(w.saveText(leaseOf(c), 1, "s1", variedText(100_000)))
		w.project.Limits.Storage = w.projectLoad().Stored
		w.project.Ref.Generation++
		w.NoError(w.s.PutProject(w.ctx, w.project))
		var full *store.StorageFullError
		w.ErrorAs(w.saveText(leaseOf(c), 3, "s2", "text"), &full)
	})},
	{"an erased run leaves no stored bytes of its files", withAgent(func(w *world) {
		w.endEvents(1)
		_, c := w.running(lease)
		w.NoError(w.saveText(leaseOf(c), 1, "s1", variedText(100_000)))
		w.NoError(w.complete(completed(c)))
		runs := w.listRuns(store.RunQuery{ProjectID: w.project.ID, Limit: 10})
		w.Len(runs, 2)
		left := func(run store.Run) int64 {
			before := w.storedBytes()
			w.NoError(w.s.EraseRun(w.ctx, run.Key()))
			w.countAllStored()
			return before - w.storedBytes()
		}
		w.countAllStored()
		entries := saveEntries(1, savedFileOf("s1", variedText(100_000)))
		withFile, without := left(runs[0]), left(runs[1])
		w.Equal(without+entries[0].Size()+entries[1].Size()+100_000, withFile)
	})},
	{"the stored bytes of an open run's files outlast its day", withAgent(func(w *world) {
		_, c := w.running(lease)
		w.NoError(w.saveText(leaseOf(c), 1, "s1", variedText(100_000)))
		w.dropHistory(-4 * aDay)
		w.requireSaved(c.Run.Key(), "s1", variedText(100_000))
		w.NoError(w.complete(completed(c)))
		w.countAllStored()
		w.Equal(w.storedBytes(), w.queryCount(`SELECT sum(bytes) FROM stored_days WHERE project_id = $1`))
		w.dropHistory(-4 * aDay)
		w.Zero(w.storedBytes())
		w.Zero(w.queryCount(`SELECT count(*) FROM stored_days WHERE project_id = $1`))
	})},
	{"a save of a failed transaction leaves no blob", withAgent(func(w *world) {
		_, c := w.running(lease)
		w.missing("journal", func() { w.Error(w.saveText(leaseOf(c), 1, "s1", "text")) })
		w.requireSaved(c.Run.Key())
		w.NoError(w.saveText(leaseOf(c), 1, "s1", "text"))
		w.requireSaved(c.Run.Key(), "s1", "text")
	})},
	{"concurrent saves store a file once", withAgent(func(w *world) {
		_, c := w.running(lease)
		w.NoError(together(func(int) error { return w.saveText(leaseOf(c), 1, "s1", "text") }))
		w.requireSaved(c.Run.Key(), "s1", "text")
	})},
}
