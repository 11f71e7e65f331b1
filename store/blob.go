// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"io"
	"time"

	"github.com/google/uuid"
)

// MaxInlineInput is the size in bytes up to which an input lies in its
// connector run's row; larger ones are blobs.
const MaxInlineInput = 64 << 10

// MaxInlineText is the size in bytes up to which a run's output and the data of a journal
// entry lie in their rows; larger ones are blobs that the store writes and reads itself.
const MaxInlineText = 64 << 10

// BlobChunk is the size in bytes of the pieces in which blobs are stored.
const BlobChunk = 256 << 10

// Blobs keeps bytes in chunks. A blob is written chunk by chunk in transactions
// of its own and is complete once PutBlob returns; blobs that no transaction came to
// mark as kept are swept after a day.
type Blobs interface {
	// PutBlob stores all of r under a new id of the project and returns the number of bytes.
	PutBlob(ctx context.Context, key Key, r io.Reader) (int64, error)
	// DropBlob deletes a blob, complete or not, that is kept for nothing; ErrConflict
	// of one that is, nil where there is none.
	DropBlob(ctx context.Context, key Key) error
	// OpenBlob reads a blob; ErrNotFound when there is none or it is incomplete.
	OpenBlob(ctx context.Context, key Key) (io.ReadCloser, error)
}

const (
	// BundleAge is how long a bundle is kept at least since a build stored it or ended with it, and
	// since it was last live; and how often is looked whether something needs it.
	BundleAge = 24 * time.Hour
	// BundlesKept is of how many deployments of an environment the bundles are kept, the last that
	// were deployed: they can be live again.
	BundlesKept = 20
)

// Bundles keeps packed project repositories by the digest of their bytes. After BundleAge the sweep
// takes those that none of these need: what is live or about to be in an environment, the last
// BundlesKept deployed deployments of one, open runs.
type Bundles interface {
	// PutBundle stores a bundle of at most limit bytes and verifies that the
	// bytes have the digest ("sha256:<hex>"): ErrConflict when they don't or are
	// more, and *StorageFullError. Till it goes its bytes count among those that its project
	// has stored.
	// A bundle that is stored already is kept as long, and counts once.
	//
	// A deployment has one: another takes the place of what its build stored before, which
	// goes unless a build has ended with it, or another one that is open has stored it, too.
	// Once its own build has ended with one, ErrConflict of others.
	PutBundle(ctx context.Context, deployment Key, digest string, r io.Reader, limit int64) (int64, error)
	// OpenBundle reads a bundle of a project; ErrNotFound when there is none.
	OpenBundle(ctx context.Context, projectID uuid.UUID, digest string) (io.ReadCloser, error)
	// NamesBundle says ErrNotFound of a digest that no deployment of an environment has.
	NamesBundle(ctx context.Context, environment Key, digest string) error
}
