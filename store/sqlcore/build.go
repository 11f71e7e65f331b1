// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// ReportBuild implements store.Builds.
func (c *Core) ReportBuild(ctx context.Context, id uuid.UUID, r store.BuildReport) error {
	err := c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		d, err := c.lockDeployment(ctx, tx, id)
		switch {
		case err != nil:
			return err
		case d.Status != store.DeploymentBuilding:
			return store.ErrConflict
		case d.Built:
			r.Phase = "" // a late report does not lead back
		}
		tx.Hint(store.TopicDeployment, id)
		_, err = tx.exec(ctx, `UPDATE deployments SET
			phase = CASE WHEN $2 = '' THEN phase ELSE $2 END,
			resolved_commit = CASE WHEN $3 = '' THEN resolved_commit ELSE $3 END,
			commit_message = CASE WHEN $4 = '' THEN commit_message ELSE $4 END,
			author = CASE WHEN $5 = '' THEN author ELSE $5 END WHERE id = $1`,
			id, string(r.Phase), Text(r.Commit), Text(r.CommitMessage), Text(r.Author))
		return err
	})
	return wrap(err, "reporting the build of deployment %s", id)
}

// AppendBuildLog implements store.Builds.
func (c *Core) AppendBuildLog(ctx context.Context, id uuid.UUID, number int64, chunk string) error {
	err := c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		var exists int
		if err := tx.QueryRowContext(ctx, `SELECT 1 FROM deployments WHERE id = $1`, id).Scan(&exists); err != nil {
			return found(err)
		}
		_, err := tx.exec(ctx, `INSERT INTO build_log (deployment_id, number, chunk) VALUES ($1, $2, $3)
			ON CONFLICT (deployment_id, number) DO NOTHING`, id, number, Text(chunk))
		return err
	})
	return wrap(err, "appending to the log of deployment %s", id)
}

// BuildLog implements store.Builds.
func (c *Core) BuildLog(ctx context.Context, id uuid.UUID) (string, error) {
	chunks, err := collect(ctx, c.engine.Reader(), func(row scanner) (s string, err error) {
		err = row.Scan(&s)
		return s, err
	}, `SELECT chunk FROM build_log WHERE deployment_id = $1 ORDER BY number`, id)
	return strings.Join(chunks, ""), wrap(err, "reading the log of deployment %s", id)
}

// FinishBuild implements store.Builds.
func (c *Core) FinishBuild(ctx context.Context, id uuid.UUID, r store.BuildResult) error {
	err := c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		d, err := c.lockDeployment(ctx, tx, id)
		if err != nil {
			return err
		}
		failed := r.FailureReason != ""
		switch repeated := failed && d.Status == store.DeploymentFailed && d.FailureReason == r.FailureReason ||
			!failed && d.Built && d.BundleDigest == r.BundleDigest; {
		case repeated:
			return nil
		case d.Status != store.DeploymentBuilding, d.Built:
			return store.ErrConflict
		case !failed && r.BundleDigest == "":
			return fmt.Errorf("a build without a bundle names no reason: %w", store.ErrConflict)
		}
		tx.Hint(store.TopicDeployment, id)
		if err := recordBuild(ctx, tx, d, r); err != nil {
			return err
		}
		if failed {
			_, err = tx.exec(ctx, `UPDATE deployments SET status = 'failed', phase = '', failure_reason = $2,
				message = $3, ended_at = now_us() WHERE id = $1`, id, string(r.FailureReason), Text(r.Message))
			return err
		}
		_, err = tx.exec(ctx, `UPDATE deployments SET built = TRUE, phase = $2 WHERE id = $1`,
			id, string(store.PhaseConnecting))
		return err
	})
	return wrap(err, "finishing the build of deployment %s", id)
}

// recordBuild records what a build made, which may be a bundle also when its
// tests failed.
func recordBuild(ctx context.Context, tx *Tx, d store.Deployment, r store.BuildResult) error {
	var size int64
	if r.BundleDigest != "" {
		err := tx.QueryRowContext(ctx, `SELECT size FROM bundles WHERE project_id = $1 AND digest = $2`,
			d.ProjectID, r.BundleDigest).Scan(&size)
		if err != nil {
			return wrap(found(err), "looking for bundle %s", r.BundleDigest)
		}
	}
	agents, err := marshalled(r.Agents)
	if err != nil {
		return err
	}
	if _, err := tx.exec(ctx, `UPDATE deployments SET bundle_digest = $2, bundle_size = $3, agents = $4,
		test_results = $5 WHERE id = $1`, d.ID, r.BundleDigest, size, agents, JSON(r.TestResults)); err != nil {
		return err
	}
	for _, agent := range r.Agents {
		if _, err := tx.exec(ctx, `INSERT INTO deployment_agents (deployment_id, name) VALUES ($1, $2)
			ON CONFLICT DO NOTHING`, d.ID, agent.Name); err != nil {
			return fmt.Errorf("recording agent %q: %w", agent.Name, err)
		}
	}
	return nil
}
