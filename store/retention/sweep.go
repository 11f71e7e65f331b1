// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storedbytes"
	"github.com/agentplatform/agentplatform/store/sweep"
)

const (
	// unmarkedBlobAge is the age at which an unmarked blob is deleted.
	unmarkedBlobAge = 24 * time.Hour
	// runnerAge is how long an absent runner is remembered.
	runnerAge = time.Hour
)

// SweepExpired implements store.Housekeeping. Each kind has its own short transactions, because a
// request may wait for a key that one of them deletes. A row that cannot be deleted blocks no other.
func (s *Store) SweepExpired(ctx context.Context, limit int) (total int, err error) {
	var failed []error
	for _, of := range s.expiredKinds() {
		of.DB = s.db
		n, err := of.Sweep(ctx, min(limit, sqldb.MaxIDs))
		total += n
		failed = append(failed, sqldb.Wrap(err, "deleting %s", of.What))
	}
	absent, err := s.db.Exec(ctx, `DELETE FROM runners WHERE (project_id, environment_id, id) IN
		(SELECT project_id, environment_id, id FROM runners WHERE seen_at < now_us() - $1 LIMIT $2)`,
		runnerAge.Microseconds(), min(limit, sqldb.MaxIDs))
	if err == nil {
		total += int(absent)
	}
	n, blobErr := s.sweepBlobs(ctx, &s.skipped.looseBlobs, `r.mark = '' AND r.created_at < now_us() - $2`, limit, unmarkedBlobAge.Microseconds())
	failed = append(failed, sqldb.Wrap(err, "deleting runners"), sqldb.Wrap(blobErr, "deleting blobs that nothing keeps"))
	return total + n, sweep.JoinSetAside(failed...)
}

// expiredKinds are the kinds of rows that expire.
func (s *Store) expiredKinds() []sweep.Expired {
	return []sweep.Expired{
		{
			What: "idempotency keys", Skipped: &s.skipped.idempotencyKeys, Table: "idempotency_keys", ID: "connector_run_id",
			Where: `r.expires_at <= now_us()`, Order: `r.expires_at`,
			Drop: func(ctx context.Context, tx *sqldb.Tx, narrow string, l sqldb.Args) (int64, error) {
				return tx.Exec(ctx, `DELETE FROM idempotency_keys WHERE (project_id, connector_id, key) IN
					(SELECT r.project_id, r.connector_id, r.key FROM idempotency_keys r
						WHERE r.expires_at <= now_us()`+narrow+` ORDER BY r.expires_at LIMIT $1 `+s.db.SkipLocked+`)`, l.Values...)
			},
		},
		{
			What: "rejections", Skipped: &s.skipped.rejections, Table: "rejections", ID: "connector_id",
			Where: `r.last_at < now_us() - $2`, Order: `r.last_at`,
			Args: []any{(store.RejectionDays * sqldb.Day).Microseconds()},
			Drop: func(ctx context.Context, tx *sqldb.Tx, narrow string, l sqldb.Args) (int64, error) {
				return tx.Exec(ctx, `DELETE FROM rejections WHERE (project_id, connector_id) IN
					(SELECT r.project_id, r.connector_id FROM rejections r
						WHERE r.last_at < now_us() - $2`+narrow+` ORDER BY r.last_at LIMIT $1 `+s.db.SkipLocked+`)`, l.Values...)
			},
		},
		{
			What: "replays", Skipped: &s.skipped.replays, Table: "replays", ID: "id",
			Where: `r.ended_at < now_us() - $2`, Order: `r.ended_at`,
			Args: []any{store.ReplayAge.Microseconds()},
			Drop: func(ctx context.Context, tx *sqldb.Tx, narrow string, l sqldb.Args) (int64, error) {
				return tx.Exec(ctx, `DELETE FROM replays WHERE (project_id, id) IN
					(SELECT r.project_id, r.id FROM replays r
						WHERE r.ended_at < now_us() - $2`+narrow+` ORDER BY r.ended_at LIMIT $1 `+s.db.SkipLocked+`)`, l.Values...)
			},
		},
		{
			What: "uploads", Skipped: &s.skipped.uploads, Table: "uploads", ID: "blob_id", Where: `r.kept_until <= now_us()`, Order: `r.kept_until`,
			Drop: s.blobs.DropUploads,
		},
		{
			What: "bundles", Skipped: &s.skipped.bundles, Table: "bundles", ID: "blob_id", Where: `r.kept_until <= now_us()`, Order: `r.kept_until`,
			Drop: s.blobs.DropBundles,
		},
	}
}

// uncountedProjects walks the key of the outbox from project to project, so its cost is the number of projects, not of rows.
var uncountedProjects = `WITH RECURSIVE p (project_id) AS (
		SELECT (SELECT o.project_id FROM outbox o WHERE o.project_id >= '` + uuid.Nil.String() + `' ORDER BY o.project_id LIMIT 1)
		UNION ALL
		SELECT (SELECT o.project_id FROM outbox o WHERE o.project_id > p.project_id ORDER BY o.project_id LIMIT 1)
		FROM p WHERE p.project_id IS NOT NULL
	)
	SELECT p.project_id FROM p WHERE p.project_id IS NOT NULL
		AND EXISTS (SELECT 1 FROM outbox o WHERE o.project_id = p.project_id AND o.consumer = '` + storedbytes.Consumer + `')`

// CountStored implements store.Housekeeping. Each project is counted in a transaction of its own, which holds the rows of one
// project only. A run that saves a file changes the same rows while it holds its own row. So it never waits for a count that
// waits for another project.
//
// The order of the projects is random. So gateways count different projects at the same time, and a project that fails or has a
// large backlog delays no other.
func (s *Store) CountStored(ctx context.Context, limit int) (n int, err error) {
	projects, err := sqldb.Collect(ctx, s.db.Reader(), sqldb.ScanUUID, uncountedProjects)
	if err != nil {
		return 0, sqldb.Wrap(err, "reading projects with uncounted rows")
	}
	rand.Shuffle(len(projects), func(a, b int) { projects[a], projects[b] = projects[b], projects[a] }) //nolint:gosec // any order will do
	var failed []error
	for _, project := range projects {
		if n >= limit || ctx.Err() != nil {
			break
		}
		counted, err := s.countProject(ctx, project, limit-n)
		n += counted
		failed = append(failed, sqldb.Wrap(err, "counting the stored bytes of project %s", project))
		if err != nil && !s.db.IsDataError(err) && !s.db.CanWrite(ctx) {
			break // every other project would fail too
		}
	}
	return n, errors.Join(failed...)
}

// countProject counts at most limit outbox rows of a project.
func (s *Store) countProject(ctx context.Context, project uuid.UUID, limit int) (n int, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		bytes := map[sqldb.ProjectDay]int64{}
		n = 0
		err := sqldb.EachRow(ctx, tx, func(row sqldb.Scanner) (err error) {
			var (
				id   uuid.UUID
				more int64
			)
			err = row.Scan(&id, &more)
			bytes[sqldb.ProjectDay{Project: project, Day: sqldb.DayOf(id)}] += more
			n++
			return err
		}, `DELETE FROM outbox WHERE project_id = $1 AND consumer = '`+storedbytes.Consumer+`' AND ended_id IN (SELECT o.ended_id FROM outbox o
			WHERE o.project_id = $1 AND o.consumer = '`+storedbytes.Consumer+`' ORDER BY o.ended_id LIMIT $2 `+s.db.SkipLocked+`) RETURNING ended_id, bytes`, project, limit)
		if err != nil {
			return err
		}
		return storedbytes.AddByDay(ctx, tx, bytes)
	})
	if err != nil {
		return 0, err // nothing was counted
	}
	return n, nil
}
