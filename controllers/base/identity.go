// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// errStaleCache reports that the cache does not have the newest generation yet.
var errStaleCache = errors.New("the cache is stale; a newer generation follows")

// ProjectID returns the ID of a namespace's project.
func (b *Base) ProjectID(namespace string) uuid.UUID {
	return v1alpha1.ProjectID(b.PlatformID, namespace)
}

// Ref returns the reference of an object for the store.
func (b *Base) Ref(o v1alpha1.ConditionedObject) store.ObjectRef {
	return store.ObjectRef{
		Namespace: o.GetNamespace(), Kind: o.ObjectKind(), Name: o.GetName(),
		ObjectUID: string(o.GetUID()), Generation: o.GetGeneration(),
	}
}

// requestedKey returns the ID that an object requests.
func (b *Base) requestedKey(o v1alpha1.ConditionedObject) (store.Key, error) {
	projectID := b.ProjectID(o.GetNamespace())
	id, err := v1alpha1.ObjectID(projectID, o)
	return store.Key{ProjectID: projectID, ID: id}, err
}

// findUnclaimed returns the ID that an object requests, and whether no object holds it. An object with an
// unsupported spec is never put, so it claims its ID separately.
func (b *Base) findUnclaimed(ctx context.Context, o v1alpha1.ConditionedObject) (key store.Key, free bool, err error) {
	if key, err = b.requestedKey(o); err != nil || len(o.Unsupported()) > 0 {
		return key, false, err
	}
	_, err = b.Store.Holder(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return key, true, nil
	}
	return key, false, FromStore(err)
}

// claimID claims the ID that an object requests, before any other work, and sets it in the status.
func (b *Base) claimID(ctx context.Context, o v1alpha1.ConditionedObject) (store.Key, error) {
	key, err := b.requestedKey(o)
	if err != nil {
		return store.Key{}, err
	}
	ref := b.Ref(o)
	err = b.Store.ClaimID(ctx, key, ref)
	var stale *store.StaleError
	if errors.As(err, &stale) {
		ref.Restored, err = stale.Writes, b.confirmRestored(ctx, o, ref)
		if err != nil {
			return store.Key{}, err
		}
		if err = b.Store.ClaimID(ctx, key, ref); err == nil {
			// Another manager may have put a later generation that the store already had. The claim did
			// not lose to that write.
			err = b.confirmRestored(ctx, o, ref)
		}
	}
	if err != nil {
		return store.Key{}, FromStore(err)
	}
	if stale != nil {
		b.Event(o, corev1.EventTypeWarning, v1alpha1.ReasonRestored, fmt.Sprintf(
			"the store has generation %d and Kubernetes %d, as after a restore of etcd; the generation of Kubernetes is used", stale.Stored, ref.Generation))
	}
	o.CommonStatus().ID = key.ID.String()
	return key, nil
}

// confirmRestored returns nil if the generation of an object is older than the stored one, but is the
// current one in Kubernetes. In this case etcd was restored, and the object wins over the row unless
// another write happened since. Otherwise the cache is stale, and confirmRestored returns errStaleCache.
func (b *Base) confirmRestored(ctx context.Context, o v1alpha1.ConditionedObject, ref store.ObjectRef) error {
	current := o.DeepCopyObject().(client.Object)
	err := b.Reader.Get(ctx, client.ObjectKeyFromObject(current), current)
	switch {
	case apierrors.IsNotFound(err):
		return errStaleCache
	case err != nil:
		return fmt.Errorf("reading %s without the cache: %w", ref, err)
	case current.GetUID() != o.GetUID() || current.GetGeneration() != o.GetGeneration():
		return errStaleCache
	}
	return nil
}

// Project returns the namespace's project, or ErrProjectMissing if there is none.
func (b *Base) Project(ctx context.Context, namespace string) (*v1alpha1.Project, error) {
	project := &v1alpha1.Project{}
	err := b.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: v1alpha1.ProjectName}, project)
	if apierrors.IsNotFound(err) {
		return nil, ErrProjectMissing
	}
	if err != nil {
		return nil, fmt.Errorf("reading the project: %w", err)
	}
	return project, nil
}

// Environment returns the environment that an object names, with its row in the store. It returns
// *MissingError if the environment does not exist or is not in effect.
func (b *Base) Environment(
	ctx context.Context, namespace string, name v1alpha1.EnvironmentName,
) (*v1alpha1.Environment, store.Environment, error) {
	environment := &v1alpha1.Environment{}
	row, err := resolve(ctx, b, types.NamespacedName{Namespace: namespace, Name: string(name)}, environment,
		b.Store.Environment, func(e store.Environment) store.ObjectRef { return e.Ref })
	return environment, row, err
}

// MissingEnvironment returns a *MissingError if the environment that an object names is deleted, otherwise nil.
// because is the error that stopped the work on the object. If it is ErrProjectMissing, MissingEnvironment looks
// for the environment itself.
func (b *Base) MissingEnvironment(ctx context.Context, namespace string, environment v1alpha1.EnvironmentName, because error) (missing *MissingError) {
	if errors.Is(because, ErrProjectMissing) {
		_, _, because = b.Environment(ctx, namespace, environment)
	}
	if errors.As(because, &missing) && missing.Unready {
		return nil
	}
	return missing
}

// Connector returns the connector that an object names, like Environment.
func (b *Base) Connector(
	ctx context.Context, namespace string, name v1alpha1.ConnectorName,
) (*v1alpha1.Connector, store.Connector, error) {
	connector := &v1alpha1.Connector{}
	row, err := resolve(ctx, b, types.NamespacedName{Namespace: namespace, Name: string(name)}, connector,
		b.Store.Connector, func(c store.Connector) store.ObjectRef { return c.Ref })
	return connector, row, err
}

// resolve reads an object by name into o, and its row by the ID that it requests. The row is valid only
// if the store's claim names this object.
func resolve[R any](
	ctx context.Context, b *Base, name types.NamespacedName, o v1alpha1.ConditionedObject,
	find func(context.Context, store.Key) (R, error), ref func(R) store.ObjectRef,
) (R, error) {
	var none R
	missing := &MissingError{Kind: o.ObjectKind(), Name: name.Name}
	err := b.Client.Get(ctx, name, o.(client.Object))
	if apierrors.IsNotFound(err) {
		return none, missing
	}
	if err != nil {
		return none, fmt.Errorf("reading %s %q: %w", o.ObjectKind(), name.Name, err)
	}
	projectID := b.ProjectID(name.Namespace)
	id, err := v1alpha1.ObjectID(projectID, o)
	if err != nil {
		return none, err
	}
	row, err := find(ctx, store.Key{ProjectID: projectID, ID: id})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return none, FromStore(fmt.Errorf("reading %s %q: %w", o.ObjectKind(), name.Name, err))
	}
	held := ref(row)
	if err != nil || held.ObjectUID != string(o.GetUID()) || !held.SameObject(b.Ref(o)) {
		missing.Unready = true
		return none, missing
	}
	return row, nil
}

// Defaults reads default environments from the store.
type Defaults interface {
	DefaultEnvironment(ctx context.Context, projectID uuid.UUID) (uuid.UUID, error)
	Environment(ctx context.Context, key store.Key) (store.Environment, error)
}

// DefaultName returns the name of the effective default environment, or "" if there is none. This is
// the environment that the project names if it is in effect, otherwise the first created one, which the
// store records. missing says why the named environment is not the default. It is nil if it is, or if
// the project names none.
func (b *Base) DefaultName(ctx context.Context, s Defaults, project *v1alpha1.Project, id uuid.UUID) (name string, missing *MissingError, err error) {
	if asked := project.Spec.DefaultEnvironment; asked != "" {
		_, _, err := b.Environment(ctx, project.Namespace, asked)
		if !errors.As(err, &missing) {
			return string(asked), nil, err
		}
	}
	name, err = b.storedDefaultName(ctx, s, id)
	return name, missing, err
}

// storedDefaultName returns the name of the default environment that the store records, or "" if there is none.
func (b *Base) storedDefaultName(ctx context.Context, s Defaults, id uuid.UUID) (string, error) {
	chosen, err := s.DefaultEnvironment(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", FromStore(fmt.Errorf("finding the default environment: %w", err))
	}
	environment, err := s.Environment(ctx, store.Key{ProjectID: id, ID: chosen})
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", FromStore(fmt.Errorf("reading the default environment: %w", err))
	}
	return environment.Ref.Name, nil
}
