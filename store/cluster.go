// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// AdoptionAge is how long the lease of a store must not have been renewed
// before another cluster may adopt the store.
const AdoptionAge = time.Minute

// ClusterLease says which cluster the store serves. One store serves one
// cluster at a time.
type ClusterLease struct {
	// ClusterUID is the uid of that cluster's kube-system namespace.
	ClusterUID string
	// PlatformID is what the ids of all projects are made of; another one would
	// make another project of every namespace.
	PlatformID uuid.UUID
	// Age is how long ago a manager renewed the lease, by the database's clock.
	Age time.Duration
	// Adopting: the store was adopted, and not all objects are expected to be in
	// the cluster yet. Nothing is swept until the adoption is finished.
	Adopting bool
}

// Clusters keeps the lease.
type Clusters interface {
	// Cluster returns the lease; ErrNotFound before the first manager, also of a
	// store without a schema.
	Cluster(ctx context.Context) (ClusterLease, error)
	// HoldCluster takes the lease for a cluster when nobody ever did, and renews
	// it for the one that has it. *ForeignClusterError when another cluster has
	// it, *ForeignPlatformError when the store was made under another platform id.
	HoldCluster(ctx context.Context, clusterUID string, platformID uuid.UUID) error
	// AdoptCluster hands the store to a cluster, in one transaction: the claims
	// become that cluster's and forget their objects' uids, so that the first
	// object of a kind and name takes its row over without the effects of a
	// deletion. *LeaseInUseError when a manager renewed the lease within
	// AdoptionAge; nothing happens where the cluster has the store already. It
	// returns the number of claims handed over.
	AdoptCluster(ctx context.Context, clusterUID string) (int, error)
	// FinishAdoption says that what should be in the cluster is: claims that no
	// object took over may be swept. ErrConflict when the cluster does not have
	// the store.
	FinishAdoption(ctx context.Context, clusterUID string) error
	// ForCluster returns the store as that cluster's manager writes it: each
	// writing transaction asserts that the cluster has the lease, and fails with
	// *ForeignClusterError otherwise. An empty uid asserts nothing.
	ForCluster(clusterUID string) Control
}

// Control is what a manager needs of the store.
type Control interface {
	Cluster(ctx context.Context) (ClusterLease, error)
	KeyLedger
	Projector
	Sweeper
	Catalog
	Deployments
	Activations
	// HasUpload is Uploads'.
	HasUpload(ctx context.Context, projectID uuid.UUID, digest string) error
	Tokens
	Audit
	Destinations
	RejectionTeller
	LookTaker
	Demands
	Rates
}

// ForeignClusterError says that the store serves another cluster.
type ForeignClusterError struct {
	// Lease is the other cluster's; zero when no cluster ever had the store.
	Lease ClusterLease
}

// Error names the other cluster and the remedy.
func (e *ForeignClusterError) Error() string {
	if e.Lease.ClusterUID == "" {
		return "the store serves no cluster yet: its manager must hold the lease before it writes"
	}
	return fmt.Sprintf("the store serves the cluster %s, whose manager was last seen %s ago; to move it here, stop that manager "+
		"and run: agentctl store adopt", e.Lease.ClusterUID, e.Lease.Age.Truncate(time.Second))
}

// ForeignPlatformError says that the store was made under another platform id.
type ForeignPlatformError struct{ Stored, Given uuid.UUID }

// Error shows both ids and the remedy.
func (e *ForeignPlatformError) Error() string {
	return fmt.Sprintf("the store was made under platform id %s, not %s: restore the keys that belong to it, or give --platform-id=%s",
		e.Stored, e.Given, e.Stored)
}

// LeaseInUseError says that a manager of another cluster may still run.
type LeaseInUseError struct{ Lease ClusterLease }

// Error tells when to try again.
func (e *LeaseInUseError) Error() string {
	return fmt.Sprintf("a manager of cluster %s renewed its lease %s ago; stop it and try again %s later",
		e.Lease.ClusterUID, e.Lease.Age.Truncate(time.Second), AdoptionAge)
}
