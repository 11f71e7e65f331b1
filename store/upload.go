// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"io"
	"time"

	"github.com/google/uuid"
)

const (
	// MaxUpload is the most bytes of an upload.
	MaxUpload = 25 << 20
	// UploadAge is how long an upload is kept that no deployment has named.
	UploadAge = 24 * time.Hour
	// UploadKept is how long one is kept after a deployment of it last began: for that
	// long it can be deployed again. That of what is live is kept for as long as it is, and
	// then for up to as long again.
	UploadKept = 30 * 24 * time.Hour
)

// Upload is a folder that was uploaded to be deployed, packed.
type Upload struct {
	// Digest is the SHA-256 of its bytes, "sha256:<hex>".
	Digest string
	Size   int64
}

// Uploads keeps what was uploaded to be deployed, by the digest of its bytes. Each is kept
// until a time that stands with it, which is moved on where it is of what is live; until then its
// bytes count among those that its project has stored.
type Uploads interface {
	// PutUpload stores all of r, at most limit bytes, for UploadAge from now. One that is
	// stored already is kept for as long at least. Errors: ErrTooLarge; *StorageFullError;
	// what reading r says, by errors.Is.
	PutUpload(ctx context.Context, projectID uuid.UUID, r io.Reader, limit int64) (Upload, error)
	// HasUpload says ErrNotFound of a digest that is not stored for a project.
	HasUpload(ctx context.Context, projectID uuid.UUID, digest string) error
	// OpenUpload reads the upload that a deployment is of; ErrNotFound when it is of none, or
	// of one that is not stored for its project.
	OpenUpload(ctx context.Context, deployment Key) (io.ReadCloser, error)
}
