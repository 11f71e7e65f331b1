// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// takeRequest counts a request by the database's clock. Requests of a project are serialized by its
// row, so the clock is read once the row is locked, in the correlated subquery. A time from before
// the wait would be older than rows that others have written meanwhile. If the clock was set back,
// later times count too.
//
// Its commit does not wait for a disk: the table is unlogged, and synchronous_commit is off for
// this statement, in case the transaction writes other rows. The last column shows that the setting
// was applied.
//
// The same statement reads the limit.
const takeRequest = `WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', TRUE) AS mode),
	most AS MATERIALIZED (SELECT COALESCE((SELECT p.requests_per_minute FROM projects p
		WHERE p.project_id = $1::uuid AND p.requests_per_minute > 0), $2::bigint) AS requests)
	INSERT INTO request_windows AS w (project_id, taken, allowed, at)
	SELECT $1::uuid, ARRAY[c.at], TRUE, c.at
	FROM quick, (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at) c
	WHERE quick.mode = 'off'
	ON CONFLICT (project_id) DO UPDATE SET (taken, allowed, at) = (
		SELECT CASE WHEN cardinality(p.counted) < most.requests THEN p.counted || p.at ELSE p.counted END,
			cardinality(p.counted) < most.requests, p.at
		FROM (SELECT c.at, ARRAY(SELECT t FROM unnest(w.taken) t WHERE abs(c.at - t) < $3::bigint ORDER BY t) AS counted
			FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at) c) p, most)
	RETURNING allowed, cardinality(taken), COALESCE(taken[1], at), at, (SELECT requests FROM most), (SELECT mode FROM quick)`

// TakeRequest implements store.RateLimiter.
func (s *Store) TakeRequest(ctx context.Context, projectID uuid.UUID, limit store.RateLimit) (store.RateVerdict, error) {
	var (
		verdict    store.RateVerdict
		counted    int
		oldest, at int64
		mode       string
	)
	if err := s.schema.CheckUsable(); err != nil {
		return verdict, err
	}
	err := retryConflicts(func() error {
		return s.pools[0].QueryRow(ctx, takeRequest, projectID, limit.Requests, limit.Window.Microseconds()).
			Scan(&verdict.Allowed, &counted, &oldest, &at, &verdict.Limit, &mode)
	})
	if err != nil {
		return store.RateVerdict{}, fmt.Errorf("counting a request of project %s: %w", projectID, err)
	}
	verdict.Remaining = max(verdict.Limit-counted, 0)
	verdict.Reset = limit.Window - time.Duration(at-oldest)*time.Microsecond
	return verdict, nil
}
