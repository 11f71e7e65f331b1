// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"errors"
	"maps"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// concurrencyOf returns the agents of a deployment with a concurrency key, narrowed by a condition
// on a. Its arguments begin at $3.
func concurrencyOf(ctx context.Context, q sqldb.Queryer, deployment store.Key, condition string, args ...any) (map[string]store.Concurrency, error) {
	agents := map[string]store.Concurrency{}
	err := sqldb.CollectMap(ctx, q, agents, func(row sqldb.Scanner) (name string, of store.Concurrency, err error) {
		err = row.Scan(&name, &of.Expression, &of.Drop)
		return name, of, err
	}, `SELECT a.name, a.concurrency_expression, a.concurrency_drop FROM deployment_agents a
		WHERE a.project_id = $1 AND a.deployment_id = $2 AND a.concurrency_expression <> '' `+condition,
		append([]any{deployment.ProjectID, deployment.ID}, args...)...)
	return agents, sqldb.Wrap(err, "reading the concurrency of agents of deployment %s", deployment)
}

// addConcurrency adds the concurrency settings to a route.
func addConcurrency(ctx context.Context, q sqldb.Queryer, route *store.Route) error {
	c := route.Connector
	var live *uuid.UUID
	err := sqldb.MapNoRows(q.QueryRowContext(ctx, `SELECT live_deployment_id FROM environments WHERE project_id = $1 AND id = $2`,
		c.ProjectID, c.EnvironmentID).Scan(&live))
	if errors.Is(err, store.ErrNotFound) || err == nil && live == nil {
		return nil
	}
	if err != nil {
		return sqldb.Wrap(err, "reading the live deployment of environment %s", c.EnvironmentID)
	}
	route.Live = true
	route.Concurrency, err = concurrencyOf(ctx, q, store.Key{ProjectID: c.ProjectID, ID: *live}, `AND EXISTS
		(SELECT 1 FROM links l WHERE l.project_id = a.project_id AND l.connector_id = $3 AND l.agent_name = a.name)`, c.ID)
	return err
}

// changesKeys reports whether an activation changes the keys of runs, so that the routes in
// gateways become stale.
func changesKeys(ctx context.Context, tx *sqldb.Tx, before *uuid.UUID, next store.Key) (bool, error) {
	if before == nil {
		return true, nil // nothing was live
	}
	was, err := concurrencyOf(ctx, tx, store.Key{ProjectID: next.ProjectID, ID: *before}, ``)
	if err != nil {
		return false, err
	}
	is, err := concurrencyOf(ctx, tx, next, ``)
	return !maps.Equal(was, is), err
}
