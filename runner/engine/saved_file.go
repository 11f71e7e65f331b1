// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

const (
	// savedPrefix begins the ID of a saved file, before its number from 1.
	savedPrefix = "s"
	// unknownType is the type of a file whose type is invalid.
	unknownType = "application/octet-stream"
	// rejectionReserve limits by how many bytes the entries of a file that the platform does not save are larger.
	rejectionReserve = 1 << 10
	// storageFull is the reason for files beyond the storage of the project. A model reads it, so it has no advice for people.
	storageFull = "the project's storage is full"
	// notSaved begins the error of an effect whose file is not saved.
	notSaved = "the file is not saved: "
)

// rejectionReason returns why the platform does not save a file, as a script and a model read it. It is "" for other rejections: they
// are errors of the platform, and the attempt ends. The text of the platform can have numbers and IDs that differ in each attempt.
func rejectionReason(rejected *dispatchapi.RejectedError) string {
	switch rejected.Code {
	case httpserver.CodeStorageFull:
		return storageFull
	case httpserver.CodeTooLarge:
		return "the file exceeds a limit of the run"
	}
	return ""
}

// SavedFiles stores and reads the files that a run saves.
type SavedFiles interface {
	// Save appends entries like Journal.Append. The first one is of a file with these bytes. A *dispatchapi.RejectedError with the code
	// CodeStorageFull or CodeTooLarge means that the platform does not save the file, and the run continues.
	Save(ctx context.Context, entries []dispatchapi.JournalEntry, data []byte) error
	// ReadPart returns at most length bytes of a file from an offset. length is at most dispatchapi.MaxSavedPart.
	ReadPart(ctx context.Context, id string, offset, length int64) ([]byte, error)
}

// ErrSavedFile is the cause of an attempt that could not read a saved file.
var ErrSavedFile = errors.New("reading the saved file")

// NewFile is a file that an effect adds to the run.
type NewFile struct {
	// Name and MIMEType can come from a service. The engine leaves out characters that cannot be shown.
	Name, MIMEType string
	Data           []byte
}

// fileEntry is the data of a file entry.
type fileEntry struct {
	// Agent is the path of the agent, CallID the action that saved the file.
	Agent  string `json:"agent,omitempty"`
	CallID string `json:"call_id"`
	// IsResult is true for the large result of a call, which the agent may read.
	IsResult bool `json:"is_result,omitempty"`
	dispatchapi.SavedFile
	// position is the sequence of the entry.
	position int64
}

// AboutSaved returns the metadata of a saved file as scripts see it.
func AboutSaved(f dispatchapi.SavedFile) map[string]any {
	return map[string]any{"id": f.ID, "name": f.Name, "size": f.Size, "mime_type": f.MIMEType}
}

// isVisible reports whether a script sees the file: it was saved before the script began, or by one of the effects of the
// script so far. Each attempt sees the same files at the same effect.
func (f fileEntry) isVisible(e *Effects) bool {
	number, own := strings.CutPrefix(f.CallID, e.owner+effectSeparator)
	n, err := strconv.Atoi(number)
	return f.position < e.began || own && err == nil && n <= e.count
}

// SavedFiles returns the metadata of the saved files that the script sees, in their order. Its error ends the attempt.
func (e *Effects) SavedFiles(ctx context.Context) (files []dispatchapi.SavedFile, err error) {
	if err := e.scope.journal.saveFilesBefore(ctx, e.began); err != nil {
		return nil, err
	}
	for _, f := range e.scope.journal.savedFiles() {
		if f.isVisible(e) {
			files = append(files, f.SavedFile)
		}
	}
	return files, nil
}

// saveFilesBefore saves the files before an entry. Another agent of the run may be saving them, and the platform may reject them. If
// ctx ends, the append continues in the background, because its outcome must be known.
func (r *recorder) saveFilesBefore(ctx context.Context, position int64) error {
	r.mu.Lock()
	isSaved := true
	for unsaved := range r.unsaved {
		isSaved = isSaved && unsaved >= position
	}
	r.mu.Unlock()
	if isSaved {
		return nil
	}
	flushed := make(chan error, 1)
	go func() { flushed <- r.flushPending(context.WithoutCancel(ctx)) }()
	select {
	case err := <-flushed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ReadSaved returns at most length bytes of a saved file. Its error ends the attempt.
func (e *Effects) ReadSaved(ctx context.Context, id string, length int64) ([]byte, error) {
	return e.scope.readSaved(ctx, id, 0, length)
}

// readSaved returns a part of a saved file. Its error ends the attempt, which another one continues.
func (s *Scope) readSaved(ctx context.Context, id string, offset, length int64) ([]byte, error) {
	part, err := s.in.SavedFiles.ReadPart(ctx, id, offset, length)
	if err != nil {
		return nil, fmt.Errorf("%w: %w %s: %w", ErrStopped, ErrSavedFile, id, err)
	}
	return part, nil
}

// savedFiles returns the files that the run has saved, in their order.
func (r *recorder) savedFiles() []fileEntry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.files[:len(r.files):len(r.files)]
}

// recordFile records a file and the result of the action that saves it. Both are appended together. If the file cannot be saved,
// the result is an error.
func (r *recorder) recordFile(agent string, f *NewFile, t toolResult) (toolResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addSaved(fileEntry{Agent: agent}, f, t, false, savedResults{
		with: func(entry fileEntry) map[string]any { return AboutSaved(entry.SavedFile) },
		without: func(reason string) toolResult {
			t.Result, t.Error = nil, notSaved+reason
			return t
		},
	})
}

// recordLarge records the result of a call that is too large for the journal, and saves it as a file. If the file cannot be saved,
// the result has both ends and the reason: the model can often continue with them, and repeating the call would not help.
func (r *recorder) recordLarge(agent string, f *NewFile, t toolResult, a action) (toolResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, err := withoutSides(t)
	if err != nil || t.Error != "" {
		return r.addResult(t, a.unsafe)
	}
	t.Result = nil
	sides, err := json.Marshal(t)
	if err != nil {
		return toolResult{}, fmt.Errorf("encoding a tool's result: %w", err)
	}
	shown := min(a.shown, dispatchapi.MaxToolResult-len(sides)-len(`,"result":`))
	shorten := func(note string) map[string]any {
		return shortenedResult(string(f.Data), shown, fmt.Sprintf("The result has %d bytes. %s", len(f.Data), note))
	}
	return r.addSaved(fileEntry{Agent: agent, IsResult: true}, f, t, a.unsafe, savedResults{
		with: func(entry fileEntry) map[string]any {
			return shorten("All of it is the file " + entry.ID + " of the run.")
		},
		without: func(reason string) toolResult {
			t.Result = shorten("It is not saved as a file: " + reason + ". Request less data if you need the middle.")
			return t
		},
	})
}

// savedAbove returns the limit for results of a tool as the model sees them, above which a result that is too large for the journal is
// saved. It is 0 for an agent with hooks, because the model must see only what they return.
func (s *Scope) savedAbove(t *Tool) int {
	if s.in.Project.Hooks(s.in.Project.BaseName(s.agent.Name)) != nil {
		return 0
	}
	return s.maxResult(t)
}

// largeResult returns the file of a result that is too large for the journal, nil for any other result.
func (s *Scope) largeResult(a action, t toolResult) *NewFile {
	if a.shown == 0 || t.Result == nil || t.Error != "" || t.Stop != nil || s.in.SavedFiles == nil {
		return nil
	}
	whole, err := json.Marshal(t)
	if err != nil || len(whole) <= dispatchapi.MaxToolResult {
		return nil
	}
	text, err := json.Marshal(t.Result)
	if err != nil || len(text) <= a.shown {
		return nil // because of its log
	}
	file := &NewFile{Name: a.started.Tool + ".json", MIMEType: "application/json", Data: []byte(wholeText(t.Result, text))}
	if len(file.Data) != len(text) {
		file.Name, file.MIMEType = a.started.Tool+".txt", "text/plain"
	}
	return file
}

// savedResults are the possible results of an action that saves a file.
type savedResults struct {
	// with returns the result if the file is saved, without if it is not saved for a reason.
	with    func(fileEntry) map[string]any
	without func(reason string) toolResult
}

// unsavedFile is a file whose entry is pending.
type unsavedFile struct {
	data    []byte
	results savedResults
}

// addSaved adds the entry of a file and the result that names it, with the lock held. Beyond a limit of the run it adds only a result.
func (r *recorder) addSaved(entry fileEntry, f *NewFile, t toolResult, unsafe bool, results savedResults) (toolResult, error) {
	if reason := r.rejectFile(f); reason != "" {
		return r.addResult(results.without(reason), unsafe)
	}
	digest := sha256.Sum256(f.Data)
	entry.CallID, entry.position, entry.SavedFile = t.CallID, r.next, dispatchapi.SavedFile{
		ID: r.nextFileID(), Name: fileName(f.Name), MIMEType: fileType(f.MIMEType), Size: int64(len(f.Data)), SHA256: hex.EncodeToString(digest[:]),
	}
	data, err := json.Marshal(entry)
	if err != nil {
		return toolResult{}, fmt.Errorf("encoding a saved file: %w", err)
	}
	t.Result = results.with(entry)
	result, err := boundedResult(t)
	if err != nil {
		return toolResult{}, err
	}
	// Without room for the result there must be no entry of the file, which only Save appends.
	size := entrySize(dispatchapi.JournalFile, data) + entrySize(dispatchapi.JournalToolResult, result) + rejectionReserve
	if err := checkJournal(r.size + size); err != nil {
		return toolResult{}, err
	}
	if err := r.addEntry(dispatchapi.JournalEntry{Kind: dispatchapi.JournalFile, Data: data}); err != nil {
		return toolResult{}, err
	}
	r.size += rejectionReserve // until the save is decided
	r.addFile(entry)
	r.unsaved[entry.position] = unsavedFile{f.Data, results}
	return r.addResult(t, unsafe)
}

// nextFileID returns an ID that no file of the run has.
func (r *recorder) nextFileID() string {
	last := 0
	if n := len(r.files); n > 0 {
		last, _ = strconv.Atoi(strings.TrimPrefix(r.files[n-1].ID, savedPrefix)) // some before it may have been rejected
	}
	return savedPrefix + strconv.Itoa(last+1)
}

// replaceRejected replaces the pending entries of a file that the platform does not save. A step has the number of the file, because
// later entries have numbers already.
func (r *recorder) replaceRejected(batch []dispatchapi.JournalEntry, reason string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	position := batch[0].Sequence
	at := slices.IndexFunc(r.files, func(f fileEntry) bool { return f.position == position })
	file := r.files[at]
	step, err := json.Marshal(stepEntry{
		ID: "file:" + file.CallID + ":save", Agent: file.Agent, Kind: "save_file", At: time.Now().UTC().Truncate(time.Millisecond), Outcome: "rejected",
	})
	if err != nil {
		return fmt.Errorf("encoding a step: %w", err)
	}
	result, same, err := encodeResult(r.unsaved[position].results.without(reason))
	if err != nil {
		return err
	}
	r.results[file.CallID] = same
	r.files, r.savedBytes = slices.Concat(r.files[:at], r.files[at+1:]), r.savedBytes-file.Size
	delete(r.unsaved, position)
	entries := []dispatchapi.JournalEntry{
		{Sequence: position, Kind: dispatchapi.JournalStep, Data: step},
		{Sequence: batch[1].Sequence, Kind: dispatchapi.JournalToolResult, Data: result, Unsafe: batch[1].Unsafe},
	}
	r.isStorageFull = r.isStorageFull || reason == storageFull
	r.size -= rejectionReserve
	for i, e := range entries {
		r.size += e.Size() - batch[i].Size()
	}
	r.pending = slices.Concat(entries, r.pending[len(batch):])
	return nil
}

// entrySize returns the size of an entry with this data, as the journal counts it.
func entrySize(kind string, data []byte) int {
	return dispatchapi.JournalEntry{Kind: kind, Data: data}.Size()
}

// addFile counts a saved file.
func (r *recorder) addFile(f fileEntry) {
	r.files, r.savedBytes = append(r.files, f), r.savedBytes+f.Size
}

// rejectAnyFile returns an error if no file can be saved, so that its bytes need not be fetched.
func (r *recorder) rejectAnyFile() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reason := r.rejectFile(&NewFile{}); reason != "" {
		return errors.New(notSaved + reason)
	}
	return nil
}

// rejectFile returns why a file cannot be saved, "" if it can. With the lock held.
func (r *recorder) rejectFile(f *NewFile) string {
	switch size := int64(len(f.Data)); {
	case r.isStorageFull:
		return storageFull
	case size > dispatchapi.MaxSavedFile:
		return fmt.Sprintf("the file has more than %d MiB", dispatchapi.MaxSavedFile>>20)
	case r.savedBytes+size > dispatchapi.MaxSavedBytes:
		return fmt.Sprintf("the run can save at most %d MiB of files", dispatchapi.MaxSavedBytes>>20)
	case len(r.files) >= dispatchapi.MaxSavedFiles:
		return fmt.Sprintf("the run can save at most %d files", dispatchapi.MaxSavedFiles)
	}
	return ""
}

// fileName returns the last part of a name, without characters that cannot be printed.
func fileName(name string) string {
	name = strings.ToValidUTF8(name, "")
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, name)
	return cmp.Or(strings.Trim(excerpt.Of(name, dispatchapi.MaxFileName, ""), ". "), "file")
}

// fileType returns a media type without parameters.
func fileType(text string) string {
	mediaType, _, err := mime.ParseMediaType(text)
	if err != nil || len(mediaType) > dispatchapi.MaxMediaType || strings.Count(mediaType, "/") != 1 {
		return unknownType
	}
	return mediaType
}

// MemoryFiles keeps the files of a run in memory, for runs that no other runner resumes.
type MemoryFiles struct {
	// Journal receives the entries of the files.
	Journal Journal

	mu    sync.Mutex
	files map[string][]byte
}

// Save implements SavedFiles.
func (m *MemoryFiles) Save(ctx context.Context, entries []dispatchapi.JournalEntry, data []byte) error {
	var file dispatchapi.SavedFile
	if err := exactjson.Decode(entries[0].Data, &file); err != nil {
		return fmt.Errorf("reading the entry of a file: %w", err)
	}
	m.mu.Lock()
	if m.files == nil {
		m.files = map[string][]byte{}
	}
	m.files[file.ID] = data
	m.mu.Unlock()
	return m.Journal.Append(ctx, entries)
}

// ReadPart implements SavedFiles.
func (m *MemoryFiles) ReadPart(_ context.Context, id string, offset, length int64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, found := m.files[id]
	if !found {
		return nil, fmt.Errorf("there is no file %q", id)
	}
	begin := min(max(offset, 0), int64(len(data)))
	return data[begin:min(begin+length, int64(len(data)))], nil
}
