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

// renewInterval is how often the lease on the store is renewed, a small part of
// store.AdoptionAge.
const renewInterval = 10 * time.Second

// clockSkew is how much older or younger than its last renewal a lease may seem.
const clockSkew = 5 * time.Second

// ErrStoreWentBack ends a manager whose store has forgotten what was written to
// it: the next one lists and projects everything anew.
var ErrStoreWentBack = errors.New("the store does not know of the lease's last renewal, as after a restore: the manager starts again")

// Lease keeps a store this cluster's: one store serves one cluster at a time.
type Lease struct {
	Store      store.Clusters
	ClusterUID string
	PlatformID uuid.UUID
	Logger     *slog.Logger
	// Tick is called before each renewal; nil waits renewInterval.
	Tick func(ctx context.Context) error
	// Now is the time; nil is time.Now.
	Now func() time.Time

	// others is how often in a row somebody else renewed the lease.
	others int
}

func (l *Lease) now() time.Time {
	if l.Now != nil {
		return l.Now()
	}
	return time.Now()
}

// ClusterUID is the uid of the live cluster, that of its kube-system namespace.
// c must not read from a cache.
func ClusterUID(ctx context.Context, c client.Reader) (string, error) {
	system := &metav1.PartialObjectMetadata{}
	system.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := c.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return "", fmt.Errorf("reading the cluster's uid: %w", err)
	}
	return string(system.UID), nil
}

// Await returns once the store is this cluster's. While it is another's it says
// so in the log and looks again, so that `agentctl store adopt` is all it takes.
func (l *Lease) Await(ctx context.Context) error {
	for {
		err := l.Store.HoldCluster(ctx, l.ClusterUID, l.PlatformID)
		var foreign *store.ForeignClusterError
		if !errors.As(err, &foreign) {
			return err
		}
		l.Logger.ErrorContext(ctx, "waiting for the store", "error", err)
		if err := l.tick(ctx); err != nil {
			return err
		}
	}
}

// NeedLeaderElection says that only the leader renews.
func (l *Lease) NeedLeaderElection() bool { return true }

// Start renews the lease until ctx ends. That another cluster has it ends the
// manager, and so does a store that went back; that the store does not answer
// does not: each transaction asserts the lease by itself.
func (l *Lease) Start(ctx context.Context) error {
	var renewed time.Time
	for {
		if err := l.remembered(ctx, renewed); err != nil {
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
			renewed = l.now()
		case ctx.Err() == nil:
			l.Logger.ErrorContext(ctx, "renewing the lease on the store", "error", err)
		}
		if l.tick(ctx) != nil {
			return nil // the manager stops
		}
	}
}

// remembered returns ErrStoreWentBack where the lease was not renewed at the
// moment given, the zero one for never.
func (l *Lease) remembered(ctx context.Context, renewed time.Time) error {
	if renewed.IsZero() {
		return nil
	}
	lease, err := l.Store.Cluster(ctx)
	age := l.now().Sub(renewed)
	switch {
	case err != nil:
		return nil // which the renewal says too
	case lease.Age > age+clockSkew:
		return ErrStoreWentBack
	case lease.Age >= age-clockSkew:
		l.others = 0
		return nil
	}
	// A manager that stands by renews it once, when it starts.
	if l.others++; l.others > 1 {
		l.Logger.ErrorContext(ctx, "another manager renews the lease on the store: was a cluster made of this one's etcd? stop one of the two",
			"clusterUID", l.ClusterUID, "renewed", lease.Age.String()+" ago")
	}
	return nil
}

func (l *Lease) tick(ctx context.Context) error {
	if l.Tick != nil {
		return l.Tick(ctx)
	}
	return pause.For(ctx, renewInterval)
}
