// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

const deploymentColumns = `id, project_id, environment_id, cluster_uid, namespace, name, object_uid, generation,
	fingerprint, source_type, branch, commit_wanted, skip_tests, skip_failed_connectors, redeploy_of,
	sequence, status, phase, failure_reason, message, built, resolved_commit, commit_message, author,
	bundle_digest, bundle_size, agents, test_results, connector_results, created_at, started_at, ended_at, activated_at,
	activation_requested_at`

func scanDeployment(row scanner) (d store.Deployment, err error) {
	d.Ref.Kind = store.KindDeployment
	err = row.Scan(&d.ID, &d.ProjectID, &d.EnvironmentID, &d.Ref.ClusterUID, &d.Ref.Namespace, &d.Ref.Name,
		&d.Ref.ObjectUID, &d.Ref.Generation, &d.Fingerprint, &d.SourceType, &d.Branch, &d.Commit, &d.SkipTests,
		&d.SkipFailedConnectors, &d.RedeployOf, &d.Sequence, &d.Status, &d.Phase, &d.FailureReason, &d.Message,
		&d.Built, &d.ResolvedCommit, &d.CommitMessage, &d.Author, &d.BundleDigest, &d.BundleSize, document{&d.Agents},
		document{&d.TestResults}, document{&d.ConnectorResults}, at(&d.CreatedAt), maybeAt(&d.StartedAt),
		maybeAt(&d.EndedAt), maybeAt(&d.ActivatedAt), maybeAt(&d.ActivationRequestedAt))
	return d, err
}

func deployment(ctx context.Context, q Queryer, id uuid.UUID) (store.Deployment, error) {
	d, err := scanDeployment(q.QueryRowContext(ctx, `SELECT `+deploymentColumns+` FROM deployments WHERE id = $1`, id))
	return d, wrap(found(err), "reading deployment %s", id)
}

// Deployment implements store.Deployments.
func (c *Core) Deployment(ctx context.Context, id uuid.UUID) (store.Deployment, error) {
	return deployment(ctx, c.engine.Reader(), id)
}

// ListDeployments implements store.Deployments.
func (c *Core) ListDeployments(ctx context.Context, environmentID uuid.UUID) ([]store.Deployment, error) {
	list, err := collect(ctx, c.engine.Reader(), scanDeployment,
		`SELECT `+deploymentColumns+` FROM deployments WHERE environment_id = $1 ORDER BY sequence DESC`, environmentID)
	return list, wrap(err, "listing deployments of environment %s", environmentID)
}

// BeginDeployment implements store.Deployments.
func (c *Core) BeginDeployment(ctx context.Context, spec store.DeploymentSpec) (store.Deployment, error) {
	var d store.Deployment
	err := c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		spec.Ref.Kind = store.KindDeployment
		// A deployment's spec is immutable: an older generation says nothing else.
		if err := c.claim(ctx, tx, spec.Ref, spec.ID, spec.ProjectID); err != nil && !errors.Is(err, store.ErrStale) {
			return err
		}
		var err error
		d, err = deployment(ctx, tx, spec.ID)
		switch {
		case err == nil:
			return adoptDeployment(ctx, tx, &d, spec)
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
		if err := insertDeployment(ctx, tx, spec); err != nil {
			return err
		}
		if err := cancelDeployments(ctx, tx, "superseded", `environment_id = $1 AND id <> $2`,
			spec.EnvironmentID, spec.ID); err != nil {
			return err
		}
		tx.Hint(store.TopicDeployment, spec.ID)
		d, err = deployment(ctx, tx, spec.ID)
		return err
	})
	return d, wrap(err, "beginning %s", spec.Ref)
}

// adoptDeployment answers a begin with what is recorded under the id.
func adoptDeployment(ctx context.Context, tx *Tx, d *store.Deployment, spec store.DeploymentSpec) error {
	if d.Fingerprint != spec.Fingerprint || d.ProjectID != spec.ProjectID || d.EnvironmentID != spec.EnvironmentID {
		return store.ErrNameReused
	}
	if d.Ref == spec.Ref {
		return nil
	}
	d.Ref = spec.Ref
	_, err := tx.exec(ctx, `UPDATE deployments SET cluster_uid = $2, namespace = $3, name = $4, object_uid = $5,
		generation = $6 WHERE id = $1`,
		d.ID, d.Ref.ClusterUID, d.Ref.Namespace, d.Ref.Name, d.Ref.ObjectUID, d.Ref.Generation)
	return wrap(err, "recording the object")
}

func insertDeployment(ctx context.Context, tx *Tx, s store.DeploymentSpec) error {
	sequence, err := tx.ordinal(ctx)
	if err != nil {
		return err
	}
	_, err = tx.exec(ctx, `INSERT INTO deployments (id, project_id, environment_id, cluster_uid, namespace, name,
			object_uid, generation, fingerprint, source_type, branch, commit_wanted, skip_tests,
			skip_failed_connectors, redeploy_of, sequence, status, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, 'pending', now_us())`,
		s.ID, s.ProjectID, s.EnvironmentID, s.Ref.ClusterUID, s.Ref.Namespace, s.Ref.Name, s.Ref.ObjectUID,
		s.Ref.Generation, s.Fingerprint, s.SourceType, Text(s.Branch), Text(s.Commit), s.SkipTests,
		s.SkipFailedConnectors, s.RedeployOf, sequence)
	return wrap(err, "recording the deployment")
}

// cancelDeployments cancels the pending and building ones that a condition names.
func cancelDeployments(ctx context.Context, tx *Tx, message, condition string, args ...any) error {
	l := list{args: args}
	ids, err := collect(ctx, tx, scanID, `UPDATE deployments SET status = 'cancelled', phase = '', ended_at = now_us(),
		message = `+l.add(message)+` WHERE status IN ('pending', 'building') AND `+condition+` RETURNING id`, l.args...)
	for _, id := range ids {
		tx.Hint(store.TopicDeployment, id)
	}
	return wrap(err, "cancelling deployments")
}

// StartBuild implements store.Deployments.
func (c *Core) StartBuild(ctx context.Context, id uuid.UUID) error {
	err := c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		d, err := c.lockDeployment(ctx, tx, id)
		switch {
		case err != nil:
			return err
		case d.Status == store.DeploymentBuilding:
			return nil
		case !d.Status.CanBecome(store.DeploymentBuilding):
			return store.ErrConflict
		}
		tx.Hint(store.TopicDeployment, id)
		_, err = tx.exec(ctx, `UPDATE deployments SET status = 'building', phase = $2, started_at = now_us() WHERE id = $1`,
			id, string(store.PhaseFetching))
		return err
	})
	return wrap(err, "starting the build of deployment %s", id)
}

// EndDeployment implements store.Deployments.
func (c *Core) EndDeployment(ctx context.Context, id uuid.UUID, status store.DeploymentStatus,
	reason store.FailureReason, message string,
) error {
	err := c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		d, err := c.lockDeployment(ctx, tx, id)
		switch {
		case err != nil:
			return err
		case !d.Status.CanBecome(status), status != store.DeploymentFailed && status != store.DeploymentCancelled:
			return store.ErrConflict
		}
		tx.Hint(store.TopicDeployment, id)
		_, err = tx.exec(ctx, `UPDATE deployments SET status = $2, phase = '', failure_reason = $3, message = $4,
			ended_at = now_us() WHERE id = $1`, id, string(status), string(reason), Text(message))
		return err
	})
	return wrap(err, "ending deployment %s", id)
}

// lockDeployment reads a deployment and keeps it from changing until the
// transaction ends.
func (c *Core) lockDeployment(ctx context.Context, tx *Tx, id uuid.UUID) (store.Deployment, error) {
	var project uuid.UUID
	err := tx.QueryRowContext(ctx, `SELECT project_id FROM deployments WHERE id = $1`, id).Scan(&project)
	if err != nil {
		return store.Deployment{}, found(err)
	}
	if err := c.engine.Lock(ctx, tx, project); err != nil {
		return store.Deployment{}, fmt.Errorf("locking project %s: %w", project, err)
	}
	return deployment(ctx, tx, id)
}
