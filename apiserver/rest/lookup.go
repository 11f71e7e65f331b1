// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
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

// Only the functions of this file read objects of a project. An ID counts only if the store's claim names that object,
// because tenants can write spec.id and status.id. Each function sets status.id of the returned copy to the claimed ID,
// and returns no object without a claim.

// GetByID reads the object of o's kind that holds an ID.
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

// List reads the objects of a kind in the project that hold an ID.
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

// claim claims the ID of an object, as its controller does. So the next reader on any replica finds a new object, and a
// key with the ID of another object is invalid.
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
	if err != nil && !errors.As(err, &stale) { // stale: a controller has already claimed the ID for a later generation
		return fmt.Errorf("claiming the id of %s %q: %w", o.ObjectKind(), o.GetName(), err)
	}
	o.CommonStatus().ID = id.String()
	return nil
}

// Environment finds an environment by ID. It returns 404 outside the project, and 403 if the key does not reach the
// environment.
func (s *Service) Environment(ctx context.Context, c *Caller, id ID) (*v1alpha1.Environment, error) {
	e := &v1alpha1.Environment{}
	if err := s.GetByID(ctx, c, "environment", id, e); err != nil {
		return nil, err
	}
	return e, c.CheckReach(e.Name)
}

// Connector finds a connector by ID, like Environment.
func (s *Service) Connector(ctx context.Context, c *Caller, id ID) (*v1alpha1.Connector, error) {
	conn := &v1alpha1.Connector{}
	if err := s.GetByID(ctx, c, "connector", id, conn); err != nil {
		return nil, err
	}
	return conn, c.CheckReach(string(conn.Spec.Environment))
}

// CheckReach returns 403 if the key does not reach an environment.
func (c *Caller) CheckReach(environment string) error {
	if c.Reaches(environment) {
		return nil
	}
	return NewProblem(http.StatusForbidden, httpserver.CodeForbidden, "the key does not reach this environment")
}

// ReachesAll reports whether the key reaches every environment, including deleted ones.
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

// EnvironmentByName returns the environment of a name, or nil if it was deleted.
func (s *Service) EnvironmentByName(ctx context.Context, c *Caller, name v1alpha1.EnvironmentName) (*v1alpha1.Environment, error) {
	var list v1alpha1.EnvironmentList
	err := s.List(ctx, c, store.KindEnvironment, &list, client.MatchingFields{"metadata.name": string(name)})
	if err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return &list.Items[0], nil
}

// CheckReachID is CheckReach for the ID of an environment. Only keys that reach all environments reach a deleted one.
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

// ObjectID returns the claimed ID of an object.
func ObjectID(o v1alpha1.ConditionedObject) string { return o.CommonStatus().ID }

// ObjectKey is the primary key of an object's row.
func (c *Caller) ObjectKey(o v1alpha1.ConditionedObject) store.Key {
	id, err := uuid.Parse(ObjectID(o))
	if err != nil {
		return store.Key{} // key of no object
	}
	return store.Key{ProjectID: c.ProjectID, ID: id}
}

// UpdatedAt returns the time of the last known write of the object's spec.
func UpdatedAt(o metav1.Object) time.Time {
	last := o.GetCreationTimestamp().Time
	for _, f := range o.GetManagedFields() {
		if f.Subresource == "" && f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last.UTC()
}

// Project reads the current project of the caller. Another replica may have changed the default environment a moment
// ago.
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

// EnvironmentPath names an environment.
type EnvironmentPath struct {
	ProjectPath
	EnvironmentID ID `path:"environment_id" resource:"environment" doc:"The environment."`
}

// EnvironmentQuery names the environment that a list is of.
type EnvironmentQuery struct {
	ProjectPath
	EnvironmentID ID `query:"environment_id" resource:"environment" required:"true" doc:"The environment."`
}

// IsRejected reports whether the platform rejects an environment, for example because of its plan.
func IsRejected(e *v1alpha1.Environment) bool {
	reasons := []string{v1alpha1.ReasonSlugTaken, v1alpha1.ReasonLimitReached, v1alpha1.ReasonNotAllowed, v1alpha1.ReasonRefused}
	return slices.ContainsFunc(reasons, func(reason string) bool { return IsStalledBy(e, reason) })
}

// CheckTestEnvironment returns 403 if the tests of an environment use another environment that the key does not reach, because the log
// shows the output of the tests.
func CheckTestEnvironment(c *Caller, environment *v1alpha1.Environment, skipTests bool) error {
	if with := environment.Spec.TestEnvironment; with != "" && !skipTests && !c.Reaches(string(with)) {
		return NewProblem(http.StatusForbidden, httpserver.CodeForbidden,
			"the tests of this environment use the model providers and variables of another environment (its testEnvironment), and the key does not reach that environment")
	}
	return nil
}

// NotReadyMessage returns the message of the controller about an object that is not ready.
func NotReadyMessage(o v1alpha1.ConditionedObject) string {
	ready := o.CommonStatus().Condition(v1alpha1.ConditionReady)
	if ready == nil || ready.Message == "" || ready.Status == metav1.ConditionTrue {
		return "the platform has not processed the object yet"
	}
	return ready.Message
}

// IsStalledBy reports whether a controller has rejected an object for a reason.
func IsStalledBy(o v1alpha1.ConditionedObject, reason string) bool {
	return v1alpha1.IsStalled(o) && o.CommonStatus().Condition(v1alpha1.ConditionStalled).Reason == reason
}

// DurationMS returns a duration in milliseconds, or nil.
func DurationMS(d *time.Duration) *int64 {
	if d == nil {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}

// MaxClockSkew is how far an earlier decision may be ahead of this process's clock.
const MaxClockSkew = time.Minute
