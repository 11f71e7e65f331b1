// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"errors"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// assertLease returns an error if the cluster does not have the lease. It keeps the lease unchanged
// until the transaction ends.
func (d *DB) assertLease(ctx context.Context, tx *Tx) error {
	if d.cluster == "" {
		return nil
	}
	l, err := ReadClusterLease(ctx, tx, d.Share)
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return err
	case l.ClusterUID != d.cluster:
		return &store.ForeignClusterError{Lease: l}
	}
	return nil
}

// ReadClusterLease reads the lease, with the given lock clause.
func ReadClusterLease(ctx context.Context, q Queryer, lock string) (store.ClusterLease, error) {
	var (
		l   store.ClusterLease
		age int64
	)
	err := q.QueryRowContext(ctx, `SELECT cluster_uid, platform_id, now_us() - renewed_at, adopting
		FROM cluster_lease WHERE id = 1 `+lock).Scan(&l.ClusterUID, &l.PlatformID, &age, &l.Adopting)
	l.Age = time.Duration(age) * time.Microsecond
	return l, Wrap(MapNoRows(err), "reading the cluster's lease")
}
