// SPDX-License-Identifier: Apache-2.0

package openrun

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storedbytes"
)

// SaveFile implements store.SavedFiles.
func (s *Store) SaveFile(ctx context.Context, l store.Lease, entries []store.JournalEntry, body io.Reader) error {
	entries = storable(entries)
	file, sequence, err := store.CheckSave(entries)
	var large Large
	if err == nil {
		large, err = s.putSaved(ctx, l, entries, file, sequence, body)
	}
	if err == nil {
		err = s.blobs.WriteWith(ctx, large.blobsOf(l.Run.ProjectID, false, entries), func(ctx context.Context, tx *sqldb.Tx) error {
			if err := s.appendJournal(ctx, tx, l, entries, large); err != nil {
				return err
			}
			blob := large.Blob(sequence)
			if blob == nil || !slices.Contains(tx.Kept, store.Key{ProjectID: l.Run.ProjectID, ID: *blob}) {
				return nil // the entries are repeated
			}
			return countSaved(ctx, tx, l.Run, file.Size)
		})
	}
	return sqldb.Wrap(err, "saving a file of run %s", l.Run)
}

// putSaved writes the blobs of a saved file and of the entries that come with it. It writes none if the transaction would not
// store anything, like putLarge, or if the file must not be stored.
func (s *Store) putSaved(
	ctx context.Context, l store.Lease, entries []store.JournalEntry, file store.SavedFile, sequence int64, body io.Reader,
) (Large, error) {
	claims, err := s.CurrentClaims(ctx, []store.Lease{l})
	held, current := claims[l]
	if err != nil || !current {
		return nil, err
	}
	_, fresh, err := splitEntries(held.Length, entries)
	isFresh := slices.ContainsFunc(fresh, func(e store.JournalEntry) bool { return e.Sequence == sequence && e.Kind == store.JournalFile })
	if err != nil || !isFresh || held.Size+SizeOf(fresh) > store.MaxJournal {
		return nil, nil
	}
	if err := s.checkNewFile(ctx, l.Run, held.Length, file); err != nil {
		return nil, err
	}
	large, err := s.putParts(ctx, l.Run.ProjectID, "", fresh, 1)
	if err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err == nil {
		large[sequence] = id
		err = s.putVerified(ctx, store.Key{ProjectID: l.Run.ProjectID, ID: id}, file, body)
	}
	if err != nil {
		s.blobs.DropUnmarked(ctx, large.blobsOf(l.Run.ProjectID, false, fresh))
		return nil, err
	}
	return large, nil
}

// checkNewFile returns why a run whose journal has a length cannot save a new file: its ID, or the storage of the project. If the
// journal grows meanwhile, the entry of the file does not continue it any more, or is repeated.
func (s *Store) checkNewFile(ctx context.Context, run store.Key, length int64, file store.SavedFile) error {
	full, err := storedbytes.CheckLimit(ctx, s.db, run.ProjectID)
	if err = errors.Join(full, err); err != nil {
		return err
	}
	files, err := runrow.SavedFiles(ctx, s.db, s.db.Reader(), run, ` AND j.sequence <= $3`, length)
	if err == nil && slices.ContainsFunc(files, func(f runrow.SavedFile) bool { return f.ID == file.ID }) {
		err = fmt.Errorf("the run has saved another file with the ID: %w", store.ErrInvalid)
	}
	return err
}

// putVerified writes the bytes of a file to a blob. It returns ErrInvalid if they do not fit the file.
func (s *Store) putVerified(ctx context.Context, blob store.Key, file store.SavedFile, body io.Reader) error {
	hash := sha256.New()
	size, err := s.blobs.WriteBlob(ctx, blob, io.TeeReader(io.LimitReader(body, file.Size+1), hash))
	if err == nil && (size != file.Size || hex.EncodeToString(hash.Sum(nil)) != file.SHA256) {
		err = fmt.Errorf("the bytes do not have the size and the digest of the file: %w", store.ErrInvalid)
	}
	return err
}

// countSaved counts a file towards the limits of its run and the stored bytes of its project, in the transaction that appends its
// entry. The end of the run does not count it again.
func countSaved(ctx context.Context, tx *sqldb.Tx, run store.Key, size int64) error {
	n, err := tx.Exec(ctx, `UPDATE open_runs SET saved_size = saved_size + $3, saved_files = saved_files + 1
		WHERE project_id = $1 AND id = $2 AND saved_size + $3 <= $4 AND saved_files < $5`,
		run.ProjectID, run.ID, size, store.MaxSavedBytes, store.MaxSavedFiles)
	if err == nil && n == 0 {
		err = fmt.Errorf("the run saves more than %d files or %d bytes: %w", store.MaxSavedFiles, store.MaxSavedBytes, store.ErrTooLarge)
	}
	if err != nil {
		return err
	}
	return storedbytes.AddByDay(ctx, tx, map[sqldb.ProjectDay]int64{{Project: run.ProjectID, Day: sqldb.DayOf(run.ID)}: size})
}
