// SPDX-License-Identifier: Apache-2.0

// Package blob stores bytes in chunks: blobs, and the uploads and bundles that name them.
package blob

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Store has the blobs, uploads and bundles of projects.
type Store struct{ db *sqldb.DB }

// New returns a Store.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

// PutBlob implements store.Blobs.
func (s *Store) PutBlob(ctx context.Context, key store.Key, r io.Reader) (int64, error) {
	size, err := s.WriteBlob(ctx, key, r)
	return size, sqldb.Wrap(err, "storing blob %s", key)
}

// WriteBlob writes the chunks one by one. The last chunk completes the blob, so a small blob is one
// transaction.
func (s *Store) WriteBlob(ctx context.Context, key store.Key, r io.Reader) (size int64, err error) {
	buffer, ahead := make([]byte, store.BlobChunk), make([]byte, store.BlobChunk)
	n, err := readChunk(r, buffer)
	for number := 0; err == nil; number++ {
		var more int
		if n == len(buffer) {
			if more, err = readChunk(r, ahead); err != nil {
				break
			}
		}
		size += int64(n)
		chunk := blobChunk{key: key, number: number, data: buffer[:n], size: size, last: more == 0}
		if err = s.db.Write(ctx, chunk.writeChunk); err != nil || chunk.last {
			break
		}
		buffer, ahead, n = ahead, buffer, more
	}
	return size, err
}

// readChunk fills the buffer from r.
func readChunk(r io.Reader, buffer []byte) (int, error) {
	n, err := io.ReadFull(r, buffer)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return n, nil
	}
	return n, sqldb.Wrap(err, "reading")
}

type blobChunk struct {
	key    store.Key
	number int
	data   []byte
	size   int64 // of all chunks so far
	last   bool
}

func (b blobChunk) writeChunk(ctx context.Context, tx *sqldb.Tx) error {
	if b.number == 0 {
		n, err := tx.Exec(ctx, `INSERT INTO blobs (project_id, id, size, complete, mark, created_at)
			VALUES ($1, $2, 0, FALSE, '', now_us()) ON CONFLICT (project_id, id) DO NOTHING`, b.key.ProjectID, b.key.ID)
		if err == nil && n == 0 {
			err = store.ErrConflict
		}
		if err != nil {
			return err
		}
	}
	if len(b.data) > 0 {
		if _, err := tx.Exec(ctx, `INSERT INTO blob_chunks (project_id, blob_id, number, data) VALUES ($1, $2, $3, $4)`,
			b.key.ProjectID, b.key.ID, b.number, b.data); err != nil {
			return err
		}
	}
	if !b.last {
		return nil
	}
	_, err := tx.Exec(ctx, `UPDATE blobs SET size = $3, complete = TRUE WHERE project_id = $1 AND id = $2`,
		b.key.ProjectID, b.key.ID, b.size)
	return err
}

// OpenBlob implements store.Blobs.
func (s *Store) OpenBlob(ctx context.Context, key store.Key) (io.ReadCloser, error) {
	var size int64
	err := s.db.Reader().QueryRowContext(ctx, `SELECT size FROM blobs WHERE project_id = $1 AND id = $2 AND complete`,
		key.ProjectID, key.ID).Scan(&size)
	if err != nil {
		return nil, sqldb.Wrap(sqldb.MapNoRows(err), "opening blob %s", key)
	}
	return &blobReader{ctx: ctx, blobs: s, key: key, left: size}, nil
}

// blobReader reads a blob chunk by chunk. It keeps the context of OpenBlob, because io.Reader has
// no other way to get one.
type blobReader struct {
	ctx   context.Context //nolint:containedctx // methods of io.Reader take no context
	blobs *Store
	key   store.Key
	next  int
	chunk []byte
	left  int64
}

// Read implements io.Reader.
func (b *blobReader) Read(p []byte) (int, error) {
	if len(b.chunk) == 0 {
		if b.left <= 0 {
			return 0, io.EOF
		}
		err := b.blobs.db.Reader().QueryRowContext(b.ctx,
			`SELECT data FROM blob_chunks WHERE project_id = $1 AND blob_id = $2 AND number = $3`,
			b.key.ProjectID, b.key.ID, b.next).Scan(&b.chunk)
		if err != nil {
			return 0, sqldb.Wrap(sqldb.MapNoRows(err), "reading chunk %d of blob %s", b.next, b.key)
		}
		b.next++
		b.left -= int64(len(b.chunk))
	}
	n := copy(p, b.chunk)
	b.chunk = b.chunk[n:]
	return n, nil
}

// Close implements io.Closer.
func (b *blobReader) Close() error {
	b.chunk, b.left = nil, 0
	return nil
}

// DropBlob implements store.Blobs.
func (s *Store) DropBlob(ctx context.Context, key store.Key) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		var mark string
		err := sqldb.MapNoRows(tx.QueryRowContext(ctx, `SELECT mark FROM blobs WHERE project_id = $1 AND id = $2 `+tx.Exclusive,
			key.ProjectID, key.ID).Scan(&mark))
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil
		case err != nil:
			return err
		case mark != "":
			return store.ErrConflict
		}
		return s.DropBlobs(ctx, tx, []store.Key{key})
	})
	return sqldb.Wrap(err, "deleting blob %s", key)
}

// DropBlobs deletes blobs and their chunks.
func (s *Store) DropBlobs(ctx context.Context, tx *sqldb.Tx, blobs []store.Key) error {
	if len(blobs) == 0 {
		return nil
	}
	var chunks, rows sqldb.Args
	if _, err := tx.Exec(ctx, `DELETE FROM blob_chunks WHERE `+s.db.KeyCondition(&chunks, "blob_id", blobs), chunks.Values...); err != nil {
		return sqldb.Wrap(err, "deleting the chunks of blobs")
	}
	_, err := tx.Exec(ctx, `DELETE FROM blobs WHERE `+s.db.KeyCondition(&rows, "id", blobs), rows.Values...)
	return sqldb.Wrap(err, "deleting blobs")
}

// UnmarkBlobs unmarks blobs, so that the next sweep deletes them.
func (s *Store) UnmarkBlobs(ctx context.Context, tx *sqldb.Tx, blobs []store.Key) error {
	if len(blobs) == 0 {
		return nil
	}
	var l sqldb.Args
	_, err := tx.Exec(ctx, `UPDATE blobs SET mark = '' WHERE `+s.db.KeyCondition(&l, "id", blobs), l.Values...)
	return sqldb.Wrap(err, "releasing blobs")
}

// OpenBlobAt opens a blob at an offset. It skips the chunks before it.
func (s *Store) OpenBlobAt(ctx context.Context, key store.Key, offset int64) (io.ReadCloser, error) {
	body, err := s.OpenBlob(ctx, key)
	if err != nil {
		return nil, err
	}
	blob, ok := body.(*blobReader)
	if !ok {
		return nil, errors.New("the blob cannot be read from an offset")
	}
	if offset >= blob.left {
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	blob.next, blob.left = int(offset/store.BlobChunk), blob.left-offset/store.BlobChunk*store.BlobChunk
	if _, err := io.CopyN(io.Discard, blob, offset%store.BlobChunk); err != nil {
		return nil, err
	}
	return blob, nil
}
