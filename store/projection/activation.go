// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/blob"
	"github.com/agentplatform/agentplatform/store/deployment"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// liveState is the live state of an environment.
type liveState struct {
	deployment  *uuid.UUID
	rank        int64
	activatedAt *time.Time
}

// Activate implements store.Activations.
//
// The rank of an activation decides which deployment is live. A deployment's own activation ranks
// by its sequence, which is the order of creation. A user's request ranks by a new ordinal, above
// everything that began before. A deployment keeps its highest rank. So repeated activations, for
// example after objects are re-created, make the same deployment live in any order.
func (s *Store) Activate(ctx context.Context, a store.Activation) (store.ActivationResult, error) {
	var result store.ActivationResult
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		result = store.ActivationResult{}
		d, err := deployment.Lock(ctx, s.db, tx, a.Deployment)
		switch {
		case err != nil:
			return err
		case d.Status != store.DeploymentDeployed && !(d.Status == store.DeploymentBuilding && d.Built):
			return store.ErrConflict
		}
		rank, err := markDeployed(ctx, tx, d, a)
		if err != nil {
			return err
		}
		var live liveState
		if err := tx.QueryRowContext(ctx, `SELECT live_deployment_id, live_rank, live_activated_at FROM environments
			WHERE project_id = $1 AND id = $2`, d.ProjectID, d.EnvironmentID).Scan(&live.deployment, &live.rank, sqldb.ScanNullTime(&live.activatedAt)); err != nil {
			return sqldb.Wrap(sqldb.MapNoRows(err), "reading environment %s", d.EnvironmentID)
		}
		if live.deployment != nil && rank <= live.rank {
			if result.Live = *live.deployment == d.ID; result.Live {
				result.ActivatedAt = *live.activatedAt
			}
			return nil
		}
		result.Live = true
		rekeyed, err := changesKeys(ctx, tx, live.deployment, d.Key())
		if err != nil {
			return err
		}
		if err := recordLastUse(ctx, tx, d.ProjectID, live.deployment); err != nil {
			return err
		}
		if result.ActivatedAt, err = s.makeLive(ctx, tx, d, rank, a); err != nil || !rekeyed {
			return err
		}
		return bumpConnectors(ctx, tx, d.ProjectID, `environment_id = $2`, d.EnvironmentID)
	})
	return result, sqldb.Wrap(err, "activating deployment %s", a.Deployment)
}

// markDeployed makes a built deployment deployed and returns its rank.
func markDeployed(ctx context.Context, tx *sqldb.Tx, d store.Deployment, a store.Activation) (rank int64, err error) {
	rank = d.Sequence
	var decided *int64
	if a.RequestedAt != nil && (d.ActivationRequestedAt == nil || sqldb.Instant(*a.RequestedAt) != sqldb.Instant(*d.ActivationRequestedAt)) {
		if rank, err = tx.Ordinal(ctx); err != nil {
			return 0, err
		}
		us := sqldb.Instant(*a.RequestedAt)
		decided = &us
	}
	tx.Hint(store.TopicDeployment, d.Key())
	err = tx.QueryRowContext(ctx, `UPDATE deployments SET status = 'deployed', phase = '',
			ended_at = COALESCE(ended_at, now_us()),
			activation_requested_at = COALESCE($4, activation_requested_at),
			activation_rank = CASE WHEN activation_rank > $3 THEN activation_rank ELSE $3 END
		WHERE project_id = $1 AND id = $2 RETURNING activation_rank`,
		d.ProjectID, d.ID, rank, decided).Scan(&rank)
	return rank, sqldb.Wrap(err, "recording the outcome")
}

// recordLastUse records the time at which a deployment stopped being live. If its object is deleted, its
// rows stay as long as its runs.
func recordLastUse(ctx context.Context, tx *sqldb.Tx, project uuid.UUID, deployment *uuid.UUID) error {
	if deployment == nil {
		return nil
	}
	_, err := tx.Exec(ctx, `UPDATE departed SET gone_at = now_us() WHERE project_id = $1 AND kind = $2 AND id = $3`,
		project, store.KindDeployment, *deployment)
	return sqldb.Wrap(err, "recording the end of the live deployment")
}

// makeLive changes the live pointer and the revisions of code-defined connectors.
func (s *Store) makeLive(ctx context.Context, tx *sqldb.Tx, d store.Deployment, rank int64, a store.Activation) (when time.Time, err error) {
	if _, err := blob.HoldBundle(ctx, tx, d.ProjectID, d.BundleDigest); err != nil {
		if errors.Is(err, store.ErrNotFound) {
			err = store.ErrBundleGone
		}
		return when, sqldb.Wrap(err, "keeping bundle %s", d.BundleDigest)
	}
	if err := blob.HoldLiveBundle(ctx, tx, d.Environment()); err != nil {
		return when, err
	}
	if err := tx.QueryRowContext(ctx, `UPDATE environments SET live_deployment_id = $3, live_rank = $4,
			live_activated_at = now_us(), wanted_bundle_digest = '' WHERE project_id = $1 AND id = $2
		RETURNING live_activated_at`, d.ProjectID, d.EnvironmentID, d.ID, rank).Scan(sqldb.ScanTime(&when)); err != nil {
		return when, sqldb.Wrap(err, "changing the live pointer")
	}
	if _, err := tx.Exec(ctx, `UPDATE deployments SET activated_at = $3,
		connector_results = COALESCE($4, connector_results) WHERE project_id = $1 AND id = $2`,
		d.ProjectID, d.ID, sqldb.Instant(when), sqldb.JSON(a.ConnectorResults)); err != nil {
		return when, sqldb.Wrap(err, "recording the activation")
	}
	// Only live deployments keep their drift, so the index of drift does not grow with the history.
	if _, err := tx.Exec(ctx, `UPDATE deployments SET drift = NULL, drift_changed_at = NULL
		WHERE project_id = $1 AND environment_id = $2 AND drift_changed_at IS NOT NULL AND id <> $3`,
		d.ProjectID, d.EnvironmentID, d.ID); err != nil {
		return when, sqldb.Wrap(err, "deleting the drift of earlier deployments")
	}
	if err := s.reviseConnectors(ctx, tx, d, a); err != nil {
		return when, err
	}
	tx.Hint(store.TopicQueued, d.Environment())
	return when, nil
}

// reviseConnectors makes the code-defined connectors and links of an environment match the
// activation. Removals come first, so their names are free.
func (s *Store) reviseConnectors(ctx context.Context, tx *sqldb.Tx, d store.Deployment, a store.Activation) error {
	connectors := make([]uuid.UUID, len(a.Connectors))
	for i, connector := range a.Connectors {
		connectors[i] = connector.ID
	}
	if err := retireConnectors(ctx, tx, d.Environment(), slices.Concat(connectors, a.Kept)); err != nil {
		return err
	}
	for _, connector := range a.Connectors {
		if err := takeOutOfEffect(ctx, tx, connector.Key(), `name <> $3 AND NOT shadowed`, sqldb.Text(connector.Name)); err != nil {
			return err
		}
	}
	for _, connector := range a.Connectors {
		var behind *store.SecretVersionError
		partly, err := s.putConnector(ctx, tx, connector)
		if errors.As(partly, &behind) {
			partly = nil // the secrets stay
		}
		if err := connectorRefusal(connector.ID, partly, err); err != nil {
			return err
		}
	}
	if err := recordDeploymentOf(ctx, tx, d, connectors); err != nil {
		return err
	}
	return s.reviseLinks(ctx, tx, d.ProjectID, connectors, a.Links)
}

// recordDeploymentOf records the deployment of the activation's connectors.
func recordDeploymentOf(ctx context.Context, tx *sqldb.Tx, d store.Deployment, connectors []uuid.UUID) error {
	if len(connectors) == 0 {
		return nil
	}
	brought := sqldb.Args{Values: []any{d.ProjectID, d.ID}}
	_, err := tx.Exec(ctx, `UPDATE connectors SET deployment_id = $2 WHERE project_id = $1 AND id IN `+brought.AddIDs(connectors), brought.Values...)
	return sqldb.Wrap(err, "recording the deployment of connectors")
}

// retireConnectors retires the code-defined connectors of an environment that the activation does
// not name.
func retireConnectors(ctx context.Context, tx *sqldb.Tx, environment store.Key, stay []uuid.UUID) error {
	retire := sqldb.Args{Values: []any{environment.ProjectID, environment.ID}}
	condition := `environment_id = $2 AND defined_in_code AND NOT retired`
	if len(stay) > 0 {
		condition += ` AND id NOT IN ` + retire.AddIDs(stay)
	}
	retired, err := sqldb.Collect(ctx, tx, sqldb.ScanUUID,
		`UPDATE connectors SET retired = TRUE WHERE project_id = $1 AND `+condition+` RETURNING id`, retire.Values...)
	if err != nil {
		return sqldb.Wrap(err, "retiring connectors")
	}
	for _, id := range retired {
		if err := bumpConnectors(ctx, tx, environment.ProjectID, `id = $2`, id); err != nil {
			return err
		}
	}
	return nil
}

// reviseLinks replaces the code-defined links of connectors.
func (s *Store) reviseLinks(ctx context.Context, tx *sqldb.Tx, project uuid.UUID, connectors []uuid.UUID, links []store.Link) error {
	keep := map[uuid.UUID]bool{}
	for _, l := range links {
		keep[l.ID] = true
	}
	if err := dropLinks(ctx, tx, project, connectors, keep); err != nil {
		return err
	}
	if err := removeLinkPolicies(ctx, tx, links); err != nil {
		return err
	}
	for _, l := range links {
		refused, err := s.putLink(ctx, tx, l, true)
		if err := connectorRefusal(l.ConnectorID, refused, err); err != nil {
			return err
		}
	}
	return nil
}

// connectorRefusal returns a *store.ConnectorRefusedError if a connector or its link fails an activation.
// It returns other errors unchanged.
func connectorRefusal(connector uuid.UUID, refused, err error) error {
	var taken *store.IDTakenError
	switch {
	case errors.As(err, &taken):
		refused = taken
	case err != nil:
		return err
	case refused == nil:
		return nil
	}
	return &store.ConnectorRefusedError{Connector: connector, Cause: refused}
}

// removeLinkPolicies removes the policies of links that get new ones, so that another link can take an
// action name.
func removeLinkPolicies(ctx context.Context, tx *sqldb.Tx, links []store.Link) error {
	for _, l := range links {
		policy, err := policyOf(l)
		if err != nil {
			return err
		}
		if policy == nil {
			continue
		}
		if _, err := tx.Exec(ctx, `UPDATE links SET outbound = NULL WHERE project_id = $1 AND id = $2 AND outbound <> $3`, l.ProjectID, l.ID, policy); err != nil {
			return sqldb.Wrap(err, "disabling the policy of %s", l.Ref)
		}
	}
	return nil
}

// dropLinks deletes the code-defined links of connectors, except the given ones.
func dropLinks(ctx context.Context, tx *sqldb.Tx, project uuid.UUID, connectors []uuid.UUID, keep map[uuid.UUID]bool) error {
	if len(connectors) == 0 {
		return nil
	}
	of := sqldb.Args{Values: []any{project}}
	stored, err := sqldb.Collect(ctx, tx, sqldb.ScanKey, `SELECT project_id, id FROM links
		WHERE project_id = $1 AND defined_in_code AND connector_id IN `+of.AddIDs(connectors), of.Values...)
	if err != nil {
		return sqldb.Wrap(err, "reading code-defined links")
	}
	for _, key := range stored {
		if keep[key.ID] {
			continue
		}
		if err := removeLink(ctx, tx, key); err != nil {
			return sqldb.Wrap(err, "removing link %s", key)
		}
		if err := releaseID(ctx, tx, key); err != nil {
			return sqldb.Wrap(err, "removing link %s", key)
		}
	}
	return nil
}

// RequestPrefetch implements store.Activations.
func (s *Store) RequestPrefetch(ctx context.Context, environment store.Key, digest string) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE environments SET wanted_bundle_digest = $3 WHERE project_id = $1 AND id = $2`,
			environment.ProjectID, environment.ID, digest)
		if err == nil && n == 0 {
			err = store.ErrNotFound
		}
		tx.Hint(store.TopicQueued, environment)
		return err
	})
	return sqldb.Wrap(err, "requesting a prefetch in environment %s", environment)
}

// Runners implements store.Activations.
func (s *Store) Runners(ctx context.Context, environment store.Key, within time.Duration) ([]store.Runner, error) {
	runners, err := sqldb.Collect(ctx, s.db.Reader(), func(row sqldb.Scanner) (r store.Runner, err error) {
		err = row.Scan(&r.ID, sqldb.ScanTime(&r.SeenAt), sqldb.ScanJSON(&r.Digests))
		return r, err
	}, `SELECT id, seen_at, digests FROM runners
		WHERE project_id = $1 AND environment_id = $2 AND seen_at >= now_us() - $3 ORDER BY id`,
		environment.ProjectID, environment.ID, within.Microseconds())
	return runners, sqldb.Wrap(err, "listing runners of environment %s", environment)
}
