// SPDX-License-Identifier: Apache-2.0

// Package deployment stores deployments and their builds.
package deployment

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/blob"
	"github.com/agentplatform/agentplatform/store/object"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storedbytes"
)

// Store has the deployments of projects.
type Store struct {
	db      *sqldb.DB
	claimID ClaimID
}

// ClaimID claims the ID for an object.
type ClaimID func(ctx context.Context, tx *sqldb.Tx, key store.Key, ref store.ObjectRef) error

// New returns a Store.
func New(db *sqldb.DB, claimID ClaimID) *Store { return &Store{db: db, claimID: claimID} }

// deploymentColumns are all columns except the test results, which are read only if they are
// returned.
const deploymentColumns = `id, project_id, environment_id, namespace, name, object_uid, generation,
	fingerprint, source_type, branch, commit_wanted, upload_digest, skip_tests, skip_failed_connectors, redeploy_of,
	sequence, status, phase, end_phase, failure_reason, message, built, path, resolved_commit, commit_message, author,
	bundle_digest, bundle_size, agents, failed_test_count, connector_results, created_at, started_at, ended_at, activated_at,
	activation_rank, activation_requested_at`

// deploymentFields are the destinations of deploymentColumns.
func deploymentFields(d *store.Deployment) []any {
	d.Ref.Kind = store.KindDeployment
	return []any{
		&d.ID, &d.ProjectID, &d.EnvironmentID, &d.Ref.Namespace, &d.Ref.Name,
		&d.Ref.ObjectUID, &d.Ref.Generation, &d.Fingerprint, &d.SourceType, &d.Branch, &d.Commit, &d.UploadDigest, &d.SkipTests,
		&d.SkipFailedConnectors, &d.RedeployOf, &d.Sequence, &d.Status, &d.Phase, &d.EndPhase, &d.FailureReason,
		&d.Message, &d.Built, &d.Path, &d.ResolvedCommit, &d.CommitMessage, &d.Author, &d.BundleDigest, &d.BundleSize, sqldb.ScanJSON(&d.Agents),
		&d.FailedTestCount, sqldb.ScanJSON(&d.ConnectorResults), sqldb.ScanTime(&d.CreatedAt), sqldb.ScanNullTime(&d.StartedAt),
		sqldb.ScanNullTime(&d.EndedAt), sqldb.ScanNullTime(&d.ActivatedAt), &d.ActivationRank, sqldb.ScanNullTime(&d.ActivationRequestedAt),
	}
}

func scanDeployment(row sqldb.Scanner) (d store.Deployment, err error) {
	err = row.Scan(deploymentFields(&d)...)
	return d, err
}

// read reads a deployment without its test results.
func readDeployment(ctx context.Context, q sqldb.Queryer, key store.Key) (store.Deployment, error) {
	d, err := scanDeployment(q.QueryRowContext(ctx, `SELECT `+deploymentColumns+`
		FROM deployments WHERE project_id = $1 AND id = $2`, key.ProjectID, key.ID))
	return d, sqldb.Wrap(sqldb.MapNoRows(err), "reading deployment %s", key)
}

// Deployment implements store.Deployments.
func (s *Store) Deployment(ctx context.Context, key store.Key) (d store.Deployment, err error) {
	err = s.db.Reader().QueryRowContext(ctx, `SELECT `+deploymentColumns+`, test_results
		FROM deployments WHERE project_id = $1 AND id = $2`, key.ProjectID, key.ID).
		Scan(append(deploymentFields(&d), sqldb.ScanJSON(&d.TestResults))...)
	return d, sqldb.Wrap(sqldb.MapNoRows(err), "reading deployment %s", key)
}

// ListDeployments implements store.Deployments.
func (s *Store) ListDeployments(ctx context.Context, environment store.Key) ([]store.Deployment, error) {
	list, err := sqldb.Collect(ctx, s.db.Reader(), scanDeployment, `SELECT `+deploymentColumns+` FROM (
			SELECT d.*, SUM(length(message) + length(commit_message) + length(author)
				+ COALESCE(length(agents), 0) + COALESCE(length(connector_results), 0))
				OVER (ORDER BY sequence DESC) AS size_so_far
			FROM (SELECT `+deploymentColumns+` FROM deployments
				WHERE project_id = $1 AND environment_id = $2 ORDER BY sequence DESC LIMIT $3) d
		) s WHERE size_so_far <= $4
			OR sequence = (SELECT MAX(sequence) FROM deployments WHERE project_id = $1 AND environment_id = $2)
		ORDER BY sequence DESC`, environment.ProjectID, environment.ID, store.MaxDeployments, store.MaxDeploymentsSize)
	return list, sqldb.Wrap(err, "listing deployments of environment %s", environment)
}

// BeginDeployment implements store.Deployments. It reads first, like ClaimID, because the
// controller of an open deployment calls it every second.
func (s *Store) BeginDeployment(ctx context.Context, spec store.DeploymentSpec) (store.Deployment, error) {
	spec.Ref.Kind = store.KindDeployment
	d, err := s.begunDeployment(ctx, spec)
	if errors.Is(err, store.ErrNotFound) {
		d, err = s.beginDeployment(ctx, spec)
	}
	return d, sqldb.Wrap(err, "beginning %s", spec.Ref)
}

// begunDeployment returns the deployment that this very object has begun; ErrNotFound if there is anything to
// write.
func (s *Store) begunDeployment(ctx context.Context, spec store.DeploymentSpec) (store.Deployment, error) {
	held, err := object.Read(ctx, s.db.Reader(), spec.Key())
	if err != nil {
		return store.Deployment{}, err
	}
	d, err := readDeployment(ctx, s.db.Reader(), spec.Key())
	if err == nil && !(held.NamesObject(spec.Ref) && hasSameSource(&d, spec) && d.Ref == spec.Ref) {
		err = store.ErrNotFound
	}
	return d, err
}

func (s *Store) beginDeployment(ctx context.Context, spec store.DeploymentSpec) (d store.Deployment, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		// The spec of a deployment is immutable, so an older generation has the same content.
		var stale *store.StaleError
		if err := s.claimID(ctx, tx, spec.Key(), spec.Ref); err != nil && !errors.As(err, &stale) {
			return err
		}
		var err error
		d, err = readDeployment(ctx, tx, spec.Key())
		switch {
		case err == nil && d.Message == DeletedMessage && d.Status == store.DeploymentCancelled && d.Ref.ObjectUID != spec.Ref.ObjectUID:
			if err := Drop(ctx, tx, d.Key()); err != nil {
				return err
			}
		case err == nil:
			return adoptDeployment(ctx, tx, &d, spec)
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
		if err := recordDeployment(ctx, tx, spec); err != nil {
			return err
		}
		tx.Hint(store.TopicDeployment, spec.Key())
		d, err = readDeployment(ctx, tx, spec.Key())
		return err
	})
	return d, err
}

// DeletedMessage is the message of a deployment whose object was deleted before it ended. Another
// object with its name, for example after a replacement, begins again.
const DeletedMessage = "the deployment was deleted"

// adoptDeployment returns the recorded deployment for a repeated begin.
func adoptDeployment(ctx context.Context, tx *sqldb.Tx, d *store.Deployment, spec store.DeploymentSpec) error {
	if !hasSameSource(d, spec) {
		return store.ErrNameReused
	}
	spec.Ref.Restored = 0
	if d.Ref == spec.Ref {
		return nil
	}
	d.Ref = spec.Ref
	_, err := tx.Exec(ctx, `UPDATE deployments SET namespace = $3, name = $4, object_uid = $5, generation = $6
		WHERE project_id = $1 AND id = $2`,
		d.ProjectID, d.ID, d.Ref.Namespace, d.Ref.Name, d.Ref.ObjectUID, d.Ref.Generation)
	return sqldb.Wrap(err, "recording the object")
}

// hasSameSource reports whether the recorded deployment has the same source and environment.
func hasSameSource(d *store.Deployment, spec store.DeploymentSpec) bool {
	return d.Fingerprint == spec.Fingerprint && d.EnvironmentID == spec.EnvironmentID
}

// lostMessage is for users who find a deployment failed although it had succeeded.
const lostMessage = "The outcome of this deployment is not in the store, which was restored from an older copy: " +
	"deploy the same commit again if it is to be available."

// recordDeployment records an unknown deployment: as pending, which supersedes open ones, or as
// lost.
func recordDeployment(ctx context.Context, tx *sqldb.Tx, s store.DeploymentSpec) error {
	if err := insertDeployment(ctx, tx, s); err != nil {
		return err
	}
	if s.UploadDigest != "" && !s.Lost {
		if _, err := blob.KeepUpload(ctx, tx, s.ProjectID, s.UploadDigest, store.UploadKept); err != nil {
			return err
		}
	}
	if !s.Lost {
		return Cancel(ctx, tx, s.ProjectID, "superseded", `environment_id = $2 AND id <> $3`, s.EnvironmentID, s.ID)
	}
	_, err := tx.Exec(ctx, `UPDATE deployments SET status = 'failed', failure_reason = $3, message = $4, ended_at = now_us()
		WHERE project_id = $1 AND id = $2`, s.ProjectID, s.ID, string(store.FailureStoreRestored), lostMessage)
	return sqldb.Wrap(err, "recording the deployment as lost")
}

func insertDeployment(ctx context.Context, tx *sqldb.Tx, s store.DeploymentSpec) error {
	sequence, err := tx.Ordinal(ctx)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO deployments (project_id, id, environment_id, namespace, name, object_uid,
			generation, fingerprint, source_type, branch, commit_wanted, skip_tests, skip_failed_connectors,
			redeploy_of, sequence, upload_digest, status, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, 'pending', now_us())`,
		s.ProjectID, s.ID, s.EnvironmentID, s.Ref.Namespace, s.Ref.Name, s.Ref.ObjectUID, s.Ref.Generation,
		s.Fingerprint, s.SourceType, sqldb.Text(s.Branch), sqldb.Text(s.Commit), s.SkipTests, s.SkipFailedConnectors,
		s.RedeployOf, sequence, s.UploadDigest)
	return sqldb.Wrap(err, "recording the deployment")
}

// endPhase keeps the phase when a deployment failed or was cancelled.
const endPhase = `end_phase = phase, phase = ''`

// Cancel cancels the project's pending and building deployments that match a condition.
// Its arguments begin at $2.
func Cancel(ctx context.Context, tx *sqldb.Tx, project uuid.UUID, message, condition string, args ...any) error {
	l := sqldb.Args{Values: append([]any{project}, args...)}
	keys, err := sqldb.Collect(ctx, tx, sqldb.ScanKey, `UPDATE deployments SET status = 'cancelled', `+endPhase+`, ended_at = now_us(),
		message = `+l.Add(message)+` WHERE project_id = $1 AND status IN ('pending', 'building') AND `+condition+`
		RETURNING project_id, id`, l.Values...)
	for _, key := range keys {
		tx.Hint(store.TopicDeployment, key)
	}
	return sqldb.Wrap(err, "cancelling deployments")
}

// StartBuild implements store.Deployments.
func (s *Store) StartBuild(ctx context.Context, key store.Key, path string) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		d, err := Lock(ctx, s.db, tx, key)
		switch {
		case err != nil:
			return err
		case d.Status == store.DeploymentBuilding:
			return nil
		case !d.Status.CanBecome(store.DeploymentBuilding):
			return store.ErrConflict
		}
		tx.Hint(store.TopicDeployment, key)
		_, err = tx.Exec(ctx, `UPDATE deployments SET status = 'building', phase = $3, path = $4, started_at = now_us()
			WHERE project_id = $1 AND id = $2`, key.ProjectID, key.ID, string(store.PhaseFetching), sqldb.Text(path))
		return err
	})
	return sqldb.Wrap(err, "starting the build of deployment %s", key)
}

// EndDeployment implements store.Deployments.
func (s *Store) EndDeployment(ctx context.Context, key store.Key, status store.DeploymentStatus,
	reason store.FailureReason, message string,
) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		d, err := Lock(ctx, s.db, tx, key)
		switch {
		case err != nil:
			return err
		case !d.Status.CanBecome(status), status != store.DeploymentFailed && status != store.DeploymentCancelled:
			return store.ErrConflict
		}
		tx.Hint(store.TopicDeployment, key)
		_, err = tx.Exec(ctx, `UPDATE deployments SET status = $3, `+endPhase+`, failure_reason = $4, message = $5,
			ended_at = now_us() WHERE project_id = $1 AND id = $2`, key.ProjectID, key.ID, string(status), string(reason), sqldb.Text(message))
		if err != nil {
			return err
		}
		return appendOutcome(ctx, tx, key, outcomeLine(status, reason)+": "+message)
	})
	return sqldb.Wrap(err, "ending deployment %s", key)
}

// outcomeLine returns the last line of the log, with the outcome of the deployment.
func outcomeLine(status store.DeploymentStatus, reason store.FailureReason) string {
	if status == store.DeploymentCancelled {
		return "the deployment was cancelled"
	}
	return "the deployment failed: " + string(reason)
}

// Lock reads a deployment and locks it until the transaction ends.
func Lock(ctx context.Context, db *sqldb.DB, tx *sqldb.Tx, key store.Key) (store.Deployment, error) {
	if err := db.Lock(ctx, tx, key.ProjectID); err != nil {
		return store.Deployment{}, fmt.Errorf("locking project %s: %w", key.ProjectID, err)
	}
	return readDeployment(ctx, tx, key)
}

// Drop deletes the row of a deployment and subtracts its stored bytes.
func Drop(ctx context.Context, tx *sqldb.Tx, key store.Key) error {
	var size int64
	err := sqldb.MapNoRows(tx.QueryRowContext(ctx, `DELETE FROM deployments WHERE project_id = $1 AND id = $2 RETURNING log_size + result_size`,
		key.ProjectID, key.ID).Scan(&size))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err == nil:
		err = storedbytes.Add(ctx, tx, map[uuid.UUID]int64{key.ProjectID: -size})
	}
	return sqldb.Wrap(err, "deleting deployment %s", key)
}
