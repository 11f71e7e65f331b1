// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// assignPosition gives an environment its position in its project, in the order of claims. The first
// ones are in effect, up to the limit. reached is a *store.LimitReachedError if e is beyond it. It
// keeps its position, and moves up when an earlier environment is deleted. The project is locked.
func assignPosition(ctx context.Context, tx *sqldb.Tx, e store.Environment) (reached, err error) {
	var number int64
	err = sqldb.MapNoRows(tx.QueryRowContext(ctx, `SELECT number FROM environment_places
		WHERE project_id = $1 AND environment_id = $2`, e.ProjectID, e.ID).Scan(&number))
	if errors.Is(err, store.ErrNotFound) {
		if number, err = tx.Ordinal(ctx); err == nil {
			_, err = tx.Exec(ctx, `INSERT INTO environment_places (project_id, environment_id, number) VALUES ($1, $2, $3)`,
				e.ProjectID, e.ID, number)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("claiming a position among the environments: %w", err)
	}
	if e.Limit == 0 {
		return nil, nil
	}
	var before, stored int
	err = tx.QueryRowContext(ctx, `SELECT
			(SELECT count(*) FROM environment_places WHERE project_id = $1 AND number < $2),
			(SELECT count(*) FROM environments WHERE project_id = $1 AND id = $3)`, e.ProjectID, number, e.ID).
		Scan(&before, &stored)
	if err != nil || before < e.Limit {
		return nil, sqldb.Wrap(err, "counting the earlier environments")
	}
	return &store.LimitReachedError{Limit: e.Limit, Stored: stored > 0}, nil
}

// releasePosition moves up the environments behind a deleted one.
func releasePosition(ctx context.Context, tx *sqldb.Tx, key store.Key) error {
	_, err := tx.Exec(ctx, `DELETE FROM environment_places WHERE project_id = $1 AND environment_id = $2`, key.ProjectID, key.ID)
	return sqldb.Wrap(err, "freeing a position among the environments")
}
