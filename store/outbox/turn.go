// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store/sqldb"
)

const (
	// maxTurns is the number of projects whose outbox rows a consumer takes at once, a power of
	// two.
	maxTurns = 32
	// AsideFor is how long a failing outbox row is set aside, doubled each time, at most maxAside.
	AsideFor = 10 * time.Second
	maxAside = time.Hour
)

// Cursor serves projects round robin, in ID order.
type Cursor struct {
	mutex sync.Mutex
	last  uuid.UUID
}

// NewCursor starts at a random project, so that gateways serve different projects at the same time.
func NewCursor() *Cursor { return &Cursor{last: uuid.New()} }

// Last returns the project with the last turn.
func (t *Cursor) Last() uuid.UUID {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.last
}

// Rewind repeats the turns after a project, so that smaller batches find the failing row before other projects have
// their turn.
func (t *Cursor) Rewind(since uuid.UUID) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.last = since
}

// Next returns at most limit projects, which list returns in ID order from after on, cyclically.
// The next turn continues after them, or starts over after the last project.
func (t *Cursor) Next(limit int, list func(after uuid.UUID, limit int) ([]uuid.UUID, error)) ([]uuid.UUID, error) {
	projects, err := list(t.Last(), limit)
	if err == nil && len(projects) == limit {
		t.Rewind(projects[limit-1])
	}
	return projects, err
}

// Source selects the outbox rows of a consumer.
type Source struct {
	// Table is read as o. Narrow is a condition on o that ends with AND, or empty. Columns are
	// read.
	Table, Narrow, Columns string
}

// Turn limits the rows of a turn: at most limit rows that were posted before a time. Of each
// project the oldest are read, after skipping the first skip shares.
type Turn struct {
	Limit, skip int
	Until       int64
}

// TakeTurn reads the rows of the projects whose turn it is. Each project has an equal share, so a
// busy project delays only itself.
func TakeTurn[R any](
	ctx context.Context, db *sqldb.DB, t *Cursor, of Source, in Turn, scan func(sqldb.Scanner) (R, error),
) ([]R, error) {
	due := of.Narrow + `o.posted_at <= now_us() AND o.posted_at <= `
	lap := func(name, from, to string) string {
		first := `SELECT (SELECT o.project_id FROM ` + of.Table + ` o WHERE ` + due + `$3 ` + to + ` AND o.project_id > `
		return name + ` (project_id) AS (` + first + from + ` ORDER BY o.project_id, o.posted_at LIMIT 1)
			UNION ALL ` + first + `t.project_id ORDER BY o.project_id, o.posted_at LIMIT 1) FROM ` + name + ` t WHERE t.project_id IS NOT NULL)`
	}
	most := min(in.Limit, maxTurns)
	projects, err := t.Next(most, func(after uuid.UUID, limit int) ([]uuid.UUID, error) {
		return sqldb.Collect(ctx, db.Reader(), sqldb.ScanUUID, `WITH RECURSIVE `+lap(`later`, `$1`, ``)+`, `+
			lap(`earlier`, `'`+uuid.Nil.String()+`'`, `AND o.project_id <= $1`)+`
			SELECT t.project_id FROM (SELECT project_id FROM later UNION ALL SELECT project_id FROM earlier) t
				WHERE t.project_id IS NOT NULL LIMIT $2`,
			after, limit, in.Until)
	})
	if err != nil || len(projects) == 0 {
		return nil, err
	}
	share := max(in.Limit/len(projects), 1)
	places := 1 // a power of two, so that few statements are prepared
	for places < len(projects) {
		places *= 2
	}
	l := sqldb.Args{Values: []any{share, in.Until, in.skip * share}}
	each := make([]string, places)
	for i := range each {
		project := uuid.Nil // no project
		if i < len(projects) {
			project = projects[i]
		}
		each[i] = `SELECT * FROM (SELECT ` + of.Columns + ` FROM ` + of.Table + ` o WHERE o.project_id = ` + l.Add(project) + ` AND ` + due + `$2
			ORDER BY o.posted_at LIMIT $1 OFFSET $3) t`
	}
	return sqldb.Collect(ctx, db.Reader(), scan, strings.Join(each, ` UNION ALL `), l.Values...)
}
