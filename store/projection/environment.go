// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/blob"
	"github.com/agentplatform/agentplatform/store/deployment"
	"github.com/agentplatform/agentplatform/store/object"
	"github.com/agentplatform/agentplatform/store/runqueue"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// PutEnvironment implements store.Projector.
func (s *Store) PutEnvironment(ctx context.Context, e store.Environment) error {
	var taken, reached, leaving error // the rest and the claim are stored nevertheless
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		taken, leaving = nil, nil
		if err := s.ClaimIDInTx(ctx, tx, e.Key(), e.Ref); err != nil {
			return err
		}
		var err error
		if reached, err = assignPosition(ctx, tx, e); err != nil || reached != nil {
			return err
		}
		if leaving, err = stillLeaving(ctx, tx, e.Key()); err != nil || leaving != nil {
			return err
		}
		slugBefore, created, err := upsertEnvironment(ctx, tx, e)
		if err != nil {
			return err
		}
		if created {
			if err := settleDefault(ctx, tx, e.ProjectID); err != nil {
				return err
			}
			// Connectors of a missing environment were disabled.
			if err := bumpConnectors(ctx, tx, e.ProjectID, `environment_id = $2`, e.ID); err != nil {
				return err
			}
		}
		if slugBefore != e.Slug {
			if err := settleSlug(ctx, tx, e.ProjectID, slugBefore); err != nil {
				return err
			}
		}
		if err := settleSlug(ctx, tx, e.ProjectID, e.Slug); err != nil {
			return err
		}
		taken, err = slugTaken(ctx, tx, e)
		return err
	})
	if err != nil {
		return fmt.Errorf("projecting %s: %w", e.Ref, err)
	}
	return errors.Join(taken, reached, leaving)
}

// stillLeaving returns an error if the environment does not exist but runs of an earlier one with
// its ID do. These are being cancelled and must not become runs of the new environment.
func stillLeaving(ctx context.Context, tx *sqldb.Tx, key store.Key) (leaving, err error) {
	var there, open bool
	err = tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM environments WHERE project_id = $1 AND id = $2),
			(SELECT n.id FROM open_runs n WHERE n.project_id = $1 AND n.environment_id = $2 AND n.status = 'queued' AND n.blocked = FALSE`+
		runqueue.HeadClause+`) IS NOT NULL
			OR EXISTS (SELECT 1 FROM open_runs WHERE project_id = $1 AND environment_id = $2 AND blocked)
			OR EXISTS (SELECT 1 FROM open_runs WHERE project_id = $1 AND environment_id = $2 AND status = 'running')
			OR EXISTS (SELECT 1 FROM open_runs WHERE project_id = $1 AND environment_id = $2 AND status = 'awaiting_approval')`,
		key.ProjectID, key.ID).Scan(&there, &open)
	if err == nil && !there && open {
		leaving = store.ErrLeaving
	}
	return leaving, sqldb.Wrap(err, "reading the runs of a deleted environment")
}

// upsertEnvironment writes the row and returns the slug that it requested before.
func upsertEnvironment(ctx context.Context, tx *sqldb.Tx, e store.Environment) (slugBefore string, created bool, err error) {
	err = sqldb.MapNoRows(tx.QueryRowContext(ctx, `SELECT wanted_slug FROM environments WHERE project_id = $1 AND id = $2`,
		e.ProjectID, e.ID).Scan(&slugBefore))
	if errors.Is(err, store.ErrNotFound) {
		_, err = tx.Exec(ctx, `INSERT INTO environments
			(project_id, id, display_name, wanted_slug, slug, kind, object_created_at, is_default, live_rank,
			 wanted_bundle_digest, created_at)
			VALUES ($1, $2, $3, $4, '', $5, $6, FALSE, 0, '', now_us())`,
			e.ProjectID, e.ID, sqldb.Text(e.DisplayName), e.Slug, e.Kind, sqldb.Instant(e.ObjectCreatedAt))
		if err == nil {
			_, err = tx.Exec(ctx, `INSERT INTO pools (project_id, environment_id, version, served, turns) VALUES ($1, $2, 0, 0, '[]')`,
				e.ProjectID, e.ID)
		}
		return e.Slug, true, err
	}
	if err != nil {
		return "", false, err
	}
	_, err = tx.Exec(ctx, `UPDATE environments SET display_name = $3, wanted_slug = $4,
		slug = CASE WHEN wanted_slug = $4 THEN slug ELSE '' END, kind = $5, object_created_at = $6
		WHERE project_id = $1 AND id = $2`,
		e.ProjectID, e.ID, sqldb.Text(e.DisplayName), e.Slug, e.Kind, sqldb.Instant(e.ObjectCreatedAt))
	return slugBefore, false, err
}

// settleSlug gives a slug to the oldest environment that requests it, and among equally old ones to
// the one that has it.
func settleSlug(ctx context.Context, tx *sqldb.Tx, project uuid.UUID, slug string) error {
	if slug == "" {
		return nil
	}
	asking, err := sqldb.Collect(ctx, tx, sqldb.ScanUUID, `SELECT id FROM environments WHERE project_id = $1 AND wanted_slug = $2
		ORDER BY object_created_at, CASE WHEN slug = wanted_slug THEN 0 ELSE 1 END, created_at, id`, project, slug)
	if err != nil || len(asking) == 0 {
		return sqldb.Wrap(err, "finding the claimants of slug %q", slug)
	}
	if _, err := tx.Exec(ctx, `UPDATE environments SET slug = '' WHERE project_id = $1 AND slug = $2 AND id <> $3`,
		project, slug, asking[0]); err != nil {
		return fmt.Errorf("removing slug %q: %w", slug, err)
	}
	_, err = tx.Exec(ctx, `UPDATE environments SET slug = wanted_slug WHERE project_id = $1 AND id = $2 AND slug = ''`,
		project, asking[0])
	return sqldb.Wrap(err, "assigning slug %q", slug)
}

// slugTaken returns a *store.SlugTakenError if another environment has e's slug.
func slugTaken(ctx context.Context, tx *sqldb.Tx, e store.Environment) (taken, err error) {
	if e.Slug == "" {
		return nil, nil
	}
	var holder uuid.UUID
	err = tx.QueryRowContext(ctx, `SELECT id FROM environments WHERE project_id = $1 AND slug = $2`, e.ProjectID, e.Slug).
		Scan(&holder)
	if err != nil || holder == e.ID {
		return nil, sqldb.Wrap(err, "reading the holder of slug %q", e.Slug)
	}
	held, err := object.Read(ctx, tx, store.Key{ProjectID: e.ProjectID, ID: holder})
	if err != nil {
		return nil, fmt.Errorf("reading the holder of slug %q: %w", e.Slug, err)
	}
	return &store.SlugTakenError{Slug: e.Slug, Holder: held.Ref}, nil
}

// rebuildTime is longer than it takes to rebuild the projection of a project in an empty store.
const rebuildTime = time.Hour

// settleDefault makes the oldest environment of a project its default, if there is none. While a
// projection is rebuilt, objects come in any order, so the default may have to yield to an older
// environment. Its row is then young. An environment with an older row stays the default.
func settleDefault(ctx context.Context, tx *sqldb.Tx, project uuid.UUID) error {
	ids, err := sqldb.Collect(ctx, tx, sqldb.ScanUUID, `SELECT id FROM environments WHERE project_id = $1
		ORDER BY CASE WHEN is_default AND created_at < now_us() - $2 THEN 0 ELSE 1 END,
			object_created_at, CASE WHEN is_default THEN 0 ELSE 1 END, created_at, id LIMIT 1`,
		project, rebuildTime.Microseconds())
	if err != nil || len(ids) == 0 {
		return sqldb.Wrap(err, "choosing the default environment")
	}
	if _, err := tx.Exec(ctx, `UPDATE environments SET is_default = FALSE
		WHERE project_id = $1 AND is_default AND id <> $2`, project, ids[0]); err != nil {
		return fmt.Errorf("changing the default environment: %w", err)
	}
	_, err = tx.Exec(ctx, `UPDATE environments SET is_default = TRUE WHERE project_id = $1 AND id = $2 AND NOT is_default`,
		project, ids[0])
	return sqldb.Wrap(err, "changing the default environment")
}

// removeEnvironment cancels the open runs of an environment, disables its connectors (a connector
// is enabled only while its environment exists), and clears the live deployment.
func (s *Store) removeEnvironment(ctx context.Context, tx *sqldb.Tx, key store.Key) error {
	project, id := key.ProjectID, key.ID
	if err := blob.HoldLiveBundle(ctx, tx, key); err != nil {
		return err
	}
	var slug, name string
	err := sqldb.MapNoRows(tx.QueryRowContext(ctx, `DELETE FROM environments WHERE project_id = $1 AND id = $2 RETURNING wanted_slug, display_name`,
		project, id).Scan(&slug, &name))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.cancelOpen(ctx, tx, key); err != nil {
		return err
	}
	if err := deployment.Cancel(ctx, tx, project, "the environment was deleted", `environment_id = $2`, id); err != nil {
		return err
	}
	if err := endCode(ctx, tx, key); err != nil {
		return err
	}
	if err := bumpConnectors(ctx, tx, project, `environment_id = $2`, id); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM tokens WHERE project_id = $1 AND environment_id = $2`, project, id); err != nil {
		return err
	}
	for _, table := range []string{`runners`, `pools`} {
		if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE project_id = $1 AND environment_id = $2`, project, id); err != nil {
			return err
		}
	}
	if err := object.RecordNamedDeletion(ctx, tx, store.KindEnvironment, key, name); err != nil {
		return err
	}
	tx.Hint(store.TopicQueued, key)
	if err := settleDefault(ctx, tx, project); err != nil {
		return err
	}
	return settleSlug(ctx, tx, project, slug)
}

// endCode retires the code-defined connectors of a deleted environment. They belong to its live
// deployment, and the next activation restores them. A connector without an object is deleted,
// because no later deletion of an object would delete it.
func endCode(ctx context.Context, tx *sqldb.Tx, environment store.Key) error {
	if _, err := tx.Exec(ctx, `UPDATE connectors SET retired = TRUE
		WHERE project_id = $1 AND environment_id = $2 AND defined_in_code`, environment.ProjectID, environment.ID); err != nil {
		return err
	}
	alone, err := sqldb.Collect(ctx, tx, sqldb.ScanKey, `SELECT c.project_id, c.id
		FROM connectors c JOIN object_ids k ON k.project_id = c.project_id AND k.id = c.id
		WHERE c.project_id = $1 AND c.environment_id = $2 AND c.defined_in_code AND k.object_uid = '' AND NOT k.adopted`,
		environment.ProjectID, environment.ID)
	if err != nil {
		return err
	}
	for _, key := range alone {
		if err := removeConnector(ctx, tx, key); err != nil {
			return err
		}
		if err := releaseID(ctx, tx, key); err != nil {
			return err
		}
	}
	return nil
}

// Environment implements store.Catalog.
func (s *Store) Environment(ctx context.Context, key store.Key) (store.Environment, error) {
	var e store.Environment
	err := s.db.Reader().QueryRowContext(ctx, `SELECT e.id, e.project_id, e.display_name, e.slug, e.kind,
			e.object_created_at, e.live_deployment_id, e.live_rank, e.live_activated_at, COALESCE(d.bundle_digest, ''),
			e.wanted_bundle_digest, e.created_at, `+object.RefColumns+`
		FROM environments e JOIN object_ids k ON k.project_id = e.project_id AND k.id = e.id
		LEFT JOIN deployments d ON d.project_id = e.project_id AND d.id = e.live_deployment_id
		WHERE e.project_id = $1 AND e.id = $2`, key.ProjectID, key.ID).
		Scan(append([]any{
			&e.ID, &e.ProjectID, &e.DisplayName, &e.Slug, &e.Kind, sqldb.ScanTime(&e.ObjectCreatedAt), &e.LiveDeploymentID,
			&e.LiveRank, sqldb.ScanNullTime(&e.LiveActivatedAt), &e.LiveBundleDigest, &e.WantedBundleDigest, sqldb.ScanTime(&e.CreatedAt),
		}, object.RefFields(&e.Ref)...)...)
	return e, sqldb.Wrap(sqldb.MapNoRows(err), "reading environment %s", key)
}

// DefaultEnvironment implements store.Catalog.
func (s *Store) DefaultEnvironment(ctx context.Context, projectID uuid.UUID) (uuid.UUID, error) {
	id, err := sqldb.ScanUUID(s.db.Reader().QueryRowContext(ctx,
		`SELECT id FROM environments WHERE project_id = $1 AND is_default`, projectID))
	return id, sqldb.Wrap(sqldb.MapNoRows(err), "reading the default environment of project %s", projectID)
}

// EnvironmentName implements store.Catalog.
func (s *Store) EnvironmentName(ctx context.Context, key store.Key) (name string, err error) {
	err = sqldb.MapNoRows(s.db.Reader().QueryRowContext(ctx, `SELECT e.display_name FROM environments e WHERE e.project_id = $1 AND e.id = $2
		UNION ALL SELECT d.name FROM departed d WHERE d.project_id = $1 AND d.id = $2 AND d.kind = $3
			AND NOT EXISTS (SELECT 1 FROM environments e WHERE e.project_id = $1 AND e.id = $2)`,
		key.ProjectID, key.ID, store.KindEnvironment).Scan(&name))
	return name, sqldb.Wrap(err, "reading the name of environment %s", key)
}
