// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/store"
)

// renewInterval is the interval between renewals of the store lease. It is a small part of
// store.AdoptionAge.
const renewInterval = 10 * time.Second

// clockSkew is the tolerated difference between the age of a lease and the time since its last renewal.
const clockSkew = 5 * time.Second

// ErrStoreRestored stops a manager whose store has lost earlier writes. The next manager projects all
// objects again.
var ErrStoreRestored = errors.New("the store does not have the last renewal of the lease, as after a restore; the manager restarts")

// Lease claims the store for this cluster. A store serves one cluster at a time.
type Lease struct {
	Store      store.Clusters
	ClusterUID string
	PlatformID uuid.UUID
	Logger     *slog.Logger
	// Tick is called before each renewal. If nil, Start waits for renewInterval.
	Tick func(ctx context.Context) error
	// Now returns the time. If nil, time.Now is used.
	Now func() time.Time

	// foreignRenewals counts consecutive renewals by another manager.
	foreignRenewals int
}

func (l *Lease) currentTime() time.Time {
	if l.Now != nil {
		return l.Now()
	}
	return time.Now()
}

// ClusterUID returns the UID of the cluster, which is the UID of its kube-system namespace. c must not
// read from a cache.
func ClusterUID(ctx context.Context, c client.Reader) (string, error) {
	system := &metav1.PartialObjectMetadata{}
	system.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := c.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return "", fmt.Errorf("reading the UID of the cluster: %w", err)
	}
	return string(system.UID), nil
}

// Await returns when this cluster holds the store. While another cluster holds it, Await logs this and
// polls, so that `agentctl store adopt` is the only necessary action.
func (l *Lease) Await(ctx context.Context) error {
	for {
		err := l.Store.HoldCluster(ctx, l.ClusterUID, l.PlatformID)
		var foreign *store.ForeignClusterError
		if !errors.As(err, &foreign) {
			return err
		}
		l.Logger.ErrorContext(ctx, "waiting for the store", "error", err)
		if err := l.awaitTick(ctx); err != nil {
			return err
		}
	}
}

// NeedLeaderElection reports true: only the leader renews the lease.
func (l *Lease) NeedLeaderElection() bool { return true }

// Start renews the lease until ctx ends. It returns an error, which stops the manager, if another
// cluster holds the lease or the store has lost writes. An unavailable store is no error, because each
// transaction asserts the lease.
func (l *Lease) Start(ctx context.Context) error {
	var renewed time.Time
	for {
		if err := l.checkRenewal(ctx, renewed); err != nil {
			return err
		}
		err := l.Store.HoldCluster(ctx, l.ClusterUID, l.PlatformID)
		var (
			foreign  *store.ForeignClusterError
			platform *store.ForeignPlatformError
		)
		switch {
		case errors.As(err, &foreign), errors.As(err, &platform):
			return err
		case err == nil:
			renewed = l.currentTime()
		case ctx.Err() == nil:
			l.Logger.ErrorContext(ctx, "renewing the lease on the store", "error", err)
		}
		if l.awaitTick(ctx) != nil {
			return nil // the manager stops
		}
	}
}

// checkRenewal returns ErrStoreRestored if the store does not have the renewal of the given time. The
// zero time stands for no renewal.
func (l *Lease) checkRenewal(ctx context.Context, renewed time.Time) error {
	if renewed.IsZero() {
		return nil
	}
	lease, err := l.Store.Cluster(ctx)
	age := l.currentTime().Sub(renewed)
	switch {
	case err != nil:
		return nil // the renewal reports it too
	case lease.Age > age+clockSkew:
		return ErrStoreRestored
	case lease.Age >= age-clockSkew:
		l.foreignRenewals = 0
		return nil
	}
	// A standby manager renews the lease once, when it starts.
	if l.foreignRenewals++; l.foreignRenewals > 1 {
		l.Logger.ErrorContext(ctx, "another manager renews the lease on the store. If another cluster was created from this cluster's etcd, stop one of the two",
			"clusterUID", l.ClusterUID, "renewed", lease.Age.String()+" ago")
	}
	return nil
}

func (l *Lease) awaitTick(ctx context.Context) error {
	if l.Tick != nil {
		return l.Tick(ctx)
	}
	return pause.For(ctx, renewInterval)
}
