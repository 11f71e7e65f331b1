// SPDX-License-Identifier: Apache-2.0

// Package project brings Projects into the store.
package project

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=projects,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=projects/status,verbs=get;patch;update
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch

// Store is what the controller needs of the store.
type Store interface {
	PutProject(ctx context.Context, p store.Project) error
	DefaultEnvironment(ctx context.Context, projectID uuid.UUID) (uuid.UUID, error)
	Environment(ctx context.Context, id uuid.UUID) (store.Environment, error)
}

// Reconciler reconciles Projects.
type Reconciler struct {
	*object.Keeper
	Data Store
}

// Reconcile brings one Project into the store.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	project := &v1alpha1.Project{}
	return r.Keeper.Reconcile(ctx, req, project, func(ctx context.Context) (time.Duration, error) {
		id, err := project.ParsedID()
		if err != nil {
			return 0, err
		}
		if err := r.Data.PutProject(ctx, projection(r.Ref(project), id, project)); err != nil {
			return 0, object.FromStore(err)
		}
		project.Status.ID = id.String()
		if err := r.showDefault(ctx, project, id); err != nil {
			return 0, err
		}
		project.MarkReady("")
		return 0, nil
	})
}

// showDefault shows the default environment that is in effect.
func (r *Reconciler) showDefault(ctx context.Context, project *v1alpha1.Project, id uuid.UUID) error {
	project.Status.DefaultEnvironment = string(project.Spec.DefaultEnvironment)
	if project.Status.DefaultEnvironment != "" {
		return nil
	}
	chosen, err := r.Data.DefaultEnvironment(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return object.FromStore(fmt.Errorf("finding the default environment: %w", err))
	}
	environment, err := r.Data.Environment(ctx, chosen)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return object.FromStore(fmt.Errorf("reading the default environment: %w", err))
	}
	project.Status.DefaultEnvironment = environment.Ref.Name
	return nil
}

// projection is a Project as the store keeps it.
func projection(ref store.ObjectRef, id uuid.UUID, project *v1alpha1.Project) store.Project {
	name := string(project.Spec.DisplayName)
	if name == "" {
		name = project.Namespace
	}
	return store.Project{
		Ref: ref, ID: id, DisplayName: name, RequestsPerMinute: int(project.Spec.Limits.RequestsPerMinute),
	}
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	changed := object.Enqueue(r.Client, func() *v1alpha1.ProjectList { return &v1alpha1.ProjectList{} }, items, object.Always)
	return ctrl.NewControllerManagedBy(mgr).
		Named("project").
		For(&v1alpha1.Project{}).
		Watches(&v1alpha1.Project{}, r.Deleted()).
		Watches(&v1alpha1.Environment{}, changed).
		Complete(r)
}

func items(list *v1alpha1.ProjectList) []v1alpha1.ConditionedObject {
	out := make([]v1alpha1.ConditionedObject, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out
}
