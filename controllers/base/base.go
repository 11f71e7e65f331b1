// SPDX-License-Identifier: Apache-2.0

// Package base has the shared parts of all controllers: it reads an object, writes its status once
// and only if it changed, turns errors into conditions with cause and remedy, sends an event when Ready
// changes, writes children by server-side apply, and removes deleted objects from the store.
//
// There are no finalizers, so a namespace can always be deleted. A controller removes the row of an
// object when it sees the deletion. The sweep at the start of the manager removes the rows of objects
// that were deleted while no controller ran.
package base

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/cache"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/store"
)

// FieldManager is the field manager of everything that the controllers apply.
const FieldManager = "agentplatform"

// Store has the store methods that every controller needs.
type Store interface {
	// Holder is from store.Catalog. ClaimID and Remove are from store.Projector.
	Holder(ctx context.Context, key store.Key) (store.ObjectRef, error)
	ClaimID(ctx context.Context, key store.Key, ref store.ObjectRef) error
	Remove(ctx context.Context, projectID uuid.UUID, ref store.ObjectRef) error
	// Environment and Connector are from store.Catalog.
	Environment(ctx context.Context, key store.Key) (store.Environment, error)
	Connector(ctx context.Context, key store.Key) (store.Connector, error)
}

// Base has the dependencies of every controller. Its methods are safe for concurrent use.
type Base struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Reader reads from kube-apiserver. The values of Secrets are not cached.
	Reader client.Reader
	// Store claims IDs and removes deleted objects.
	Store Store
	// Events records events. If nil, it records none.
	Events events.EventRecorder
	// PlatformID is the base of all project IDs.
	PlatformID uuid.UUID
	// Namespaces limits the manager to some namespaces.
	Namespaces namespaces.Set
	// PlatformPlan is the plan of projects whose Namespace has no plan annotation.
	PlatformPlan plan.Plan
	// Clock tells the time. If nil, the system clock is used.
	Clock clock.PassiveClock
	// Workers is the number of objects of a kind that are reconciled concurrently, at least 1.
	Workers int

	deletions deletions
	// recent has the events of the last minute. warned has the objects whose last Ready event was a
	// warning.
	recent     *cache.Cache[eventKey, struct{}]
	warned     *cache.Cache[types.UID, bool]
	eventsOnce sync.Once
}

// ReconcileFunc does what the spec of an object requests and sets its status. key is the ID that the object
// holds. Work returns the time until the next reconcile, 0 for the next change, and an error that
// Explain turns into a condition.
type ReconcileFunc func(ctx context.Context, key store.Key) (time.Duration, error)

// Reconcile reads the object of a request into o and claims its ID. It calls work if the release
// supports the whole spec. Then it writes the status, once and only if it changed.
func (b *Base) Reconcile(ctx context.Context, req ctrl.Request, o v1alpha1.ConditionedObject, work ReconcileFunc) (ctrl.Result, error) {
	return b.reconcile(ctx, req, o, b.claimID, work)
}

// ReconcilePut is Reconcile for work that first puts the object's row, which also claims the ID, and
// that returns nil only after that. A free ID is then claimed once, not twice.
func (b *Base) ReconcilePut(ctx context.Context, req ctrl.Request, o v1alpha1.ConditionedObject, put ReconcileFunc) (ctrl.Result, error) {
	free := false
	look := func(ctx context.Context, o v1alpha1.ConditionedObject) (key store.Key, err error) {
		if key, free, err = b.findUnclaimed(ctx, o); err != nil || free {
			return key, err
		}
		return b.claimID(ctx, o)
	}
	return b.reconcile(ctx, req, o, look, func(ctx context.Context, key store.Key) (time.Duration, error) {
		after, err := put(ctx, key)
		if !free {
			return after, err
		}
		if err != nil {
			if _, refused := b.claimID(ctx, o); refused != nil {
				return 0, refused
			}
		}
		o.CommonStatus().ID = key.ID.String()
		return after, err
	})
}

func (b *Base) reconcile(
	ctx context.Context, req ctrl.Request, o v1alpha1.ConditionedObject,
	claim func(context.Context, v1alpha1.ConditionedObject) (store.Key, error), work ReconcileFunc,
) (result ctrl.Result, err error) {
	if err := b.removeDeleted(ctx, o.ObjectKind(), req.NamespacedName); err != nil {
		return ctrl.Result{}, err
	}
	if err := b.Client.Get(ctx, req.NamespacedName, o.(client.Object)); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if o.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, nil
	}
	before := o.DeepCopyObject().(v1alpha1.ConditionedObject)
	defer func() {
		err = errors.Join(err, b.writeStatus(ctx, before, o))
	}()
	var after time.Duration
	key, err := claim(ctx, o)
	if fields := o.Unsupported(); len(fields) > 0 && err == nil {
		v1alpha1.MarkNotSupported(o, fields)
		return ctrl.Result{}, nil
	}
	if err == nil {
		after, err = work(ctx, key)
	}
	if err != nil {
		after, err = b.Explain(o, err)
	}
	return ctrl.Result{RequeueAfter: after}, err
}

func (b *Base) clockOrReal() clock.PassiveClock {
	if b.Clock == nil {
		return clock.RealClock{}
	}
	return b.Clock
}

// Now returns the time of the clock.
func (b *Base) Now() time.Time { return b.clockOrReal().Now() }

// writeStatus patches the status if it changed.
func (b *Base) writeStatus(ctx context.Context, before, after v1alpha1.ConditionedObject) error {
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	written, err := b.WriteStatus(ctx, before.(client.Object), after.(client.Object))
	if written {
		b.announce(before, after)
	}
	return err
}

// OldestFirst orders objects by creation time, then by name.
func OldestFirst[O metav1.Object](a, b O) int {
	at, before := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(at.Compare(before.Time), strings.Compare(a.GetName(), b.GetName()))
}
