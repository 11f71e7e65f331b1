// SPDX-License-Identifier: Apache-2.0

package apiserver

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

// byID reads the object of o's kind that holds an id.
func (s *Server) byID(ctx context.Context, c *caller, kind string, id ID, o v1alpha1.ConditionedObject) error {
	ref, err := s.store.Holder(ctx, c.row(id))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return notFound(kind)
	case err != nil:
		return fmt.Errorf("looking for %s %s: %w", kind, id, err)
	case ref.Kind != o.ObjectKind() || ref.Namespace != c.namespace:
		return notFound(kind)
	}
	err = s.client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: ref.Name}, o.(client.Object))
	switch {
	case apierrors.IsNotFound(err), err == nil && string(o.GetUID()) != ref.ObjectUID:
		return notFound(kind)
	case err != nil:
		return fmt.Errorf("reading %s %q: %w", kind, ref.Name, err)
	}
	o.CommonStatus().ID = id.String()
	return nil
}

// list reads the objects of a kind in the project that hold an id.
func (s *Server) list(ctx context.Context, c *caller, kind string, into client.ObjectList, opts ...client.ListOption) error {
	if err := s.client.List(ctx, into, append(opts, client.InNamespace(c.namespace))...); err != nil {
		return fmt.Errorf("listing the objects of kind %s: %w", kind, err)
	}
	all, err := meta.ExtractList(into)
	if err != nil {
		return fmt.Errorf("listing the objects of kind %s: %w", kind, err)
	}
	if len(all) == 0 {
		return nil
	}
	claims, err := s.store.Holders(ctx, c.projectID, kind)
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
func (s *Server) claim(ctx context.Context, projectID uuid.UUID, o v1alpha1.ConditionedObject) error {
	id, err := v1alpha1.ObjectID(projectID, o)
	if err != nil {
		return err
	}
	err = s.claims.ClaimID(ctx, store.Key{ProjectID: projectID, ID: id}, store.ObjectRef{
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

// environment finds an environment by id: 404 outside the project, 403 where
// the key does not reach it.
func (s *Server) environment(ctx context.Context, c *caller, id ID) (*v1alpha1.Environment, error) {
	e := &v1alpha1.Environment{}
	if err := s.byID(ctx, c, "environment", id, e); err != nil {
		return nil, err
	}
	return e, c.mustReach(e.Name)
}

// connector finds a connector by id, as environment does.
func (s *Server) connector(ctx context.Context, c *caller, id ID) (*v1alpha1.Connector, error) {
	conn := &v1alpha1.Connector{}
	if err := s.byID(ctx, c, "connector", id, conn); err != nil {
		return nil, err
	}
	return conn, c.mustReach(string(conn.Spec.Environment))
}

// mustReach answers 403 where the key does not reach an environment.
func (c *caller) mustReach(environment string) error {
	if c.reaches(environment) {
		return nil
	}
	return problem(http.StatusForbidden, httpserver.CodeForbidden, "the key does not reach this environment")
}

// reachesAll says whether the key reaches every environment, also those that are gone.
func (c *caller) reachesAll() bool { return c.key.Spec.EnvironmentAccess != v1alpha1.AccessSelected }

// environments reads all environments that the key reaches.
func (s *Server) environments(ctx context.Context, c *caller) ([]v1alpha1.Environment, error) {
	var list v1alpha1.EnvironmentList
	if err := s.list(ctx, c, store.KindEnvironment, &list); err != nil {
		return nil, err
	}
	reached := list.Items[:0]
	for _, e := range list.Items {
		if c.reaches(e.Name) {
			reached = append(reached, e)
		}
	}
	return reached, nil
}

// environmentNamed is the environment of a name; nil when it is gone.
func (s *Server) environmentNamed(ctx context.Context, c *caller, name v1alpha1.EnvironmentName) (*v1alpha1.Environment, error) {
	var list v1alpha1.EnvironmentList
	err := s.list(ctx, c, store.KindEnvironment, &list, client.MatchingFields{"metadata.name": string(name)})
	if err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return &list.Items[0], nil
}

// mustReachID is mustReach for an environment of which only the id is known:
// one that is gone is reached by keys that reach all.
func (s *Server) mustReachID(ctx context.Context, c *caller, id uuid.UUID) error {
	if c.reachesAll() {
		return nil
	}
	_, err := s.environment(ctx, c, ID(id))
	if isNotFound(err) {
		return problem(http.StatusForbidden, httpserver.CodeForbidden, "the key does not reach this environment")
	}
	return err
}

// idOf is the id that an object holds; see the top of this file.
func idOf(o v1alpha1.ConditionedObject) string { return o.CommonStatus().ID }

// keyOf is the primary key of an object's row.
func (c *caller) keyOf(o v1alpha1.ConditionedObject) store.Key {
	id, err := uuid.Parse(idOf(o))
	if err != nil {
		return store.Key{} // of nothing
	}
	return store.Key{ProjectID: c.projectID, ID: id}
}

// updatedAt is when the object's spec was last written, as far as known.
func updatedAt(o metav1.Object) time.Time {
	last := o.GetCreationTimestamp().Time
	for _, f := range o.GetManagedFields() {
		if f.Subresource == "" && f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last.UTC()
}
