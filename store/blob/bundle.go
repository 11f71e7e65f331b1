// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storedbytes"
)

// PutBundle implements store.Bundles.
func (s *Store) PutBundle(ctx context.Context, deployment store.Key, digest string, r io.Reader, limit int64) (int64, error) {
	size, err := s.keepBundle(ctx, deployment, digest)
	if errors.Is(err, store.ErrNotFound) {
		var full error
		if full, err = storedbytes.CheckLimit(ctx, s.db, deployment.ProjectID); full != nil {
			return 0, full
		}
		if err == nil {
			size, err = s.putBundle(ctx, deployment, digest, r, limit)
		}
	}
	return size, sqldb.Wrap(err, "storing bundle %s", digest)
}

// keepBundle keeps a stored bundle as long as a new one.
func (s *Store) keepBundle(ctx context.Context, deployment store.Key, digest string) (size int64, err error) {
	return size, s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if err := s.onlyBundle(ctx, tx, deployment, digest); err != nil {
			return err
		}
		size, err = HoldBundle(ctx, tx, deployment.ProjectID, digest)
		return err
	})
}

// HoldBundle keeps a bundle for at least BundleAge from now and returns its size. The sweep does
// not delete it during this transaction or that time. If the sweep has deleted it, HoldBundle
// returns ErrNotFound.
func HoldBundle(ctx context.Context, tx *sqldb.Tx, project uuid.UUID, digest string) (size int64, err error) {
	return size, sqldb.MapNoRows(tx.QueryRowContext(ctx, `UPDATE bundles SET kept_until = CASE WHEN kept_until < now_us() + $3 THEN now_us() + $3 ELSE kept_until END
		WHERE project_id = $1 AND digest = $2 RETURNING size`, project, digest, store.BundleAge.Microseconds()).Scan(&size))
}

// HoldLiveBundle keeps the bundle of the live deployment for at least BundleAge from now. During that
// time it has uses that no row shows: runs that start with it, and users who want it back.
func HoldLiveBundle(ctx context.Context, tx *sqldb.Tx, environment store.Key) error {
	_, err := tx.Exec(ctx, `UPDATE bundles SET kept_until = now_us() + $3 WHERE kept_until < now_us() + $3 AND project_id = $1 AND digest =
		(SELECT d.bundle_digest FROM environments e JOIN deployments d ON d.project_id = e.project_id AND d.id = e.live_deployment_id
			WHERE e.project_id = $1 AND e.id = $2)`, environment.ProjectID, environment.ID, store.BundleAge.Microseconds())
	return sqldb.Wrap(err, "keeping the bundle of the live deployment of environment %s", environment)
}

// onlyBundle records this bundle as the one that the build of a deployment has stored, in place of
// an earlier one. A deleted deployment has none.
func (s *Store) onlyBundle(ctx context.Context, tx *sqldb.Tx, deployment store.Key, digest string) error {
	if err := s.db.Lock(ctx, tx, deployment.ProjectID); err != nil {
		return fmt.Errorf("locking project %s: %w", deployment.ProjectID, err)
	}
	var before string
	var built bool
	err := sqldb.MapNoRows(tx.QueryRowContext(ctx, `SELECT put_digest, built FROM deployments WHERE project_id = $1 AND id = $2`,
		deployment.ProjectID, deployment.ID).Scan(&before, &built))
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && before == digest:
		return nil
	case err != nil:
		return err
	case built:
		return fmt.Errorf("the build has ended with another bundle: %w", store.ErrConflict)
	}
	if _, err := tx.Exec(ctx, `UPDATE deployments SET put_digest = $3 WHERE project_id = $1 AND id = $2`, deployment.ProjectID, deployment.ID, digest); err != nil {
		return err
	}
	replaced, err := deleteAndSubtract(ctx, tx, `DELETE FROM bundles WHERE project_id = $1 AND digest = $2
		AND NOT EXISTS (SELECT 1 FROM deployments WHERE project_id = $1 AND bundle_digest = $2)
		AND NOT EXISTS (SELECT 1 FROM deployments WHERE project_id = $1 AND put_digest = $2 AND status IN ('pending', 'building')) RETURNING project_id, blob_id, size`,
		deployment.ProjectID, before)
	if err != nil || len(replaced) == 0 {
		return err
	}
	return s.DropBlobs(ctx, tx, replaced) // at once: a sweep would leave them for a day
}

// putBundle writes the bytes to a blob and names it as the bundle after verifying its digest.
func (s *Store) putBundle(ctx context.Context, deployment store.Key, digest string, r io.Reader, limit int64) (int64, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return 0, fmt.Errorf("generating an ID: %w", err)
	}
	blob := store.Key{ProjectID: deployment.ProjectID, ID: id}
	hash := sha256.New()
	size, err := s.WriteBlob(ctx, blob, io.TeeReader(io.LimitReader(r, limit+1), hash))
	var refused error
	switch got := "sha256:" + hex.EncodeToString(hash.Sum(nil)); {
	case err != nil:
		refused = err
	case size > limit:
		refused = fmt.Errorf("more than %d bytes: %w", limit, store.ErrConflict)
	case got != digest:
		refused = fmt.Errorf("the bytes have digest %s: %w", got, store.ErrConflict)
	default:
		refused = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
			if err := s.onlyBundle(ctx, tx, deployment, digest); err != nil {
				return err
			}
			return s.nameBlob(ctx, tx, `INSERT INTO bundles AS t (project_id, digest, size, blob_id, created_at, kept_until)`+insertNamed,
				"bundle", blob, digest, size, store.BundleAge)
		})
	}
	if refused != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTime) // the request may have been cancelled
		defer cancel()
		return 0, errors.Join(refused, s.DropBlob(ctx, blob))
	}
	return size, nil
}

// OpenBundle implements store.Bundles.
func (s *Store) OpenBundle(ctx context.Context, projectID uuid.UUID, digest string) (io.ReadCloser, error) {
	id, err := sqldb.ScanUUID(s.db.Reader().QueryRowContext(ctx,
		`SELECT blob_id FROM bundles WHERE project_id = $1 AND digest = $2`, projectID, digest))
	if err != nil {
		return nil, sqldb.Wrap(sqldb.MapNoRows(err), "opening bundle %s", digest)
	}
	return s.OpenBlob(ctx, store.Key{ProjectID: projectID, ID: id})
}

// NamesBundle implements store.Bundles.
func (s *Store) NamesBundle(ctx context.Context, environment store.Key, digest string) error {
	var one int
	err := sqldb.MapNoRows(s.db.Reader().QueryRowContext(ctx, `SELECT 1 FROM deployments
		WHERE project_id = $1 AND environment_id = $2 AND bundle_digest = $3 LIMIT 1`,
		environment.ProjectID, environment.ID, digest).Scan(&one))
	return sqldb.Wrap(err, "reading bundle %s of environment %s", digest, environment)
}

// bundle identifies a bundle of a project.
type bundle struct {
	project uuid.UUID
	digest  string
}

func scanBundle(row sqldb.Scanner) (b bundle, err error) {
	err = row.Scan(&b.project, &b.digest)
	return b, err
}

// DropBundles deletes expired bundles that nothing needs, and extends the others by BundleAge. A
// transaction that is about to need a bundle holds it (HoldBundle): either before the bundle is
// picked here, and then it is kept, or afterwards, and then it is missing.
func (s *Store) DropBundles(ctx context.Context, tx *sqldb.Tx, narrow string, l sqldb.Args) (int64, error) {
	due, err := sqldb.Collect(ctx, tx, scanBundle, `SELECT r.project_id, r.digest FROM bundles r
		WHERE r.kept_until <= now_us()`+narrow+` ORDER BY r.kept_until LIMIT $1 `+s.db.SkipLocked, l.Values...)
	if err != nil {
		return 0, err
	}
	slices.SortFunc(due, func(a, b bundle) int { return sqldb.CompareIDs(a.project, b.project) }) // in the lock order of the byte counters
	open := map[uuid.UUID][]string{}
	for _, b := range due {
		needed, err := needsBundle(ctx, tx, b, open)
		if err != nil {
			return 0, sqldb.Wrap(err, "checking the uses of bundle %s", b.digest)
		}
		if needed {
			_, err = HoldBundle(ctx, tx, b.project, b.digest)
		} else {
			_, err = s.deleteAndUnmark(ctx, tx, `DELETE FROM bundles WHERE project_id = $1 AND digest = $2 RETURNING project_id, blob_id, size`, b.project, b.digest)
		}
		if err != nil {
			return 0, sqldb.Wrap(err, "deleting bundle %s", b.digest)
		}
	}
	return int64(len(due)), nil
}

// selectBundleUse selects whether environments want the bundle $2 of the project $1, or one of their last
// $3 deployed deployments has it.
const selectBundleUse = `SELECT EXISTS (SELECT 1 FROM environments e WHERE e.project_id = $1 AND e.wanted_bundle_digest = $2)
	OR EXISTS (SELECT 1 FROM deployments d JOIN environments e ON e.project_id = d.project_id AND e.id = d.environment_id
		WHERE d.project_id = $1 AND d.bundle_digest = $2 AND (d.status = 'building' OR d.id = e.live_deployment_id
			OR ` + IsOneOfTheLast + `))`

// IsOneOfTheLast is the condition that a deployment d is one of the last $3 deployed ones of its
// environment.
const IsOneOfTheLast = `d.status = 'deployed' AND (SELECT count(*) FROM (SELECT 1 AS one FROM deployments n WHERE n.project_id = $1 AND n.environment_id = d.environment_id
	AND n.sequence > d.sequence AND n.status = 'deployed' ORDER BY n.sequence LIMIT $3) newer) < $3`

// needsBundle reports whether a bundle is needed. Open runs are checked last because there may be
// many, and once per project: open caches the bundles that they need.
func needsBundle(ctx context.Context, tx *sqldb.Tx, b bundle, open map[uuid.UUID][]string) (needed bool, err error) {
	if err = tx.QueryRowContext(ctx, selectBundleUse, b.project, b.digest, store.BundlesKept).Scan(&needed); err != nil || needed {
		return needed, err
	}
	digests, known := open[b.project]
	if !known {
		if digests, err = sqldb.Collect(ctx, tx, sqldb.ScanText, bundlesOfOpen, b.project); err != nil {
			return false, err
		}
		open[b.project] = digests
	}
	return slices.Contains(digests, b.digest), nil
}

// bundlesOfOpen selects the bundles with which open runs of a project have started.
const bundlesOfOpen = `SELECT DISTINCT d.bundle_digest
	FROM (SELECT DISTINCT r.deployment_id AS id FROM open_runs r WHERE r.project_id = $1 AND r.deployment_id IS NOT NULL) o
	JOIN deployments d ON d.project_id = $1 AND d.id = o.id`
