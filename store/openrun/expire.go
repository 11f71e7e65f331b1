// SPDX-License-Identifier: Apache-2.0

package openrun

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/sweep"
)

// openProjects walks the key of open runs from project to project, so its cost is the number of
// projects, not of runs.
var openProjects = `WITH RECURSIVE p (project_id) AS (
		SELECT (SELECT r.project_id FROM open_runs r WHERE r.project_id >= '` + uuid.Nil.String() + `' ORDER BY r.project_id LIMIT 1)
		UNION ALL
		SELECT (SELECT r.project_id FROM open_runs r WHERE r.project_id > p.project_id ORDER BY r.project_id LIMIT 1)
		FROM p WHERE p.project_id IS NOT NULL
	)
	SELECT p.project_id FROM p WHERE p.project_id IS NOT NULL`

// ExpireRuns implements store.Housekeeping. The ID of a run has its acceptance time. Projects are
// processed round robin from a random one, so the work that one call leaves does not always belong
// to the same projects.
func (s *Store) ExpireRuns(ctx context.Context, age time.Duration, limit int) (n int, err error) {
	projects, err := sqldb.Collect(ctx, s.db.Reader(), sqldb.ScanUUID, openProjects)
	if err != nil {
		return 0, sqldb.Wrap(err, "reading projects with open runs")
	}
	//nolint:gosec // whose turn it is first is no secret
	rand.Shuffle(len(projects), func(i, j int) { projects[i], projects[j] = projects[j], projects[i] })
	part := min(max(limit/max(len(projects), 1), 1), sqldb.MaxIDs)
	s.expired.BeginCall()
	var failed []error
	for len(projects) > 0 && n < limit && ctx.Err() == nil {
		project, most := projects[0], min(limit-n, part)
		expired, err := s.expireOf(ctx, project, age, most)
		n += expired
		if err != nil {
			failed = append(failed, sqldb.Wrap(err, "ending expired runs of project %s", project))
		}
		if projects = projects[1:]; expired == most {
			projects = append(projects, project)
		}
	}
	return n, sweep.JoinSetAside(failed...)
}

// expireOf ends runs of a project, which may have a shorter retention.
func (s *Store) expireOf(ctx context.Context, project uuid.UUID, age time.Duration, limit int) (int, error) {
	age, err := s.db.OpenFor(ctx, s.db.Reader(), project, age)
	if err != nil {
		return 0, err
	}
	swept, err := sweep.RunsByKey(s.db, &s.expired, `r.project_id = $2 AND r.id < id_at(now_us() - $3)`, `r.id`, s.expireAfter(age), project, age.Microseconds()).Sweep(ctx, limit)
	return swept.Failed, err
}

// expireAfter ends runs that have been open for so long.
func (s *Store) expireAfter(age time.Duration) func(ctx context.Context, tx *sqldb.Tx, runs []store.Key) (store.Swept, error) {
	return func(ctx context.Context, tx *sqldb.Tx, runs []store.Key) (store.Swept, error) {
		endings := make([]Ending, len(runs))
		for i, run := range runs {
			endings[i] = Ending{
				Run: run, Status: store.RunFailed, Code: runerror.Expired,
				Error: fmt.Sprintf("the run has not ended within %d days of its acceptance", int(age.Hours()/24)),
			}
		}
		_, err := s.EndRuns(ctx, tx, endings)
		return store.Swept{Failed: len(runs)}, err
	}
}
