// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"io"
	"time"

	"github.com/google/uuid"
)

// MaxInlineInput is the largest input in bytes that is stored in the row of its connector run.
// Larger inputs are blobs.
const MaxInlineInput = 64 << 10

// MaxInlineText is the largest output of a run, and the largest data of a journal entry, in bytes,
// that is stored in its row. The store writes and reads larger values as blobs.
const MaxInlineText = 64 << 10

// BlobChunk is the size in bytes of the chunks of a blob.
const BlobChunk = 256 << 10

// Blobs stores bytes in chunks. A blob is written chunk by chunk, in transactions of its own, and
// is complete once PutBlob returns. Blobs that no transaction marks as kept are deleted after a
// day.
type Blobs interface {
	// PutBlob stores all of r under a new ID of the project and returns the number of bytes.
	PutBlob(ctx context.Context, key Key, r io.Reader) (int64, error)
	// DropBlob deletes a blob, complete or not, that is not marked as kept. It returns ErrConflict
	// for a kept blob, and nil if there is no blob.
	DropBlob(ctx context.Context, key Key) error
	// OpenBlob opens a blob. It returns ErrNotFound if there is none or it is incomplete.
	OpenBlob(ctx context.Context, key Key) (io.ReadCloser, error)
}

const (
	// BundleAge is the minimum time that a bundle is kept after its upload, after the end of its
	// build, and after it was last live. It is also the interval between checks for unused bundles.
	BundleAge = 24 * time.Hour
	// BundlesKept is the number of deployments per environment whose bundles are kept: the latest
	// deployed ones, which can become live again.
	BundlesKept = 20
)

// Bundles stores packed project repositories by digest. After BundleAge a sweep deletes bundles
// that none of these need: deployments that are live or about to be, the last BundlesKept deployed
// deployments of an environment, open runs.
type Bundles interface {
	// PutBundle stores a bundle of at most limit bytes and verifies its digest ("sha256:<hex>"). It
	// returns ErrConflict if the digest or the size is wrong, and *StorageFullError if the
	// project's storage is full. The bytes count as stored until the bundle is deleted. A bundle
	// that is stored already gets a new age and counts once.
	//
	// A deployment has one bundle. A second one replaces the first. The first is deleted unless a
	// build ended with it or another open deployment stored it too. After the build of the
	// deployment has ended with a bundle, PutBundle returns ErrConflict for other bundles.
	PutBundle(ctx context.Context, deployment Key, digest string, r io.Reader, limit int64) (int64, error)
	// OpenBundle opens a bundle of a project. It returns ErrNotFound if there is none.
	OpenBundle(ctx context.Context, projectID uuid.UUID, digest string) (io.ReadCloser, error)
	// NamesBundle returns ErrNotFound if no deployment of the environment has the digest.
	NamesBundle(ctx context.Context, environment Key, digest string) error
}
