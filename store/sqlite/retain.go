// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store/sqlcore"
)

const (
	// shrinkPages is how many free pages, of 4 KiB, are given back to the disk at a time, once a minute:
	// others wait to write meanwhile, and what is given back is lacking where as much is written.
	shrinkPages = 500
	// sparePages are free pages that stay, for what is written next.
	sparePages = 1000
)

// DropDays implements sqlcore.Engine: there are no parts.
func (e engine) DropDays(context.Context, int64, int64, int) (dropped sqlcore.DroppedDays, err error) {
	return dropped, nil
}

// HasPart implements sqlcore.Engine: likewise.
func (e engine) HasPart(context.Context, sqlcore.Queryer, string, uuid.UUID) (bool, error) {
	return true, nil
}

// Days implements sqlcore.Engine: history is not parted.
func (e engine) Days(context.Context, string) (days []int64, parted bool, err error) {
	return nil, false, nil
}

// OldestDay implements sqlcore.Engine: likewise.
func (e engine) OldestDay(context.Context) (day int64, known bool, err error) { return 0, false, nil }

// Shrink implements sqlcore.Engine.
func (e engine) Shrink(ctx context.Context) error {
	var free int
	if err := e.reader.QueryRowContext(ctx, `PRAGMA freelist_count`).Scan(&free); err != nil || free <= sparePages {
		return err
	}
	return e.writer.do(ctx, func(ctx context.Context, q sqlcore.Queryer) error {
		rows, err := q.QueryContext(ctx, fmt.Sprintf(`PRAGMA incremental_vacuum(%d)`, min(free-sparePages, shrinkPages)))
		if err != nil {
			return fmt.Errorf("giving pages back: %w", err)
		}
		defer func() { _ = rows.Close() }() // its error is that of Err
		for rows.Next() {                   // a row, a page
			continue
		}
		return rows.Err()
	})
}
