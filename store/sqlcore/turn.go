// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

const (
	// maxTurns is from how many projects a consumer takes rows of an outbox at once, a power of two.
	maxTurns = 32
	// asideFor is how long a row of the outbox is set aside that could not be consumed, twice
	// as long each time after, at most maxAside.
	asideFor = 10 * time.Second
	maxAside = time.Hour
)

// turns serves projects round-robin, in the order of their ids.
type turns struct {
	mutex sync.Mutex
	last  uuid.UUID
}

// newTurns begins at a project drawn by lot, so that gateways serve different projects at a moment.
func newTurns() *turns { return &turns{last: uuid.New()} }

// since is the project that had the last turn, and back lets those after it have theirs once
// more: what went wrong with them is to be found among fewer, not met again after the others.
func (t *turns) since() uuid.UUID {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.last
}

func (t *turns) back(since uuid.UUID) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.last = since
}

// next returns at most limit projects, which list returns from after one on, round in the order of their ids. The
// next turn goes on after them unless all have had theirs.
func (t *turns) next(limit int, list func(after uuid.UUID, limit int) ([]uuid.UUID, error)) ([]uuid.UUID, error) {
	projects, err := list(t.since(), limit)
	if err == nil && len(projects) == limit {
		t.back(projects[limit-1])
	}
	return projects, err
}

// posted is a row of the outbox.
type posted struct {
	store.Key
	// failures is how often it could not be consumed.
	failures int
	// last, of a connector, is the last of its deliveries that have failed, failed how many
	// have of which nobody was told.
	last   *uuid.UUID
	failed int64
}

// consumer is whose row it is.
func (p posted) consumer() string {
	if p.last != nil {
		return failures
	}
	return outbound
}

func (p posted) row() (store.Key, int) { return p.Key, p.failures }

// waitPosted lets a row wait.
func waitPosted(ctx context.Context, tx *Tx, p posted, wait time.Duration) error {
	_, err := tx.exec(ctx, `UPDATE outbox SET failures = failures + 1, posted_at = now_us() + $3
		WHERE project_id = $1 AND consumer = $4 AND ended_id = $2 AND posted_at <= now_us()`,
		p.ProjectID, p.ID, wait.Microseconds(), p.consumer())
	return err
}

const postedColumns = `project_id, ended_id, failures, last_failed, failed`

func scanPosted(row scanner) (p posted, err error) {
	err = row.Scan(&p.ProjectID, &p.ID, &p.failures, &p.last, &p.failed)
	return p, err
}

// outboxRows says which rows of an outbox a consumer takes.
type outboxRows struct {
	// table is read as o, narrow is a condition on o that ends with AND, or nothing. Columns are read.
	table, narrow, columns string
}

// postedRows are those for deliveries.
var postedRows = outboxRows{table: `outbox`, narrow: `o.consumer IN (` + posting + `) AND `, columns: postedColumns}

// toPost returns the rows of the outbox for deliveries whose projects have their turn, at most limit.
func (c *Core) toPost(ctx context.Context, limit int) ([]posted, error) {
	return takeTurn(ctx, c, c.turns, postedRows, turn{limit: limit, until: math.MaxInt64}, scanPosted)
}

// turn says what is read in a turn: at most limit rows that were posted until a time. Of each project
// the oldest are read, past the first skip shares of them.
type turn struct {
	limit, skip int
	until       int64
}

// takeTurn reads the rows of the projects whose turn it is. Each project has an equal share of them, so a
// busy project delays only itself.
func takeTurn[R any](
	ctx context.Context, c *Core, t *turns, of outboxRows, in turn, scan func(scanner) (R, error),
) ([]R, error) {
	due := of.narrow + `o.posted_at <= now_us() AND o.posted_at <= `
	lap := func(name, from, to string) string {
		first := `SELECT (SELECT o.project_id FROM ` + of.table + ` o WHERE ` + due + `$3 ` + to + ` AND o.project_id > `
		return name + ` (project_id) AS (` + first + from + ` ORDER BY o.project_id, o.posted_at LIMIT 1)
			UNION ALL ` + first + `t.project_id ORDER BY o.project_id, o.posted_at LIMIT 1) FROM ` + name + ` t WHERE t.project_id IS NOT NULL)`
	}
	most := min(in.limit, maxTurns)
	projects, err := t.next(most, func(after uuid.UUID, limit int) ([]uuid.UUID, error) {
		return collect(ctx, c.engine.Reader(), scanID, `WITH RECURSIVE `+lap(`later`, `$1`, ``)+`, `+
			lap(`earlier`, `'`+uuid.Nil.String()+`'`, `AND o.project_id <= $1`)+`
			SELECT t.project_id FROM (SELECT project_id FROM later UNION ALL SELECT project_id FROM earlier) t
				WHERE t.project_id IS NOT NULL LIMIT $2`,
			after, limit, in.until)
	})
	if err != nil || len(projects) == 0 {
		return nil, err
	}
	share := max(in.limit/len(projects), 1)
	places := 1 // a power of two: few statements are prepared
	for places < len(projects) {
		places *= 2
	}
	l := list{args: []any{share, in.until, in.skip * share}}
	each := make([]string, places)
	for i := range each {
		project := uuid.Nil // of no project
		if i < len(projects) {
			project = projects[i]
		}
		each[i] = `SELECT * FROM (SELECT ` + of.columns + ` FROM ` + of.table + ` o WHERE o.project_id = ` + l.add(project) + ` AND ` + due + `$2
			ORDER BY o.posted_at LIMIT $1 OFFSET $3) t`
	}
	return collect(ctx, c.engine.Reader(), scan, strings.Join(each, ` UNION ALL `), l.args...)
}
