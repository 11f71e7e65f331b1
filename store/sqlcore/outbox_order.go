// SPDX-License-Identifier: Apache-2.0

package sqlcore

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
	// asideFor is how long a failing outbox row is set aside, doubled each time, at most maxAside.
	asideFor = 10 * time.Second
	maxAside = time.Hour
)

// projectCursor serves projects round robin, in ID order.
type projectCursor struct {
	mutex sync.Mutex
	last  uuid.UUID
}

// newProjectCursor starts at a random project, so that gateways serve different projects at the same time.
func newProjectCursor() *projectCursor { return &projectCursor{last: uuid.New()} }

// lastProject returns the project with the last turn. rewind repeats the turns after it, so that smaller
// batches find the failing row before other projects have their turn.
func (t *projectCursor) lastProject() uuid.UUID {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.last
}

func (t *projectCursor) rewind(since uuid.UUID) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.last = since
}

// nextProjects returns at most limit projects, which list returns in ID order from after on, cyclically.
// The next turn continues after them, or starts over after the last project.
func (t *projectCursor) nextProjects(limit int, list func(after uuid.UUID, limit int) ([]uuid.UUID, error)) ([]uuid.UUID, error) {
	projects, err := list(t.lastProject(), limit)
	if err == nil && len(projects) == limit {
		t.rewind(projects[limit-1])
	}
	return projects, err
}

// outboxSource selects the outbox rows of a consumer.
type outboxSource struct {
	// table is read as o. narrow is a condition on o that ends with AND, or empty. columns are
	// read.
	table, narrow, columns string
}

// turn limits the rows of a turn: at most limit rows that were posted before a time. Of each
// project the oldest are read, after skipping the first skip shares.
type turn struct {
	limit, skip int
	until       int64
}

// takeTurn reads the rows of the projects whose turn it is. Each project has an equal share, so a
// busy project delays only itself.
func takeTurn[R any](
	ctx context.Context, db *sqldb.DB, t *projectCursor, of outboxSource, in turn, scan func(sqldb.Scanner) (R, error),
) ([]R, error) {
	due := of.narrow + `o.posted_at <= now_us() AND o.posted_at <= `
	lap := func(name, from, to string) string {
		first := `SELECT (SELECT o.project_id FROM ` + of.table + ` o WHERE ` + due + `$3 ` + to + ` AND o.project_id > `
		return name + ` (project_id) AS (` + first + from + ` ORDER BY o.project_id, o.posted_at LIMIT 1)
			UNION ALL ` + first + `t.project_id ORDER BY o.project_id, o.posted_at LIMIT 1) FROM ` + name + ` t WHERE t.project_id IS NOT NULL)`
	}
	most := min(in.limit, maxTurns)
	projects, err := t.nextProjects(most, func(after uuid.UUID, limit int) ([]uuid.UUID, error) {
		return sqldb.Collect(ctx, db.Reader(), sqldb.ScanUUID, `WITH RECURSIVE `+lap(`later`, `$1`, ``)+`, `+
			lap(`earlier`, `'`+uuid.Nil.String()+`'`, `AND o.project_id <= $1`)+`
			SELECT t.project_id FROM (SELECT project_id FROM later UNION ALL SELECT project_id FROM earlier) t
				WHERE t.project_id IS NOT NULL LIMIT $2`,
			after, limit, in.until)
	})
	if err != nil || len(projects) == 0 {
		return nil, err
	}
	share := max(in.limit/len(projects), 1)
	places := 1 // a power of two, so that few statements are prepared
	for places < len(projects) {
		places *= 2
	}
	l := sqldb.Args{Values: []any{share, in.until, in.skip * share}}
	each := make([]string, places)
	for i := range each {
		project := uuid.Nil // no project
		if i < len(projects) {
			project = projects[i]
		}
		each[i] = `SELECT * FROM (SELECT ` + of.columns + ` FROM ` + of.table + ` o WHERE o.project_id = ` + l.Add(project) + ` AND ` + due + `$2
			ORDER BY o.posted_at LIMIT $1 OFFSET $3) t`
	}
	return sqldb.Collect(ctx, db.Reader(), scan, strings.Join(each, ` UNION ALL `), l.Values...)
}
