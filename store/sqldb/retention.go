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
