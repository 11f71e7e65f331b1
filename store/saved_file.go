// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"strings"
	"unicode/utf8"
)

// Limits of the files that a run saves. The sizes are in bytes.
const (
	MaxSavedFile  = 10 << 20
	MaxSavedBytes = 50 << 20
	MaxSavedFiles = 100
	// maxSavedFileEntry limits the data of the journal entry of a file, which includes texts of a model.
	maxSavedFileEntry = 64 << 10
	// maxSavedFileID limits the ID of a file, which is unique in its run.
	maxSavedFileID = 32
	// MaxMediaType limits the media type of a file.
	MaxMediaType = 127
)

// SavedFile is a file that a run saved. It is in the data of a journal entry of the kind JournalFile, whose row names the
// blob with the bytes.
type SavedFile struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	MIMEType string `json:"mime_type"`
	Size     int64  `json:"size"`
	// SHA256 has hexadecimal digits.
	SHA256 string `json:"sha256"`
}

// SavedFiles stores the files that runs save.
type SavedFiles interface {
	// SaveFile appends entries to the journal of a claimed run, like Dispatch.AppendJournal. One of them is of the kind
	// JournalFile, and body has its bytes. If all entries are repeated, it stores nothing. It returns ErrTooLarge beyond the
	// limits of this file, ErrInvalid if the bytes do not fit the entry or another file of the run has its ID, and
	// *StorageFullError.
	SaveFile(ctx context.Context, l Lease, entries []JournalEntry, body io.Reader) error
	// RunSavedFiles returns the files that a run has saved, in their order; none without the run.
	RunSavedFiles(ctx context.Context, run Key) ([]SavedFile, error)
	// OpenSavedFile opens a file at an offset; ErrNotFound if the run has no file with the ID.
	OpenSavedFile(ctx context.Context, run Key, id string, offset int64) (SavedFile, io.ReadCloser, error)
}

// CheckSave returns the file of the entries for SaveFile, with the errors of CheckJournal and SaveFile. The sequences must be
// consecutive, because the sequence of the file's entry names the blob.
func CheckSave(entries []JournalEntry) (file SavedFile, sequence int64, err error) {
	others := make([]JournalEntry, 0, len(entries))
	for i, e := range entries {
		if e.Sequence != entries[0].Sequence+int64(i) {
			return file, 0, fmt.Errorf("journal entry %d does not follow the entry before it: %w", e.Sequence, ErrInvalid)
		}
		if e.Kind != JournalFile {
			others = append(others, e)
			continue
		}
		if sequence != 0 {
			return file, 0, fmt.Errorf("journal entry %d is the second entry of a file: %w", e.Sequence, ErrInvalid)
		}
		if file, err = e.savedFile(); err != nil {
			return file, 0, err
		}
		sequence = e.Sequence
	}
	if sequence < 1 {
		return file, 0, fmt.Errorf("there is no journal entry of a file: %w", ErrInvalid)
	}
	return file, sequence, CheckJournal(others)
}

// savedFile decodes and checks the data of an entry.
func (e JournalEntry) savedFile() (file SavedFile, err error) {
	if len(e.Data) > maxSavedFileEntry {
		return file, fmt.Errorf("journal entry %d (%s) has %d bytes; the limit is %d: %w", e.Sequence, e.Kind, len(e.Data), maxSavedFileEntry, ErrTooLarge)
	}
	if err := json.Unmarshal(e.Data, &file); err != nil {
		return file, fmt.Errorf("journal entry %d is no file: %w", e.Sequence, ErrInvalid)
	}
	digest, err := hex.DecodeString(file.SHA256)
	_, _, typeErr := mime.ParseMediaType(file.MIMEType)
	switch {
	case file.ID == "" || len(file.ID) > maxSavedFileID || strings.Trim(file.ID, "abcdefghijklmnopqrstuvwxyz0123456789") != "":
		return file, fmt.Errorf("journal entry %d: the ID of the file must have 1 to %d lower-case letters and digits: %w", e.Sequence, maxSavedFileID, ErrInvalid)
	case len(file.Name) > MaxFileName || !utf8.ValidString(file.Name):
		return file, fmt.Errorf("journal entry %d: the name of the file has more than %d bytes: %w", e.Sequence, MaxFileName, ErrInvalid)
	case typeErr != nil || len(file.MIMEType) > MaxMediaType:
		return file, fmt.Errorf("journal entry %d: mime_type must be a media type of at most %d bytes: %w", e.Sequence, MaxMediaType, ErrInvalid)
	case file.Size < 0 || err != nil || len(digest) != 32:
		return file, fmt.Errorf("journal entry %d: the size or the digest of the file is invalid: %w", e.Sequence, ErrInvalid)
	case file.Size > MaxSavedFile:
		return file, fmt.Errorf("the file has %d bytes; the limit is %d: %w", file.Size, MaxSavedFile, ErrTooLarge)
	}
	return file, nil
}
