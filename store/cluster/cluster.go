// SPDX-License-Identifier: Apache-2.0

// Package cluster stores the lease of the cluster whose managers write to the store.
package cluster

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Store has the lease of a cluster on the store.
type Store struct{ db *sqldb.DB }

// New returns a Store.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

// Cluster implements store.Clusters.
func (s *Store) Cluster(ctx context.Context) (store.ClusterLease, error) {
	lease, err := sqldb.ReadClusterLease(ctx, s.db.Reader(), "")
	if err != nil && s.db.NoTable(err) {
		err = fmt.Errorf("the database has no schema yet: %w", store.ErrNotFound)
	}
	return lease, err
}

// HoldCluster implements store.Clusters.
func (s *Store) HoldCluster(ctx context.Context, clusterUID string, platformID uuid.UUID) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		held, err := tx.Exec(ctx, `INSERT INTO cluster_lease (id, cluster_uid, platform_id, renewed_at, adopting)
			VALUES (1, $1, $2, now_us(), FALSE) ON CONFLICT (id) DO UPDATE SET renewed_at = excluded.renewed_at
			WHERE cluster_lease.cluster_uid = excluded.cluster_uid AND cluster_lease.platform_id = excluded.platform_id`,
			clusterUID, platformID)
		if err != nil || held == 1 {
			return sqldb.Wrap(err, "renewing the cluster's lease")
		}
		l, err := sqldb.ReadClusterLease(ctx, tx, "")
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
func (s *Store) AdoptCluster(ctx context.Context, clusterUID string) (int, error) {
	var adopted int64
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		adopted = 0
		l, err := sqldb.ReadClusterLease(ctx, tx, s.db.Exclusive)
		switch {
		case err != nil:
			return err
		case l.ClusterUID == clusterUID:
			return nil
		case l.Age < store.AdoptionAge:
			return &store.LeaseInUseError{Lease: l}
		}
		if _, err := tx.Exec(ctx, `UPDATE cluster_lease SET cluster_uid = $1, adopting = TRUE WHERE id = 1`, clusterUID); err != nil {
			return fmt.Errorf("handing over the lease: %w", err)
		}
		adopted, err = tx.Exec(ctx, `UPDATE object_ids SET cluster_uid = $1, object_uid = '', generation = 0,
			writes = writes + 1, adopted = TRUE`, clusterUID)
		return sqldb.Wrap(err, "handing over the claims")
	})
	return int(adopted), sqldb.Wrap(err, "adopting the store")
}

// FinishAdoption implements store.Clusters.
func (s *Store) FinishAdoption(ctx context.Context, clusterUID string) error {
	n, err := s.db.Exec(ctx, `UPDATE cluster_lease SET adopting = FALSE WHERE id = 1 AND cluster_uid = $1`, clusterUID)
	if err == nil && n == 0 {
		err = store.ErrConflict
	}
	return sqldb.Wrap(err, "finishing the adoption")
}
