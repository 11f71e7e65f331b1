// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"io"
	"time"

	"github.com/google/uuid"
)

const (
	// MaxUpload is the maximum size of an upload in bytes.
	MaxUpload = 25 << 20
	// UploadAge is how long an upload without a deployment is kept.
	UploadAge = 24 * time.Hour
	// UploadKept is how long an upload is kept after its last deployment began. During that time it
	// can be redeployed. The upload of a live deployment is kept while it is live, and then up to
	// the same time again.
	UploadKept = 30 * 24 * time.Hour
)

// Upload is a packed folder that was uploaded for a deployment.
type Upload struct {
	// Digest is the SHA-256 of its bytes, "sha256:<hex>".
	Digest string
	Size   int64
}

// Uploads stores uploaded folders by digest. Each has an expiry, which is extended while its
// deployment is live. Until then its bytes count as stored.
type Uploads interface {
	// PutUpload stores all of r, at most limit bytes, for UploadAge from now. An upload that is
	// stored already is kept at least as long. It returns ErrTooLarge, *StorageFullError, or the
	// error of r, by errors.Is.
	PutUpload(ctx context.Context, projectID uuid.UUID, r io.Reader, limit int64) (Upload, error)
	// HasUpload returns ErrNotFound if the project has no upload with the digest.
	HasUpload(ctx context.Context, projectID uuid.UUID, digest string) error
	// OpenUpload opens the upload of a deployment; ErrNotFound if it has none, or it is not stored
	// for the project.
	OpenUpload(ctx context.Context, deployment Key) (io.ReadCloser, error)
}
