// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// ForCluster implements store.Clusters.
func (c *Core) ForCluster(clusterUID string) store.Control {
	of := *c
	of.cluster = clusterUID
	return &of
}

// assertLease returns an error if the cluster does not have the lease. It keeps the lease unchanged
// until the transaction ends.
func (c *Core) assertLease(ctx context.Context, tx *Tx) error {
	if c.cluster == "" {
		return nil
	}
	l, err := clusterLease(ctx, tx, c.share)
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return err
	case l.ClusterUID != c.cluster:
		return &store.ForeignClusterError{Lease: l}
	}
	return nil
}

// clusterLease reads the lease, with the given lock clause.
func clusterLease(ctx context.Context, q Queryer, lock string) (store.ClusterLease, error) {
	var (
		l   store.ClusterLease
		age int64
	)
	err := q.QueryRowContext(ctx, `SELECT cluster_uid, platform_id, now_us() - renewed_at, adopting
		FROM cluster_lease WHERE id = 1 `+lock).Scan(&l.ClusterUID, &l.PlatformID, &age, &l.Adopting)
	l.Age = time.Duration(age) * time.Microsecond
	return l, wrap(mapNoRows(err), "reading the cluster's lease")
}

// Cluster implements store.Clusters.
func (c *Core) Cluster(ctx context.Context) (store.ClusterLease, error) {
	lease, err := clusterLease(ctx, c.engine.Reader(), "")
	if err != nil && c.noTable(err) {
		err = fmt.Errorf("the database has no schema yet: %w", store.ErrNotFound)
	}
	return lease, err
}

// HoldCluster implements store.Clusters.
func (c *Core) HoldCluster(ctx context.Context, clusterUID string, platformID uuid.UUID) error {
	return c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		held, err := tx.exec(ctx, `INSERT INTO cluster_lease (id, cluster_uid, platform_id, renewed_at, adopting)
			VALUES (1, $1, $2, now_us(), FALSE) ON CONFLICT (id) DO UPDATE SET renewed_at = excluded.renewed_at
			WHERE cluster_lease.cluster_uid = excluded.cluster_uid AND cluster_lease.platform_id = excluded.platform_id`,
			clusterUID, platformID)
		if err != nil || held == 1 {
			return wrap(err, "renewing the cluster's lease")
		}
		l, err := clusterLease(ctx, tx, "")
		switch {
		case err != nil:
			return err
		case l.PlatformID != platformID:
			return &store.ForeignPlatformError{Stored: l.PlatformID, Given: platformID}
		}
		return &store.ForeignClusterError{Lease: l}
	})
}

// AdoptCluster implements store.Clusters.
func (c *Core) AdoptCluster(ctx context.Context, clusterUID string) (int, error) {
	var adopted int64
	err := c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		adopted = 0
		l, err := clusterLease(ctx, tx, c.exclusive)
		switch {
		case err != nil:
			return err
		case l.ClusterUID == clusterUID:
			return nil
		case l.Age < store.AdoptionAge:
			return &store.LeaseInUseError{Lease: l}
		}
		if _, err := tx.exec(ctx, `UPDATE cluster_lease SET cluster_uid = $1, adopting = TRUE WHERE id = 1`, clusterUID); err != nil {
			return fmt.Errorf("handing over the lease: %w", err)
		}
		adopted, err = tx.exec(ctx, `UPDATE object_ids SET cluster_uid = $1, object_uid = '', generation = 0,
			writes = writes + 1, adopted = TRUE`, clusterUID)
		return wrap(err, "handing over the claims")
	})
	return int(adopted), wrap(err, "adopting the store")
}

// FinishAdoption implements store.Clusters.
func (c *Core) FinishAdoption(ctx context.Context, clusterUID string) error {
	err := c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		n, err := tx.exec(ctx, `UPDATE cluster_lease SET adopting = FALSE WHERE id = 1 AND cluster_uid = $1`, clusterUID)
		if err == nil && n == 0 {
			err = store.ErrConflict
		}
		return err
	})
	return wrap(err, "finishing the adoption")
}
