// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"io"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// PutBlob implements store.Blobs.
func (c *Core) PutBlob(ctx context.Context, id uuid.UUID, r io.Reader) (int64, error) {
	size, err := c.putBlob(ctx, id, r)
	return size, wrap(err, "storing blob %s", id)
}

// putBlob writes the chunks one by one; the last one completes the blob, so
// that a small blob is one transaction.
func (c *Core) putBlob(ctx context.Context, id uuid.UUID, r io.Reader) (size int64, err error) {
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
		chunk := blobChunk{id: id, number: number, data: buffer[:n], size: size, last: more == 0}
		if err = c.Write(ctx, chunk.write); err != nil || chunk.last {
			break
		}
		buffer, ahead, n = ahead, buffer, more
	}
	return size, err
}

// readChunk fills the buffer as far as r goes.
func readChunk(r io.Reader, buffer []byte) (int, error) {
	n, err := io.ReadFull(r, buffer)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return n, nil
	}
	return n, wrap(err, "reading")
}

type blobChunk struct {
	id     uuid.UUID
	number int
	data   []byte
	size   int64 // of all chunks up to this one
	last   bool
}

func (b blobChunk) write(ctx context.Context, tx *Tx) error {
	if b.number == 0 {
		n, err := tx.exec(ctx, `INSERT INTO blobs (id, size, complete, created_at) VALUES ($1, 0, FALSE, now_us())
			ON CONFLICT (id) DO NOTHING`, b.id)
		if err == nil && n == 0 {
			err = store.ErrConflict
		}
		if err != nil {
			return err
		}
	}
	if len(b.data) > 0 {
		if _, err := tx.exec(ctx, `INSERT INTO blob_chunks (blob_id, number, data) VALUES ($1, $2, $3)`,
			b.id, b.number, b.data); err != nil {
			return err
		}
	}
	if !b.last {
		return nil
	}
	_, err := tx.exec(ctx, `UPDATE blobs SET size = $2, complete = TRUE WHERE id = $1`, b.id, b.size)
	return err
}

// OpenBlob implements store.Blobs.
func (c *Core) OpenBlob(ctx context.Context, id uuid.UUID) (io.ReadCloser, error) {
	var size int64
	err := c.engine.Reader().QueryRowContext(ctx, `SELECT size FROM blobs WHERE id = $1 AND complete`, id).Scan(&size)
	if err != nil {
		return nil, wrap(found(err), "opening blob %s", id)
	}
	return &blobReader{ctx: ctx, core: c, id: id, left: size}, nil
}

// blobReader reads a blob chunk by chunk. It keeps the context of OpenBlob, as
// a reader has no other way to get one.
type blobReader struct {
	ctx   context.Context //nolint:containedctx // io.Reader's methods take none
	core  *Core
	id    uuid.UUID
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
		err := b.core.engine.Reader().QueryRowContext(b.ctx,
			`SELECT data FROM blob_chunks WHERE blob_id = $1 AND number = $2`, b.id, b.next).Scan(&b.chunk)
		if err != nil {
			return 0, wrap(found(err), "reading chunk %d of blob %s", b.next, b.id)
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

// dropBlobs deletes blobs with their chunks.
func dropBlobs(ctx context.Context, tx *Tx, ids []uuid.UUID) error {
	if len(ids) == 0 {
		return nil
	}
	for _, statement := range []string{`DELETE FROM blob_chunks WHERE blob_id IN `, `DELETE FROM blobs WHERE id IN `} {
		var l list
		marks := l.ids(ids)
		if _, err := tx.exec(ctx, statement+marks, l.args...); err != nil {
			return wrap(err, "deleting blobs")
		}
	}
	return nil
}
