// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storedbytes"
)

// dropTime limits cleaning up after a failed upload.
const dropTime = 5 * time.Second

// PutUpload implements store.Uploads.
func (s *Store) PutUpload(ctx context.Context, projectID uuid.UUID, r io.Reader, limit int64) (store.Upload, error) {
	full, err := storedbytes.CheckLimit(ctx, s.db, projectID)
	if full != nil {
		return store.Upload{}, full
	}
	var upload store.Upload
	if err == nil {
		upload, err = s.putUpload(ctx, projectID, r, limit)
	}
	return upload, sqldb.Wrap(err, "storing an upload of project %s", projectID)
}

// putUpload writes the bytes to a blob and names it once its digest is known.
func (s *Store) putUpload(ctx context.Context, projectID uuid.UUID, r io.Reader, limit int64) (u store.Upload, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return u, fmt.Errorf("generating an ID: %w", err)
	}
	blob, hash := store.Key{ProjectID: projectID, ID: id}, sha256.New()
	u.Size, err = s.WriteBlob(ctx, blob, io.TeeReader(io.LimitReader(r, limit+1), hash))
	if err == nil && u.Size > limit {
		err = fmt.Errorf("more than %d bytes: %w", limit, store.ErrTooLarge)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTime) // the request may have been cancelled
		defer cancel()
		return store.Upload{}, errors.Join(err, s.DropBlob(ctx, blob))
	}
	u.Digest = "sha256:" + hex.EncodeToString(hash.Sum(nil))
	return u, s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		return s.nameBlob(ctx, tx, `INSERT INTO uploads AS t (project_id, digest, size, blob_id, created_at, kept_until)`+insertNamed,
			"upload", blob, u.Digest, u.Size, store.UploadAge)
	})
}

// insertNamed is the end of the statement that inserts the name of a blob into a table t.
const insertNamed = ` VALUES ($1, $2, $3, $4, now_us(), now_us() + $5) ON CONFLICT (project_id, digest) DO UPDATE
	SET kept_until = CASE WHEN t.kept_until < excluded.kept_until THEN excluded.kept_until ELSE t.kept_until END
	RETURNING blob_id`

// nameBlob makes a blob the bytes of an upload or bundle, with a statement, and sets its expiry. If
// it exists, its expiry is extended and the blob is deleted.
func (s *Store) nameBlob(ctx context.Context, tx *sqldb.Tx, statement, what string, blob store.Key, digest string, size int64, age time.Duration) error {
	kept, err := sqldb.ScanUUID(tx.QueryRowContext(ctx, statement, blob.ProjectID, digest, size, blob.ID, age.Microseconds()))
	switch {
	case err != nil:
		return sqldb.Wrap(err, "naming %s %s", what, digest)
	case kept != blob.ID:
		return s.DropBlobs(ctx, tx, []store.Key{blob})
	}
	if _, err := tx.Exec(ctx, `UPDATE blobs SET mark = $3 WHERE project_id = $1 AND id = $2`, blob.ProjectID, blob.ID, what); err != nil {
		return err
	}
	return storedbytes.Add(ctx, tx, map[uuid.UUID]int64{blob.ProjectID: size})
}

// KeepUpload extends the expiry of an upload, if it exists.
func KeepUpload(ctx context.Context, tx *sqldb.Tx, projectID uuid.UUID, digest string, age time.Duration) (int64, error) {
	n, err := tx.Exec(ctx, `UPDATE uploads SET kept_until = CASE WHEN kept_until < now_us() + $3 THEN now_us() + $3 ELSE kept_until END
		WHERE project_id = $1 AND digest = $2`, projectID, digest, age.Microseconds())
	return n, sqldb.Wrap(err, "keeping upload %s", digest)
}

// HasUpload implements store.Uploads.
func (s *Store) HasUpload(ctx context.Context, projectID uuid.UUID, digest string) error {
	var one int
	err := sqldb.MapNoRows(s.db.Reader().QueryRowContext(ctx, `SELECT 1 FROM uploads WHERE project_id = $1 AND digest = $2`, projectID, digest).Scan(&one))
	return sqldb.Wrap(err, "reading upload %s", digest)
}

// OpenUpload implements store.Uploads.
func (s *Store) OpenUpload(ctx context.Context, deployment store.Key) (io.ReadCloser, error) {
	id, err := sqldb.ScanUUID(s.db.Reader().QueryRowContext(ctx, `SELECT u.blob_id FROM deployments d
		JOIN uploads u ON u.project_id = d.project_id AND u.digest = d.upload_digest
		WHERE d.project_id = $1 AND d.id = $2`, deployment.ProjectID, deployment.ID))
	if err != nil {
		return nil, sqldb.Wrap(sqldb.MapNoRows(err), "opening the upload of deployment %s", deployment)
	}
	return s.OpenBlob(ctx, store.Key{ProjectID: deployment.ProjectID, ID: id})
}

// DropUploads deletes expired uploads. It extends the expiry of uploads with a live deployment,
// which is built from them again if its outcome is lost.
func (s *Store) DropUploads(ctx context.Context, tx *sqldb.Tx, narrow string, l sqldb.Args) (int64, error) {
	if _, err := tx.Exec(ctx, `UPDATE uploads SET kept_until = now_us() + $1 WHERE kept_until <= now_us() AND EXISTS (SELECT 1
		FROM environments e JOIN deployments d ON d.project_id = e.project_id AND d.id = e.live_deployment_id
		WHERE e.project_id = uploads.project_id AND d.upload_digest = uploads.digest)`, store.UploadKept.Microseconds()); err != nil {
		return 0, sqldb.Wrap(err, "keeping the uploads of live deployments")
	}
	return s.deleteAndUnmark(ctx, tx, `DELETE FROM uploads WHERE (project_id, digest) IN (SELECT r.project_id, r.digest FROM uploads r
		WHERE r.kept_until <= now_us()`+narrow+` ORDER BY r.kept_until LIMIT $1 `+s.db.SkipLocked+`) RETURNING project_id, blob_id, size`, l.Values...)
}

// deleteAndUnmark deletes rows with a statement. Their blobs become unmarked, and the sweep deletes them.
func (s *Store) deleteAndUnmark(ctx context.Context, tx *sqldb.Tx, statement string, args ...any) (int64, error) {
	blobs, err := deleteAndSubtract(ctx, tx, statement, args...)
	if err != nil {
		return 0, err
	}
	return int64(len(blobs)), s.UnmarkBlobs(ctx, tx, blobs)
}

// deleteAndSubtract deletes uploads or bundles with a statement, subtracts their stored bytes, and returns
// their blobs.
func deleteAndSubtract(ctx context.Context, tx *sqldb.Tx, statement string, args ...any) ([]store.Key, error) {
	less := map[uuid.UUID]int64{}
	blobs, err := sqldb.Collect(ctx, tx, func(row sqldb.Scanner) (blob store.Key, err error) {
		var size int64
		err = row.Scan(&blob.ProjectID, &blob.ID, &size)
		less[blob.ProjectID] -= size
		return blob, err
	}, statement, args...)
	if err != nil || len(blobs) == 0 {
		return nil, err
	}
	return blobs, storedbytes.Add(ctx, tx, less)
}
