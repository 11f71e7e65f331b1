// SPDX-License-Identifier: Apache-2.0

package openrun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Outputs and journal entries above store.MaxInlineText bytes are blobs. They are written before
// the transaction whose rows name them, so that shared transactions stay small. That transaction
// marks them as history. Unmarked blobs are deleted.

// blobWriters is the number of blobs of one call that are written concurrently, because each
// takes a connection.
const blobWriters = 2

// Large are the blobs of the large parts of a run and of the files that it saves, by the sequence of a journal entry, or
// OutputPart.
type Large map[int64]uuid.UUID

// OutputPart identifies the output. Journal entries count from 1.
const OutputPart = 0

// Blob returns the blob of a part; nil if the part is in its row.
func (l Large) Blob(part int64) *uuid.UUID {
	if blob, ok := l[part]; ok {
		return &blob
	}
	return nil
}

// Row returns the data of an entry for its row, and its blob. Only the entry of a saved file has both.
func (l Large) Row(e store.JournalEntry) (data *string, blob *uuid.UUID) {
	if blob = l.Blob(e.Sequence); blob != nil && e.Kind != store.JournalFile || len(e.Data) == 0 {
		return nil, blob
	}
	text := sqldb.Text(string(e.Data))
	return &text, blob
}

// blobsOf returns the blobs of entries, and of the output if it is stored too.
func (l Large) blobsOf(project uuid.UUID, output bool, entries []store.JournalEntry) (blobs []store.Key) {
	if len(l) == 0 {
		return nil
	}
	if blob, ok := l[OutputPart]; ok && output {
		blobs = append(blobs, store.Key{ProjectID: project, ID: blob})
	}
	for _, e := range entries {
		if blob, ok := l[e.Sequence]; ok {
			blobs = append(blobs, store.Key{ProjectID: project, ID: blob})
		}
	}
	return blobs
}

// hasBlobs reports whether all parts that need a blob have one.
func (l Large) hasBlobs(output string, entries []store.JournalEntry) bool {
	if l.Blob(OutputPart) == nil && len(output) > store.MaxInlineText {
		return false
	}
	return !slices.ContainsFunc(entries, func(e store.JournalEntry) bool {
		return l.Blob(e.Sequence) == nil && (len(e.Data) > store.MaxInlineText || e.Kind == store.JournalFile)
	})
}

// isLarge reports whether parts of a run need blobs.
func isLarge(output string, entries []store.JournalEntry) bool {
	return !Large(nil).hasBlobs(output, entries)
}

// isLarge reports whether parts of the run need blobs.
func (e Ending) isLarge() bool { return isLarge(e.Output, e.Journal) }

// blobKeys returns the blobs that an ending names.
func (e Ending) blobKeys() []store.Key { return e.Large.blobsOf(e.Run.ProjectID, true, e.Journal) }

// putLarge writes the blobs that a claim needs to append entries to its run's journal and to end
// the run with an output. It writes none if the transaction would not store anything: the claim has
// expired, or the entries do not continue the journal or make it too large.
func (s *Store) putLarge(ctx context.Context, l store.Lease, output string, entries []store.JournalEntry) (Large, error) {
	if !isLarge(output, entries) {
		return nil, nil
	}
	claims, err := s.CurrentClaims(ctx, []store.Lease{l})
	held, current := claims[l]
	if err != nil || !current {
		return nil, err
	}
	_, fresh, err := splitEntries(held.Length, entries)
	if err != nil || held.Size+SizeOf(fresh) > store.MaxJournal {
		return nil, nil
	}
	return s.putParts(ctx, l.Run.ProjectID, output, fresh, blobWriters)
}

// putResumption writes the blob for the entry that resumes a run, if the run is suspended.
func (s *Store) putResumption(ctx context.Context, run store.Key, entries []store.JournalEntry) (Large, error) {
	if !isLarge("", entries) {
		return nil, nil
	}
	var one int
	err := sqldb.MapNoRows(s.db.Reader().QueryRowContext(ctx, `SELECT 1 FROM open_runs
		WHERE project_id = $1 AND id = $2 AND status = 'awaiting_approval'`, run.ProjectID, run.ID).Scan(&one))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return s.putParts(ctx, run.ProjectID, "", entries, 1)
}

// putLargeBlobs is putLarge for endings that can end in a batch, which it returns. All others, and
// endings whose blobs could not be written, are processed one by one.
func (s *Store) putLargeBlobs(ctx context.Context, endings []Ending) (ready []Ending) {
	if len(endings) == 0 {
		return nil
	}
	leases := make([]store.Lease, len(endings))
	for i, e := range endings {
		leases[i] = store.Lease{Run: e.Run, Token: *e.Token}
	}
	claims, err := s.CurrentClaims(ctx, leases)
	if err != nil {
		return nil
	}
	var (
		group errgroup.Group
		mutex sync.Mutex
	)
	group.SetLimit(blobWriters)
	for i, e := range endings {
		held, current := claims[leases[i]]
		if !current || len(e.Journal) > 0 && e.Journal[0].Sequence != held.Length+1 || held.Size+SizeOf(e.Journal) > store.MaxJournal {
			continue
		}
		group.Go(func() (err error) {
			if e.Large, err = s.putParts(ctx, e.Run.ProjectID, e.Output, e.Journal, 1); err == nil {
				mutex.Lock()
				defer mutex.Unlock()
				ready = append(ready, e)
			}
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	return ready
}

// putParts writes the parts that are too large for a row, all or none.
func (s *Store) putParts(ctx context.Context, project uuid.UUID, output string, entries []store.JournalEntry, atOnce int) (Large, error) {
	large, texts := Large{}, map[int64]string{}
	if len(output) > store.MaxInlineText {
		texts[OutputPart] = output
	}
	for _, e := range entries {
		if len(e.Data) > store.MaxInlineText {
			texts[e.Sequence] = string(e.Data)
		}
	}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for part, text := range texts {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("generating an ID: %w", err)
		}
		large[part] = id
		group.Go(func() error {
			_, err := s.blobs.WriteBlob(ctx, store.Key{ProjectID: project, ID: id}, strings.NewReader(text))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		s.blobs.DropUnmarked(ctx, large.blobsOf(project, true, entries))
		return nil, sqldb.Wrap(err, "storing large values")
	}
	return large, nil
}

// CurrentClaims reads the runs of claims that are current or can be revived. All other claims are never
// current again.
func (s *Store) CurrentClaims(ctx context.Context, leases []store.Lease) (map[store.Lease]ClaimedState, error) {
	out := map[store.Lease]ClaimedState{}
	for part := range slices.Chunk(leases, sqldb.MaxIDs) {
		keys := make([]store.Key, len(part))
		for i, l := range part {
			keys[i] = l.Run
		}
		var args sqldb.Args
		if err := sqldb.CollectMap(ctx, s.db.Reader(), out, func(row sqldb.Scanner) (l store.Lease, held ClaimedState, err error) {
			err = row.Scan(&l.Run.ProjectID, &l.Run.ID, &l.Token, &held.Length, &held.Size)
			return l, held, err
		}, `SELECT project_id, id, token, journal_length, journal_size FROM open_runs
			WHERE (status = 'running' OR status = 'queued' AND runner_id <> '') AND `+s.db.KeyCondition(&args, "id", keys), args.Values...); err != nil {
			return nil, sqldb.Wrap(err, "reading claims")
		}
	}
	return out, nil
}
