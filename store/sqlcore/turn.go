// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

const (
	// maxTurns is of how many projects rows of the outbox are taken at once.
	maxTurns = 16
	// asideFor is how long a row of the outbox is set aside that could not be consumed, twice
	// as long each time after, at most maxAside.
	asideFor = 10 * time.Second
	maxAside = time.Hour
)

// turns lets projects take turns. The zero value begins with the first one.
type turns struct {
	mutex sync.Mutex
	last  uuid.UUID
}

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

// next returns at most limit projects, of which list returns those after one in the order of
// their ids.
func (t *turns) next(limit int, list func(after uuid.UUID, limit int) ([]uuid.UUID, error)) ([]uuid.UUID, error) {
	after := t.since()
	projects, err := list(after, limit)
	if err == nil && len(projects) == 0 && after != uuid.Nil {
		projects, err = list(uuid.Nil, limit)
	}
	if err != nil {
		return nil, err
	}
	last := uuid.Nil // all have had theirs
	if len(projects) == limit {
		last = projects[limit-1]
	}
	t.back(last)
	return projects, nil
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

// toPost are rows of the outbox for deliveries, at most limit, the oldest of each project.
// Each project has its part of them, so that one with many keeps no other waiting.
func (c *Core) toPost(ctx context.Context, limit int) ([]posted, error) {
	projects, err := c.turns.next(min(limit, maxTurns), func(after uuid.UUID, limit int) ([]uuid.UUID, error) {
		return collect(ctx, c.engine.Reader(), scanID, `WITH RECURSIVE turns (project_id) AS (
				SELECT (SELECT o.project_id FROM outbox o WHERE o.consumer IN (`+posting+`) AND o.project_id > $1 AND o.posted_at <= now_us()
					ORDER BY o.project_id, o.posted_at LIMIT 1)
				UNION ALL
				SELECT (SELECT o.project_id FROM outbox o WHERE o.consumer IN (`+posting+`) AND o.project_id > t.project_id AND o.posted_at <= now_us()
					ORDER BY o.project_id, o.posted_at LIMIT 1)
				FROM turns t WHERE t.project_id IS NOT NULL)
			SELECT t.project_id FROM turns t WHERE t.project_id IS NOT NULL LIMIT $2`, after, limit)
	})
	if err != nil || len(projects) == 0 {
		return nil, err
	}
	l := list{args: []any{max(limit/len(projects), 1)}}
	each := make([]string, len(projects))
	for i, project := range projects {
		each[i] = `SELECT * FROM (SELECT ` + postedColumns + ` FROM outbox o WHERE o.project_id = ` + l.add(project) + `
			AND o.consumer IN (` + posting + `) AND o.posted_at <= now_us() ORDER BY o.posted_at LIMIT $1) t`
	}
	return collect(ctx, c.engine.Reader(), scanPosted, strings.Join(each, ` UNION ALL `), l.args...)
}
