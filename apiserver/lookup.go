// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// candidates lists the objects of the namespace that the id may name: by
// status.id, and by spec.id those that no controller has seen yet.
func (s *Server) candidates(ctx context.Context, c *caller, id string, lists [2]client.ObjectList) error {
	for i, field := range []string{"status.id", "spec.id"} {
		err := s.client.List(ctx, lists[i], client.InNamespace(c.namespace), client.MatchingFields{field: id})
		if err != nil {
			return fmt.Errorf("looking for %s %s: %w", field, id, err)
		}
	}
	return nil
}

// holds says whether an object found by spec.id holds that id: it does until a
// controller finds that another object does.
func holds(o v1alpha1.ConditionedObject) bool {
	ready := o.CommonStatus().Condition(v1alpha1.ConditionReady)
	return ready == nil || ready.Reason != v1alpha1.ReasonIDTaken
}

// environment finds an environment by id: 404 outside the project, 403 where
// the key does not reach it.
func (s *Server) environment(ctx context.Context, c *caller, id string) (*v1alpha1.Environment, error) {
	var found, unseen v1alpha1.EnvironmentList
	if err := s.candidates(ctx, c, id, [2]client.ObjectList{&found, &unseen}); err != nil {
		return nil, err
	}
	for i, e := range append(found.Items, unseen.Items...) {
		if i >= len(found.Items) && !holds(&e) {
			continue
		}
		return &e, c.mustReach(e.Name)
	}
	return nil, notFound("environment")
}

// connector finds a connector by id, as environment does.
func (s *Server) connector(ctx context.Context, c *caller, id string) (*v1alpha1.Connector, error) {
	var found, unseen v1alpha1.ConnectorList
	if err := s.candidates(ctx, c, id, [2]client.ObjectList{&found, &unseen}); err != nil {
		return nil, err
	}
	for i, conn := range append(found.Items, unseen.Items...) {
		if i >= len(found.Items) && !holds(&conn) {
			continue
		}
		return &conn, c.mustReach(string(conn.Spec.Environment))
	}
	return nil, notFound("connector")
}

// mustReach answers 403 where the key does not reach an environment.
func (c *caller) mustReach(environment string) error {
	if c.reaches(environment) {
		return nil
	}
	return problem(http.StatusForbidden, "the key does not reach this environment")
}

// environments reads all environments that the key reaches.
func (s *Server) environments(ctx context.Context, c *caller) ([]v1alpha1.Environment, error) {
	var list v1alpha1.EnvironmentList
	if err := s.client.List(ctx, &list, client.InNamespace(c.namespace)); err != nil {
		return nil, fmt.Errorf("listing environments: %w", err)
	}
	reached := list.Items[:0]
	for _, e := range list.Items {
		if c.reaches(e.Name) {
			reached = append(reached, e)
		}
	}
	return reached, nil
}

// mustReachID is mustReach for an environment of which only the id is known:
// one that is gone is reached by keys that reach all.
func (s *Server) mustReachID(ctx context.Context, c *caller, id string) error {
	if c.key.Spec.EnvironmentAccess != v1alpha1.AccessSelected {
		return nil
	}
	_, err := s.environment(ctx, c, id)
	if isNotFound(err) {
		return problem(http.StatusForbidden, "the key does not reach this environment")
	}
	return err
}

// idOf is the id of an object: what its status says, else what it will say.
func (c *caller) idOf(o v1alpha1.ConditionedObject) string {
	switch {
	case o.CommonStatus().ID != "":
		return o.CommonStatus().ID
	case o.SpecID() != "":
		return o.SpecID()
	default:
		return v1alpha1.ProjectObjectID(c.projectID, o.ObjectKind(), o.GetName()).String()
	}
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
