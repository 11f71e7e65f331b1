// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// What may be read of history. Every read of it says so by one of these; what is hidden by them
// is deleted later, or was erased.

// since narrows rows of history by their ids to those that are not older than their project keeps
// history: project is its id, as an argument or a column.
func since(id, project string) string { return ` AND ` + isSince(id, project) }

func isSince(id, project string) string {
	return id + ` >= COALESCE((SELECT id_at(now_us() - p.history_us) FROM projects p WHERE p.project_id = ` + project + ` AND p.history_us <> 0), '` + uuid.Nil.String() + `')`
}

// sinceOrOpen narrows what runs have by the ids of these likewise, but for those that are open:
// they go on with it.
func sinceOrOpen(run, project string) string {
	return ` AND (` + isSince(run, project) + ` OR EXISTS (SELECT 1 FROM open_runs o WHERE o.project_id = ` + project + ` AND o.id = ` + run + `))`
}

// readable narrows ended runs r likewise, and to those that nobody has erased.
func readable(project string) string { return unerased("r") + since("r.id", project) }

// unerased narrows ended runs to those that nobody has erased.
func unerased(alias string) string { return ` AND ` + alias + `.erased_at IS NULL` }

// seenSince is since when history of a project may be read, 0 where all of it may be.
func (c *Core) seenSince(ctx context.Context, q Queryer, project uuid.UUID) (us int64, err error) {
	err = found(q.QueryRowContext(ctx, `SELECT now_us() - p.history_us FROM projects p WHERE p.project_id = $1 AND p.history_us <> 0`, project).Scan(&us))
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	return max(us, 0), wrap(err, "reading for how long project %s keeps history", project)
}

// openForOf is for how long something of a project may be open, in microseconds: for so long as
// age, an argument, says, or a day less than the project keeps history.
func openForOf(project, age string) string {
	return `COALESCE((SELECT CASE WHEN p.history_us - ` + dayUS + ` < ` + age + ` THEN p.history_us - ` + dayUS + ` ELSE ` + age + ` END
		FROM projects p WHERE p.project_id = ` + project + ` AND p.history_us <> 0), ` + age + `)`
}

// openFor is openForOf of a project.
func (c *Core) openFor(ctx context.Context, q Queryer, project uuid.UUID, age time.Duration) (time.Duration, error) {
	var us int64
	err := found(q.QueryRowContext(ctx, `SELECT p.history_us FROM projects p WHERE p.project_id = $1 AND p.history_us <> 0`, project).Scan(&us))
	if errors.Is(err, store.ErrNotFound) {
		return age, nil
	}
	return min(age, time.Duration(us)*time.Microsecond-day), wrap(err, "reading for how long project %s keeps history", project)
}
