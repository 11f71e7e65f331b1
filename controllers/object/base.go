// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/equality"
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

// FieldManager owns the fields that the controllers apply.
const FieldManager = "agentplatform"

// Store is what every controller needs of the store.
type Store interface {
	// Holder is store.Catalog's; ClaimID and Remove are store.Projector's.
	Holder(ctx context.Context, key store.Key) (store.ObjectRef, error)
	ClaimID(ctx context.Context, key store.Key, ref store.ObjectRef) error
	Remove(ctx context.Context, projectID uuid.UUID, ref store.ObjectRef) error
	// Environment and Connector are store.Catalog's.
	Environment(ctx context.Context, key store.Key) (store.Environment, error)
	Connector(ctx context.Context, key store.Key) (store.Connector, error)
}

// Base is what every controller has. Its methods are safe for concurrent use.
type Base struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Reader reads past the cache: Secrets that users own are not cached.
	Reader client.Reader
	// Store claims ids and removes what is gone.
	Store Store
	// Events records events; nil records none.
	Events events.EventRecorder
	// PlatformID is what the ids of all projects are made of.
	PlatformID uuid.UUID
	// Namespaces are those that the manager works in.
	Namespaces namespaces.Set
	// PlatformPlan is what projects may have whose Namespace says nothing else.
	PlatformPlan plan.Plan
	// Clock tells the time; nil means the real one.
	Clock clock.PassiveClock
	// Workers is how many objects of a kind are reconciled at once; at least 1.
	Workers int

	deletions deletions
	// recent are the events of the last minute, and warned says of which objects
	// the last word of Ready was a warning.
	recent     *cache.Cache[eventKey, struct{}]
	warned     *cache.Cache[types.UID, bool]
	eventsOnce sync.Once
}

// Work brings about what an object asks for and marks its status; key is the id
// that the object holds. It returns when to look again (0: when something
// changes), and an error that Explain turns into a condition.
type Work func(ctx context.Context, key store.Key) (time.Duration, error)

// Reconcile reads the object of a request into o, claims its id, lets work run
// where all that the object asks for is supported, and writes the status once if
// it changed.
func (b *Base) Reconcile(ctx context.Context, req ctrl.Request, o v1alpha1.ConditionedObject, work Work) (ctrl.Result, error) {
	return b.reconcile(ctx, req, o, b.claim, work)
}

// ReconcilePut is Reconcile for work that does nothing in the object's name before it
// puts the object's row, which claims the id too, and that returns no error only
// after that: an id that nobody holds is claimed once, not twice.
func (b *Base) ReconcilePut(ctx context.Context, req ctrl.Request, o v1alpha1.ConditionedObject, put Work) (ctrl.Result, error) {
	free := false
	look := func(ctx context.Context, o v1alpha1.ConditionedObject) (key store.Key, err error) {
		if key, free, err = b.unclaimed(ctx, o); err != nil || free {
			return key, err
		}
		return b.claim(ctx, o)
	}
	return b.reconcile(ctx, req, o, look, func(ctx context.Context, key store.Key) (time.Duration, error) {
		after, err := put(ctx, key)
		if !free {
			return after, err
		}
		if err != nil {
			if _, refused := b.claim(ctx, o); refused != nil {
				return 0, refused
			}
		}
		o.CommonStatus().ID = key.ID.String()
		return after, err
	})
}

func (b *Base) reconcile(
	ctx context.Context, req ctrl.Request, o v1alpha1.ConditionedObject,
	claim func(context.Context, v1alpha1.ConditionedObject) (store.Key, error), work Work,
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

func (b *Base) clock() clock.PassiveClock {
	if b.Clock == nil {
		return clock.RealClock{}
	}
	return b.Clock
}

// Now is the time by the injected clock.
func (b *Base) Now() time.Time { return b.clock().Now() }

// writeStatus patches the status where it changed.
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
