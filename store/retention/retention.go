// SPDX-License-Identifier: Apache-2.0

// Package retention deletes old history, expired rows and the rows of deleted objects, and erases runs.
package retention

import (
	"context"
	"errors"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/blob"
	"github.com/agentplatform/agentplatform/store/outbox"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/sweep"
)

// Engine has the parts of retention that differ between databases.
type Engine interface {
	// DropDays drops partitions of past days before one, at most limit of them, and fewer if they
	// are large. It keeps all partitions of days on which open runs, connector runs or deliveries
	// were accepted. From the day keep on, it also keeps ended runs whose results are still to be
	// delivered. A partition that it cannot drop delays no other. ErrBusy means that another process
	// is dropping partitions, ErrRead that some stay because they are being read. An engine without partitions drops none.
	DropDays(ctx context.Context, before, keep int64, limit int) (DroppedDays, error)
	// OldestDays returns the first day with a partition that DropDays does not keep, and the first
	// open day, 0 without any; parted is false if history has no partitions.
	OldestDays(ctx context.Context) (deletable, open int64, parted bool, err error)
	// Shrink returns some free pages to the disk, if the engine does not do so itself. The
	// remaining pages wait for the next call, unless they are reused before.
	Shrink(ctx context.Context) error
}

// DroppedDays is the result of Engine.DropDays.
type DroppedDays struct {
	store.Dropped
	// Parted means that all rows of the days are deleted with their partitions. It is false if
	// history has no partitions.
	Parted bool
	KeptDays
	// Left are the days with partitions that should be dropped and still exist.
	Left []int64
}

// KeptDays are past days with partitions that are needed.
type KeptDays struct {
	// Open are the days with open rows. All their partitions are kept.
	Open []int64
	// Results are the days with results that are still to be delivered. Their ended runs are kept.
	Results []int64
}

var (
	// ErrBusy means that another process does the same work now.
	ErrBusy = errors.New("partition drop in progress")
	// ErrRead means that a partition stays for now because it is being read.
	ErrRead = errors.New("partition in use")
)

// Store keeps history as long as the retention says, and deletes the rest.
type Store struct {
	db     *sqldb.DB
	engine Engine
	blobs  *blob.Store
	// atOnce is the maximum number of history rows that one transaction deletes.
	atOnce  int
	skipped skippedRows
	// trimming and dropping are the turns of projects in TrimHistory and DropHistory.
	trimming, dropping *outbox.Cursor
	deleting           *deletionProgress
}

// skippedRows are the rows that failed alone, by operation.
type skippedRows struct {
	idempotencyKeys, rejections, replays, uploads, bundles, historyBlobs, looseBlobs sweep.Skipped
	// Projects are skipped if a day cannot be deleted: one of history, or one that they keep no longer.
	pastDays, overdueDays, deletedObjects sweep.Skipped
}

// New returns a Store.
func New(db *sqldb.DB, engine Engine, blobs *blob.Store, atOnce int) *Store {
	return &Store{
		db: db, engine: engine, blobs: blobs, atOnce: atOnce, trimming: outbox.NewCursor(), dropping: outbox.NewCursor(),
		deleting: &deletionProgress{},
	}
}
