// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store/retention"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

const (
	// shrinkPages is the number of free pages, of 4 KiB, that are returned to the disk once a
	// minute. Other writes wait meanwhile, and the pages may be needed again soon.
	shrinkPages = 500
	// sparePages is the number of free pages that stay for the next writes.
	sparePages = 1000
)

// DropDays implements retention.Engine. There are no partitions.
func (e engine) DropDays(context.Context, int64, int64, int) (dropped retention.DroppedDays, err error) {
	return dropped, nil
}

// HasPart implements sqldb.Engine. There are no partitions.
func (e engine) HasPart(context.Context, sqldb.Queryer, string, uuid.UUID) (bool, error) {
	return true, nil
}

// Days implements sqldb.Engine. There are no partitions.
func (e engine) Days(context.Context, string) (days []int64, parted bool, err error) {
	return nil, false, nil
}

// ProjectDays implements sqldb.Engine. There are no partitions.
func (e engine) ProjectDays(context.Context, sqldb.Queryer, string, uuid.UUID) (days []int64, parted bool, err error) {
	return nil, false, nil
}

// OldestDays implements retention.Engine. There are no partitions.
func (e engine) OldestDays(context.Context) (deletable, open int64, parted bool, err error) {
	return 0, 0, false, nil
}

// Shrink implements retention.Engine.
func (e engine) Shrink(ctx context.Context) error {
	var free int
	if err := e.reader.QueryRowContext(ctx, `PRAGMA freelist_count`).Scan(&free); err != nil || free <= sparePages {
		return err
	}
	return e.writer.runOperation(ctx, func(ctx context.Context, q sqldb.Queryer) error {
		rows, err := q.QueryContext(ctx, fmt.Sprintf(`PRAGMA incremental_vacuum(%d)`, min(free-sparePages, shrinkPages)))
		if err != nil {
			return fmt.Errorf("freeing pages: %w", err)
		}
		defer func() { _ = rows.Close() }() // Err returns its error
		for rows.Next() {                   // one row per page
			continue
		}
		return rows.Err()
	})
}
