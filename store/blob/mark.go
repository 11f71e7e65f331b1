// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// MarkBlobs marks the blobs that rows of the transaction name. All of them must exist.
func (s *Store) MarkBlobs(ctx context.Context, tx *sqldb.Tx, blobs []store.Key) error {
	if len(blobs) == 0 {
		return nil
	}
	var l sqldb.Args
	n, err := tx.Exec(ctx, `UPDATE blobs SET mark = 'history' WHERE complete AND mark = '' AND `+s.db.KeyCondition(&l, "id", blobs), l.Values...)
	if err == nil && n != int64(len(blobs)) {
		err = fmt.Errorf("%d of %d exist: %w", n, len(blobs), store.ErrNotFound)
	}
	tx.Kept = append(tx.Kept, blobs...)
	return sqldb.Wrap(err, "keeping blobs")
}

// WriteWith is Write for a transaction with blobs. It deletes the blobs that the transaction does
// not keep.
func (s *Store) WriteWith(ctx context.Context, blobs []store.Key, fn func(ctx context.Context, tx *sqldb.Tx) error) error {
	var last *sqldb.Tx
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		last = tx
		return fn(ctx, tx)
	})
	s.DropUnmarked(ctx, slices.DeleteFunc(slices.Clone(blobs), func(blob store.Key) bool {
		return err == nil && slices.Contains(last.Kept, blob)
	}))
	return err
}

// dropTimeout limits deleting blobs that were written in vain.
const dropTimeout = 5 * time.Second

// DropUnmarked deletes unmarked blobs among these, even if the context has ended, which is the usual reason.
// It ignores errors, because the sweep deletes the rest.
func (s *Store) DropUnmarked(ctx context.Context, blobs []store.Key) {
	if len(blobs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	_ = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		var l sqldb.Args
		loose, err := sqldb.Collect(ctx, tx, sqldb.ScanKey, `SELECT project_id, id FROM blobs WHERE mark = '' AND `+s.db.KeyCondition(&l, "id", blobs)+` `+s.db.Exclusive, l.Values...)
		if err != nil {
			return err
		}
		return s.DropBlobs(ctx, tx, loose)
	})
}

// KeepFiles marks the blobs of events' accepted files, in the accepting transaction. ErrNotFound if
// one is missing or incomplete.
func (s *Store) KeepFiles(ctx context.Context, tx *sqldb.Tx, events []store.Event) error {
	for _, e := range events {
		var blobs []store.Key
		for _, f := range e.Files {
			if f.Blob != nil {
				blobs = append(blobs, store.Key{ProjectID: e.ProjectID, ID: *f.Blob})
			}
		}
		if err := s.MarkBlobs(ctx, tx, blobs); err != nil {
			return err
		}
	}
	return nil
}
