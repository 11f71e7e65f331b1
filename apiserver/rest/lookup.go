// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// Objects of a project are read by the functions of this file alone. An id
// counts only where the store's claim names that very object: what spec.id and
// status.id say is a tenant's word. Each function leaves the claimed id in the
// status of the copy that it returns, and returns nothing that holds none.

// GetByID reads the object of o's kind that holds an id.
func (s *Service) GetByID(ctx context.Context, c *Caller, kind string, id ID, o v1alpha1.ConditionedObject) error {
	ref, err := s.Store.Holder(ctx, c.RowKey(id))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return NotFound(kind)
	case err != nil:
		return fmt.Errorf("looking for %s %s: %w", kind, id, err)
	case ref.Kind != o.ObjectKind() || ref.Namespace != c.Namespace:
		return NotFound(kind)
	}
	err = s.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: ref.Name}, o.(client.Object))
	switch {
	case apierrors.IsNotFound(err), err == nil && string(o.GetUID()) != ref.ObjectUID:
		return NotFound(kind)
	case err != nil:
		return fmt.Errorf("reading %s %q: %w", kind, ref.Name, err)
	}
	o.CommonStatus().ID = id.String()
	return nil
}

// List reads the objects of a kind in the project that hold an id.
func (s *Service) List(ctx context.Context, c *Caller, kind string, into client.ObjectList, opts ...client.ListOption) error {
	if err := s.Client.List(ctx, into, append(opts, client.InNamespace(c.Namespace))...); err != nil {
		return fmt.Errorf("listing the objects of kind %s: %w", kind, err)
	}
	all, err := meta.ExtractList(into)
	if err != nil {
		return fmt.Errorf("listing the objects of kind %s: %w", kind, err)
	}
	if len(all) == 0 {
		return nil
	}
	claims, err := s.Store.Holders(ctx, c.ProjectID, kind)
	if err != nil {
		return fmt.Errorf("listing the ids of kind %s: %w", kind, err)
	}
	ids := make(map[string]string, len(claims))
	for _, claim := range claims {
		ids[claim.Ref.ObjectUID] = claim.Key.ID.String()
	}
	held := make([]runtime.Object, 0, len(all))
	for _, o := range all {
		object := o.(v1alpha1.ConditionedObject)
		if id, ok := ids[string(object.GetUID())]; ok {
			object.CommonStatus().ID = id
			held = append(held, o)
		}
	}
	return meta.SetList(into, held)
}

// claim makes the id that an object asks for the object's, as its controller
// does: who reads next, on any replica, finds what was just created, and a key
// whose id is another object's is none.
func (s *Service) claim(ctx context.Context, projectID uuid.UUID, o v1alpha1.ConditionedObject) error {
	id, err := v1alpha1.ObjectID(projectID, o)
	if err != nil {
		return err
	}
	err = s.Claims.ClaimID(ctx, store.Key{ProjectID: projectID, ID: id}, store.ObjectRef{
		Namespace: o.GetNamespace(), Kind: o.ObjectKind(), Name: o.GetName(),
		ObjectUID: string(o.GetUID()), Generation: o.GetGeneration(),
	})
	var stale *store.StaleError
	if err != nil && !errors.As(err, &stale) { // stale: a controller was faster, with a later generation
		return fmt.Errorf("claiming the id of %s %q: %w", o.ObjectKind(), o.GetName(), err)
	}
	o.CommonStatus().ID = id.String()
	return nil
}

// Environment finds an environment by id: 404 outside the project, 403 where
// the key does not reach it.
func (s *Service) Environment(ctx context.Context, c *Caller, id ID) (*v1alpha1.Environment, error) {
	e := &v1alpha1.Environment{}
	if err := s.GetByID(ctx, c, "environment", id, e); err != nil {
		return nil, err
	}
	return e, c.CheckReach(e.Name)
}

// Connector finds a connector by id, as environment does.
func (s *Service) Connector(ctx context.Context, c *Caller, id ID) (*v1alpha1.Connector, error) {
	conn := &v1alpha1.Connector{}
	if err := s.GetByID(ctx, c, "connector", id, conn); err != nil {
		return nil, err
	}
	return conn, c.CheckReach(string(conn.Spec.Environment))
}

// CheckReach answers 403 where the key does not reach an environment.
func (c *Caller) CheckReach(environment string) error {
	if c.Reaches(environment) {
		return nil
	}
	return NewProblem(http.StatusForbidden, httpserver.CodeForbidden, "the key does not reach this environment")
}

// ReachesAll reports whether the key reaches every environment, also deleted ones.
func (c *Caller) ReachesAll() bool { return c.Key.Spec.EnvironmentAccess != v1alpha1.AccessSelected }

// Environments reads all environments that the key reaches.
func (s *Service) Environments(ctx context.Context, c *Caller) ([]v1alpha1.Environment, error) {
	var list v1alpha1.EnvironmentList
	if err := s.List(ctx, c, store.KindEnvironment, &list); err != nil {
		return nil, err
	}
	reached := list.Items[:0]
	for _, e := range list.Items {
		if c.Reaches(e.Name) {
			reached = append(reached, e)
		}
	}
	return reached, nil
}

// EnvironmentByName is the environment of a name; nil when it is gone.
func (s *Service) EnvironmentByName(ctx context.Context, c *Caller, name v1alpha1.EnvironmentName) (*v1alpha1.Environment, error) {
	var list v1alpha1.EnvironmentList
	err := s.List(ctx, c, store.KindEnvironment, &list, client.MatchingFields{"metadata.name": string(name)})
	if err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return &list.Items[0], nil
}

// CheckReachID is CheckReach for an environment of which only the id is known:
// one that is gone is reached by keys that reach all.
func (s *Service) CheckReachID(ctx context.Context, c *Caller, id uuid.UUID) error {
	if c.ReachesAll() {
		return nil
	}
	_, err := s.Environment(ctx, c, ID(id))
	if IsNotFound(err) {
		return NewProblem(http.StatusForbidden, httpserver.CodeForbidden, "the key does not reach this environment")
	}
	return err
}

// NewID is the id that an object holds; see the top of this file.
func ObjectID(o v1alpha1.ConditionedObject) string { return o.CommonStatus().ID }

// ObjectKey is the primary key of an object's row.
func (c *Caller) ObjectKey(o v1alpha1.ConditionedObject) store.Key {
	id, err := uuid.Parse(ObjectID(o))
	if err != nil {
		return store.Key{} // of nothing
	}
	return store.Key{ProjectID: c.ProjectID, ID: id}
}

// UpdatedAt is when the object's spec was last written, as far as known.
func UpdatedAt(o metav1.Object) time.Time {
	last := o.GetCreationTimestamp().Time
	for _, f := range o.GetManagedFields() {
		if f.Subresource == "" && f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last.UTC()
}

// Project reads the caller's project as it is now: what it says of the default may have
// been written a moment ago, by another replica.
func (s *Service) Project(ctx context.Context, c *Caller) (*v1alpha1.Project, error) {
	project := &v1alpha1.Project{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: v1alpha1.ProjectName}, project); err != nil {
		return nil, fmt.Errorf("reading the project: %w", err)
	}
	return project, nil
}

// ConnectorsOf lists the connectors of an environment.
func (s *Service) ConnectorsOf(ctx context.Context, c *Caller, environment string) ([]v1alpha1.Connector, error) {
	var list v1alpha1.ConnectorList
	err := s.List(ctx, c, store.KindConnector, &list, client.MatchingFields{"spec.environment": environment})
	return list.Items, err
}
