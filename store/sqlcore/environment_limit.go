// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentplatform/agentplatform/store"
)

// takePlace gives an environment its place among those of its project, in the
// order of their claims: those that came first are in effect, up to the limit.
// reached is a *store.LimitReachedError when e is beyond it; it keeps its place,
// and moves up when one before it is removed. The project is locked.
func takePlace(ctx context.Context, tx *Tx, e store.Environment) (reached, err error) {
	var number int64
	err = found(tx.QueryRowContext(ctx, `SELECT number FROM environment_places
		WHERE project_id = $1 AND environment_id = $2`, e.ProjectID, e.ID).Scan(&number))
	if errors.Is(err, store.ErrNotFound) {
		if number, err = tx.ordinal(ctx); err == nil {
			_, err = tx.exec(ctx, `INSERT INTO environment_places (project_id, environment_id, number) VALUES ($1, $2, $3)`,
				e.ProjectID, e.ID, number)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("taking a place among the environments: %w", err)
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
		return nil, wrap(err, "counting the environments before it")
	}
	return &store.LimitReachedError{Limit: e.Limit, Stored: stored > 0}, nil
}

// freePlace lets those behind an environment move up.
func freePlace(ctx context.Context, tx *Tx, key store.Key) error {
	_, err := tx.exec(ctx, `DELETE FROM environment_places WHERE project_id = $1 AND environment_id = $2`, key.ProjectID, key.ID)
	return wrap(err, "freeing a place among the environments")
}
