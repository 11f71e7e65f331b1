// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// Conditions for readable history. Every read of history uses one of them. Rows that they hide are
// erased, or will be deleted.

// SinceCondition limits history rows by ID to the retention of their project. project is its ID, as an
// argument or a column.
func SinceCondition(id, project string) string { return ` AND ` + isSinceRetention(id, project) }

func isSinceRetention(id, project string) string {
	return id + ` >= COALESCE((SELECT id_at(now_us() - p.history_us) FROM projects p WHERE p.project_id = ` + project + ` AND p.history_us <> 0), '` + uuid.Nil.String() + `')`
}

// SinceOrOpenCondition limits rows that belong to runs in the same way, but includes the rows of open runs,
// which continue.
func SinceOrOpenCondition(run, project string) string {
	return ` AND (` + isSinceRetention(run, project) + ` OR EXISTS (SELECT 1 FROM open_runs o WHERE o.project_id = ` + project + ` AND o.id = ` + run + `))`
}

// ReadableCondition limits ended runs r to the retention and excludes erased ones.
func ReadableCondition(project string) string {
	return UnerasedCondition("r") + SinceCondition("r.id", project)
}

// UnerasedCondition excludes erased runs.
func UnerasedCondition(alias string) string { return ` AND ` + alias + `.erased_at IS NULL` }

// ReadableSince returns the time from which history of a project is readable, 0 if all of it is.
func (d *DB) ReadableSince(ctx context.Context, q Queryer, project uuid.UUID) (us int64, err error) {
	err = MapNoRows(q.QueryRowContext(ctx, `SELECT now_us() - p.history_us FROM projects p WHERE p.project_id = $1 AND p.history_us <> 0`, project).Scan(&us))
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	return max(us, 0), Wrap(err, "reading the retention of project %s", project)
}

// OpenForOf returns SQL for how long rows of a project may be open, in microseconds: the argument
// age, or a day less than the project's retention if that is shorter.
func OpenForOf(project, age string) string {
	return `COALESCE((SELECT CASE WHEN p.history_us - ` + DayMicros + ` < ` + age + ` THEN p.history_us - ` + DayMicros + ` ELSE ` + age + ` END
		FROM projects p WHERE p.project_id = ` + project + ` AND p.history_us <> 0), ` + age + `)`
}

// OpenFor returns the value of OpenForOf for a project.
func (d *DB) OpenFor(ctx context.Context, q Queryer, project uuid.UUID, age time.Duration) (time.Duration, error) {
	var us int64
	err := MapNoRows(q.QueryRowContext(ctx, `SELECT p.history_us FROM projects p WHERE p.project_id = $1 AND p.history_us <> 0`, project).Scan(&us))
	if errors.Is(err, store.ErrNotFound) {
		return age, nil
	}
	return min(age, time.Duration(us)*time.Microsecond-Day), Wrap(err, "reading the retention of project %s", project)
}

// pastLockSeed is the seed of the lock of transactions that delete history of a project. A transaction that
// finds nothing more of a day has then seen all earlier deletes. It is also the lock of the indexer, so no
// words of a run are left that is deleted meanwhile.
var pastLockSeed = uuid.MustParse("0b6b2b5e-5b0e-4f4e-9a39-2a2f7f6f3c52")

// PastLock returns the key of that lock.
func PastLock(project uuid.UUID) uuid.UUID { return uuid.NewSHA1(pastLockSeed, project[:]) }

// LockPast waits for that lock.
func (d *DB) LockPast(ctx context.Context, tx *Tx, project uuid.UUID) error {
	return d.Lock(ctx, tx, PastLock(project))
}
