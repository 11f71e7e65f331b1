// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// entryList is a journal in memory.
type entryList struct{ batches [][]dispatchapi.JournalEntry }

// fullStorage saves the files with this name only.
type fullStorage struct {
	MemoryFiles
	except string
	code   httpserver.Code
}

func (f *fullStorage) Save(ctx context.Context, entries []dispatchapi.JournalEntry, data []byte) error {
	if !strings.Contains(string(entries[0].Data), `"name":"`+f.except+`"`) {
		return &dispatchapi.RejectedError{Detail: "of the platform", Code: f.code}
	}
	return f.MemoryFiles.Save(ctx, entries, data)
}

func (l *entryList) Append(_ context.Context, entries []dispatchapi.JournalEntry) error {
	l.batches = append(l.batches, entries)
	return nil
}

// A name has no path, no control characters and no more bytes than the store accepts.
func TestFileName_IsSafe(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ given, want string }{
		"plain":       {"invoice.pdf", "invoice.pdf"},
		"a path":      {"../../etc/passwd", "passwd"},
		"a backslash": {`C:\temp\a.txt`, "a.txt"},
		"controls":    {"a\x00b\r\n\u202ec\x7f.txt", "abc.txt"},
		"no UTF-8":    {"a\xff.txt", "a.txt"},
		"dots":        {"..", "file"},
		"nothing":     {"", "file"},
		"long":        {strings.Repeat("é", 200), strings.Repeat("é", 127)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, fileName(row.given))
		})
	}
}

func TestFileType_IsMediaType(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ given, want string }{
		"plain":         {"Text/HTML; charset=utf-8", "text/html"},
		"nothing":       {"", "application/octet-stream"},
		"no media type": {"text/html\r\nSet-Cookie: a=b", "application/octet-stream"},
		"no subtype":    {"text", "application/octet-stream"},
		"long":          {"text/" + strings.Repeat("x", 127), "application/octet-stream"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, fileType(row.given))
		})
	}
}

// The entry of a file and the result that names it are one append, and no other entry is part of it.
func TestRecorder_AppendsFileWithItsResult(t *testing.T) {
	t.Parallel()
	list := &entryList{}
	files := &MemoryFiles{Journal: list}
	r := newRecorder(nil, list, files)
	for _, id := range []string{"a", "b"} {
		_, err := r.recordResult(toolResult{CallID: id}, false)
		require.NoError(t, err)
	}
	recorded, err := r.recordFile("main", &NewFile{Name: "n", MIMEType: "text/plain", Data: []byte("text")}, toolResult{CallID: "x/1"})
	require.NoError(t, err)
	require.Equal(t, "s1", recorded.Result["id"])
	_, err = r.recordResult(toolResult{CallID: "c"}, false)
	require.NoError(t, err)
	require.NoError(t, r.flushPending(t.Context()))
	var kinds [][]string
	var all []dispatchapi.JournalEntry
	for _, batch := range list.batches {
		var of []string
		for _, e := range batch {
			of = append(of, e.Kind)
		}
		kinds, all = append(kinds, of), append(all, batch...)
	}
	require.Equal(t, [][]string{{"tool_result", "tool_result"}, {"file", "tool_result"}, {"tool_result"}}, kinds)
	require.Empty(t, r.unsaved)
	part, err := files.ReadPart(t.Context(), "s1", 1, 2)
	require.NoError(t, err)
	require.Equal(t, "ex", string(part))
	require.Equal(t, r.savedFiles(), newRecorder(all, list, files).savedFiles(), "another attempt reads the same")
}

// A file beyond a limit of the run is an error of the effect, and is not saved.
func TestRecorder_LimitsFiles(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		files, bytes int // saved before
		size         int
		problem      string
	}{
		"largest":         {0, 0, dispatchapi.MaxSavedFile, ""},
		"too large":       {0, 0, dispatchapi.MaxSavedFile + 1, "the file is not saved: the file has more than 10 MiB"},
		"last bytes":      {1, dispatchapi.MaxSavedBytes - 2, 2, ""},
		"too many bytes":  {1, dispatchapi.MaxSavedBytes - 2, 3, "the file is not saved: the run can save at most 50 MiB of files"},
		"last file":       {dispatchapi.MaxSavedFiles - 1, 0, 0, ""},
		"too many files":  {dispatchapi.MaxSavedFiles, 0, 0, "the file is not saved: the run can save at most 100 files"},
		"no bytes remain": {1, dispatchapi.MaxSavedBytes, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := &entryList{}
			r := newRecorder(nil, list, &MemoryFiles{Journal: list})
			r.files, r.savedBytes = make([]fileEntry, row.files), int64(row.bytes)
			recorded, err := r.recordFile("main", &NewFile{Data: make([]byte, row.size)}, toolResult{CallID: "x/1"})
			require.NoError(t, err)
			require.Equal(t, row.problem, recorded.Error)
			require.NoError(t, r.flushPending(t.Context()))
			require.Len(t, list.batches, 1)
			require.Equal(t, row.problem == "", list.batches[0][0].Kind == dispatchapi.JournalFile)
		})
	}
}

// A file whose result does not fit into the journal leaves no entry, because only an append with its bytes may have one.
func TestRecorder_NeedsRoomForFileAndResult(t *testing.T) {
	t.Parallel()
	list := &entryList{}
	r := newRecorder(nil, list, &MemoryFiles{Journal: list})
	file, call := &NewFile{Name: "n", MIMEType: "text/plain", Data: []byte("text")}, toolResult{CallID: "x/1"}
	_, err := r.recordFile("main", file, call)
	require.NoError(t, err)
	require.NoError(t, r.flushPending(t.Context()))
	entries := list.batches[0]
	require.Len(t, entries, 2)

	r.size = dispatchapi.MaxJournal - entries[0].Size() - entries[1].Size() - rejectionReserve + 1
	_, err = r.recordFile("main", file, toolResult{CallID: "x/2"})
	require.ErrorContains(t, err, "the limit of a run")
	require.Empty(t, r.pending)
	require.Len(t, r.files, 1)

	// The room for the rejection of one file is no room for the entries of another.
	r.size = dispatchapi.MaxJournal - 2*(entries[0].Size()+entries[1].Size()) - rejectionReserve - 100
	_, err = r.recordFile("main", file, toolResult{CallID: "x/2"})
	require.NoError(t, err)
	_, err = r.recordFile("main", file, toolResult{CallID: "x/3"})
	require.ErrorContains(t, err, "the limit of a run")
	before := r.size
	require.NoError(t, r.flushPending(t.Context()))
	require.Equal(t, before-rejectionReserve, r.size)
}

// A rejected file leaves no pending entries: a step takes its number, its result is an error, and the entries after them keep their
// numbers. The journal is larger by at most the reserve.
func TestRecorder_ReplacesRejectedFile(t *testing.T) {
	t.Parallel()
	list := &entryList{}
	r := newRecorder(nil, list, &fullStorage{MemoryFiles{Journal: list}, "b", httpserver.CodeTooLarge})
	size := 0
	for _, name := range []string{"a", "b", "c"} {
		recorded, err := r.recordFile("main", &NewFile{Name: name, Data: []byte(name)}, toolResult{CallID: name + "/1"})
		require.NoError(t, err)
		size = r.size
		require.Empty(t, recorded.Error)
	}
	_, err := r.recordResult(toolResult{CallID: "d"}, false)
	require.NoError(t, err)
	require.NoError(t, r.flushPending(t.Context()))
	require.Empty(t, r.pending)
	require.Empty(t, r.unsaved)
	require.LessOrEqual(t, r.size, size+3*rejectionReserve)
	var kinds []string
	var all []dispatchapi.JournalEntry
	for _, e := range slices.Concat(list.batches...) {
		kinds, all = append(kinds, e.Kind), append(all, e)
		require.EqualValues(t, len(all), e.Sequence)
	}
	require.Equal(t, []string{"step", "tool_result", "file", "tool_result", "step", "tool_result", "tool_result"}, kinds)
	for _, r := range []*recorder{r, newRecorder(all, list, nil)} { // also in another attempt
		require.Contains(t, r.results["a/1"].Error, "the file is not saved: the file exceeds a limit of the run")
		require.Equal(t, "s2", r.results["b/1"].Result["id"])
		require.Contains(t, r.results["c/1"].Error, "the file is not saved: the file exceeds a limit of the run")
		require.Len(t, r.savedFiles(), 1)
		require.EqualValues(t, 1, r.savedBytes)
		require.Equal(t, "s3", r.nextFileID())
	}
	require.Equal(t, r.size, newRecorder(all, list, nil).size)
}

// A script sees a file of another agent only if it is saved, because its next attempt would not see a rejected one.
func TestEffects_SeeOnlySavedFiles(t *testing.T) {
	t.Parallel()
	list := &entryList{}
	r := newRecorder(nil, list, &fullStorage{MemoryFiles{Journal: list}, "b", httpserver.CodeTooLarge})
	for _, name := range []string{"a", "b", "c"} {
		_, err := r.recordFile("other", &NewFile{Name: name, Data: []byte(name)}, toolResult{CallID: name + "/1"})
		require.NoError(t, err)
	}
	effects := &Effects{scope: &Scope{attempt: &attempt{journal: r}}, owner: "own", began: r.next}
	seen, err := effects.SavedFiles(t.Context())
	require.NoError(t, err)
	require.Len(t, seen, 1)
	require.Equal(t, "b", seen[0].Name)
}

// Only a decision about the file becomes its result, with a text for the model. Any other rejection ends the attempt.
func TestRecorder_EndsAttemptAfterOtherRejections(t *testing.T) {
	t.Parallel()
	for code, want := range map[httpserver.Code]string{
		httpserver.CodeStorageFull: "the file is not saved: the project's storage is full",
		httpserver.CodeTooLarge:    "the file is not saved: the file exceeds a limit of the run",
		httpserver.CodeInvalid:     "",
		httpserver.CodeNotFound:    "",
		"":                         "",
	} {
		t.Run("code "+string(code), func(t *testing.T) {
			t.Parallel()
			list := &entryList{}
			r := newRecorder(nil, list, &fullStorage{MemoryFiles{Journal: list}, "other", code})
			_, err := r.recordFile("main", &NewFile{Name: "a"}, toolResult{CallID: "x/1"})
			require.NoError(t, err)
			err = r.flushPending(t.Context())
			if want == "" {
				require.ErrorIs(t, err, dispatchapi.ErrRejected)
				require.Empty(t, list.batches)
				return
			}
			require.NoError(t, err)
			require.Equal(t, want, r.results["x/1"].Error)
		})
	}
}

// A script does not wait longer than its context for the files that other agents save.
func TestRecorder_WaitsForSavesUntilContextEnds(t *testing.T) {
	t.Parallel()
	list := &entryList{}
	r := newRecorder(nil, list, &MemoryFiles{Journal: list})
	_, err := r.recordFile("other", &NewFile{Name: "a"}, toolResult{CallID: "x/1"})
	require.NoError(t, err)
	<-r.flushing // another agent saves
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.saveFilesBefore(ctx, r.next), context.Canceled)
	r.flushing <- struct{}{}
	require.NoError(t, r.saveFilesBefore(t.Context(), r.next))
	require.Len(t, list.batches, 1)
}
