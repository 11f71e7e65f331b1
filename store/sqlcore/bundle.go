// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// PutBundle implements store.Bundles.
func (c *Core) PutBundle(ctx context.Context, projectID uuid.UUID, digest string, r io.Reader, limit int64) (int64, error) {
	size, err := c.bundleSize(ctx, projectID, digest)
	if errors.Is(err, store.ErrNotFound) {
		size, err = c.putBundle(ctx, projectID, digest, r, limit)
	}
	return size, wrap(err, "storing bundle %s", digest)
}

func (c *Core) bundleSize(ctx context.Context, projectID uuid.UUID, digest string) (size int64, err error) {
	err = c.engine.Reader().QueryRowContext(ctx, `SELECT size FROM bundles WHERE project_id = $1 AND digest = $2`,
		projectID, digest).Scan(&size)
	return size, found(err)
}

// putBundle writes the bytes to a blob and names it as the bundle once its
// digest is verified.
func (c *Core) putBundle(ctx context.Context, projectID uuid.UUID, digest string, r io.Reader, limit int64) (int64, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return 0, fmt.Errorf("making an id: %w", err)
	}
	blob := store.Key{ProjectID: projectID, ID: id}
	hash := sha256.New()
	size, err := c.putBlob(ctx, blob, io.TeeReader(io.LimitReader(r, limit+1), hash))
	if err != nil {
		return 0, err
	}
	var refused error
	switch got := "sha256:" + hex.EncodeToString(hash.Sum(nil)); {
	case size > limit:
		refused = fmt.Errorf("more than %d bytes: %w", limit, store.ErrConflict)
	case got != digest:
		refused = fmt.Errorf("the bytes have digest %s: %w", got, store.ErrConflict)
	}
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		if refused != nil {
			return c.dropBlobs(ctx, tx, []store.Key{blob})
		}
		n, err := tx.exec(ctx, `INSERT INTO bundles (project_id, digest, size, blob_id, created_at)
			VALUES ($1, $2, $3, $4, now_us()) ON CONFLICT (project_id, digest) DO NOTHING`, projectID, digest, size, id)
		if err == nil && n == 0 { // somebody else was faster
			return c.dropBlobs(ctx, tx, []store.Key{blob})
		}
		if err == nil {
			_, err = tx.exec(ctx, `UPDATE blobs SET mark = 'bundle' WHERE project_id = $1 AND id = $2`, projectID, id)
		}
		return err
	})
	return size, errors.Join(refused, err)
}

// OpenBundle implements store.Bundles.
func (c *Core) OpenBundle(ctx context.Context, projectID uuid.UUID, digest string) (io.ReadCloser, error) {
	id, err := scanID(c.engine.Reader().QueryRowContext(ctx,
		`SELECT blob_id FROM bundles WHERE project_id = $1 AND digest = $2`, projectID, digest))
	if err != nil {
		return nil, wrap(found(err), "opening bundle %s", digest)
	}
	return c.OpenBlob(ctx, store.Key{ProjectID: projectID, ID: id})
}

// NamesBundle implements store.Bundles.
func (c *Core) NamesBundle(ctx context.Context, environment store.Key, digest string) error {
	var one int
	err := found(c.engine.Reader().QueryRowContext(ctx, `SELECT 1 FROM deployments
		WHERE project_id = $1 AND environment_id = $2 AND bundle_digest = $3 LIMIT 1`,
		environment.ProjectID, environment.ID, digest).Scan(&one))
	return wrap(err, "looking for bundle %s in environment %s", digest, environment)
}
