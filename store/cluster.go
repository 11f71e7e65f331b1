// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// AdoptionAge is the minimum time since the last renewal of the lease before another cluster may
// adopt the store.
const AdoptionAge = time.Minute

// ClusterLease identifies the cluster that the store serves. A store serves one cluster at a time.
type ClusterLease struct {
	// ClusterUID is the UID of the cluster's kube-system namespace.
	ClusterUID string
	// PlatformID is the ID from which all project IDs are derived. Another value would turn every
	// namespace into another project.
	PlatformID uuid.UUID
	// Age is the time since a manager renewed the lease, by the database's clock.
	Age time.Duration
	// Adopting is true after an adoption, until all objects are expected in the cluster. Meanwhile
	// nothing is swept.
	Adopting bool
}

// Clusters manages the lease.
type Clusters interface {
	// Cluster returns the lease. It returns ErrNotFound before the first manager has started, also
	// if the store has no schema.
	Cluster(ctx context.Context) (ClusterLease, error)
	// HoldCluster takes the lease for a cluster if it was never taken, and renews it for the
	// cluster that has it. It returns *ForeignClusterError if another cluster has it, and
	// *ForeignPlatformError if the store was created with another platform ID.
	HoldCluster(ctx context.Context, clusterUID string, platformID uuid.UUID) error
	// AdoptCluster hands the store over to a cluster, in one transaction. The ID claims become
	// claims of that cluster and forget the UIDs of their objects, so the first object of a kind
	// and name takes over its row without the effects of a deletion. It returns the number of
	// claims, and *LeaseInUseError if a manager renewed the lease within AdoptionAge. Nothing
	// happens if the cluster has the store already.
	AdoptCluster(ctx context.Context, clusterUID string) (int, error)
	// FinishAdoption declares that all objects are in the cluster. From then on ID claims without
	// an object may be swept. It returns ErrConflict if the cluster does not have the store.
	FinishAdoption(ctx context.Context, clusterUID string) error
	// ForCluster returns the store for the manager of a cluster: each writing transaction asserts
	// that the cluster has the lease, and otherwise fails with *ForeignClusterError. An empty UID
	// asserts nothing.
	ForCluster(clusterUID string) Control
}

// Control is the part of the store that a manager uses.
type Control interface {
	Cluster(ctx context.Context) (ClusterLease, error)
	KeyLedger
	Projector
	Sweeper
	Catalog
	Deployments
	Activations
	DriftReader
	// HasUpload is a method of Uploads.
	HasUpload(ctx context.Context, projectID uuid.UUID, digest string) error
	Tokens
	Audit
	Destinations
	RejectionTeller
	PollRequestReader
	Demands
	Rates
}

// ForeignClusterError reports that the store serves another cluster.
type ForeignClusterError struct {
	// Lease is the lease of the other cluster; zero if no cluster ever had the store.
	Lease ClusterLease
}

// Error names the other cluster and the remedy.
func (e *ForeignClusterError) Error() string {
	if e.Lease.ClusterUID == "" {
		return "the store serves no cluster yet; a manager must take its lease before it writes"
	}
	return fmt.Sprintf("the store serves cluster %s, whose manager was last seen %s ago; to move the store here, stop that manager "+
		"and run: agentctl store adopt", e.Lease.ClusterUID, e.Lease.Age.Truncate(time.Second))
}

// ForeignPlatformError reports that the store was created with another platform ID.
type ForeignPlatformError struct{ Stored, Given uuid.UUID }

// Error names both IDs and the remedy.
func (e *ForeignPlatformError) Error() string {
	return fmt.Sprintf("the store was created with platform ID %s, not %s: restore the matching keys, or set --platform-id=%s",
		e.Stored, e.Given, e.Stored)
}

// LeaseInUseError reports that a manager of another cluster may still run.
type LeaseInUseError struct{ Lease ClusterLease }

// Error states when to retry.
func (e *LeaseInUseError) Error() string {
	return fmt.Sprintf("a manager of cluster %s renewed its lease %s ago; stop it and retry %s later",
		e.Lease.ClusterUID, e.Lease.Age.Truncate(time.Second), AdoptionAge)
}
