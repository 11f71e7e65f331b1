// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// FieldManager owns the fields that the controllers apply.
const FieldManager = "agentplatform"

// Remover takes objects that are gone out of the store.
type Remover interface {
	// Remove is store.Projector's.
	Remove(ctx context.Context, kind string, id uuid.UUID, ref store.ObjectRef) error
}

// Keeper is what every controller has. Its methods are safe for concurrent use.
type Keeper struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Reader reads past the cache: Secrets that users own are not cached.
	Reader client.Reader
	// Store removes what is gone.
	Store Remover
	// Events records events; nil records none.
	Events events.EventRecorder
	// ClusterUID names the cluster in the store.
	ClusterUID string

	departed departed
}

// Work brings about what an object asks for and marks its status. It returns
// when to look again (0: when something changes), and an error that Explain
// turns into a condition.
type Work func(ctx context.Context) (time.Duration, error)

// Reconcile reads the object of a request into o, lets work run, and writes the
// status once if it changed.
func (k *Keeper) Reconcile(
	ctx context.Context, req ctrl.Request, o v1alpha1.ConditionedObject, work Work,
) (result ctrl.Result, err error) {
	if err := k.bury(ctx, o.ObjectKind(), req.NamespacedName); err != nil {
		return ctrl.Result{}, err
	}
	if err := k.Client.Get(ctx, req.NamespacedName, o.(client.Object)); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if o.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, nil
	}
	before := o.DeepCopyObject().(v1alpha1.ConditionedObject)
	defer func() {
		err = errors.Join(err, k.writeStatus(ctx, before, o))
	}()
	after, err := work(ctx)
	if err != nil {
		after, err = Explain(o, err)
	}
	return ctrl.Result{RequeueAfter: after}, err
}

// writeStatus patches the status where it changed.
func (k *Keeper) writeStatus(ctx context.Context, before, after v1alpha1.ConditionedObject) error {
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	err := k.Client.Status().Patch(ctx, after.(client.Object).DeepCopyObject().(client.Object),
		client.MergeFrom(before.(client.Object)), client.FieldOwner(FieldManager))
	if apierrors.IsNotFound(err) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return fmt.Errorf("writing the status of %s %q: %w", after.ObjectKind(), after.GetName(), err)
	}
	k.announce(before, after)
	return nil
}

// Ref names an object for the store.
func (k *Keeper) Ref(o v1alpha1.ConditionedObject) store.ObjectRef {
	return store.ObjectRef{
		ClusterUID: k.ClusterUID, Namespace: o.GetNamespace(), Kind: o.ObjectKind(), Name: o.GetName(),
		ObjectUID: string(o.GetUID()), Generation: o.GetGeneration(),
	}
}

// Project returns the namespace's project with its id; ErrProjectMissing when
// there is none that the store knows.
func (k *Keeper) Project(ctx context.Context, namespace string) (*v1alpha1.Project, uuid.UUID, error) {
	project := &v1alpha1.Project{}
	err := k.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: v1alpha1.ProjectName}, project)
	if apierrors.IsNotFound(err) || err == nil && project.Status.ID == "" {
		return nil, uuid.Nil, ErrProjectMissing
	}
	if err != nil {
		return nil, uuid.Nil, fmt.Errorf("reading the project: %w", err)
	}
	id, err := project.ParsedID()
	if err != nil {
		return nil, uuid.Nil, err
	}
	return project, id, nil
}

// Owner returns the project and the id of an object in its namespace.
func (k *Keeper) Owner(ctx context.Context, o v1alpha1.ConditionedObject) (project *v1alpha1.Project, projectID, id uuid.UUID, err error) {
	project, projectID, err = k.Project(ctx, o.GetNamespace())
	if err != nil {
		return nil, uuid.Nil, uuid.Nil, err
	}
	if id, err = v1alpha1.ObjectID(project, o); err != nil {
		return nil, uuid.Nil, uuid.Nil, err
	}
	return project, projectID, id, nil
}

// Environment returns the environment that an object names, and its id;
// *MissingError when there is none that the store knows.
func (k *Keeper) Environment(ctx context.Context, namespace string, name v1alpha1.EnvironmentName) (*v1alpha1.Environment, uuid.UUID, error) {
	environment := &v1alpha1.Environment{}
	err := k.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: string(name)}, environment)
	missing := &MissingError{Kind: environment.ObjectKind(), Name: string(name)}
	if apierrors.IsNotFound(err) {
		return nil, uuid.Nil, missing
	}
	if err != nil {
		return nil, uuid.Nil, fmt.Errorf("reading environment %q: %w", name, err)
	}
	if environment.Status.ID == "" {
		missing.Unready = true
		return nil, uuid.Nil, missing
	}
	id, err := uuid.Parse(environment.Status.ID)
	if err != nil {
		return nil, uuid.Nil, fmt.Errorf("reading the id of environment %q: %w", name, err)
	}
	return environment, id, nil
}
