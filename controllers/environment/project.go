// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/store"
)

// project claims id and slug in the store. held is false when an older
// environment has the slug.
func (r *Reconciler) project(ctx context.Context, e *v1alpha1.Environment, projectID, id uuid.UUID) (held bool, err error) {
	err = r.Data.PutEnvironment(ctx, store.Environment{
		Ref: r.Ref(e), ID: id, ProjectID: projectID, DisplayName: e.Title(), Slug: e.WantedSlug(),
		Kind: string(e.Spec.Kind), ObjectCreatedAt: e.CreationTimestamp.Time,
	})
	var taken *store.SlugTakenError
	if errors.As(err, &taken) {
		e.Status.ID = id.String()
		e.MarkSlugTaken(taken.Slug, taken.Holder.String())
		return false, nil
	}
	if err != nil {
		return false, object.FromStore(err)
	}
	e.Status.ID, e.Status.Slug = id.String(), e.WantedSlug()
	return true, nil
}

// showState shows what the store knows: the default, and what is live.
func (r *Reconciler) showState(ctx context.Context, e *v1alpha1.Environment, project *v1alpha1.Project, projectID, id uuid.UUID) error {
	if asked := project.Spec.DefaultEnvironment; asked != "" {
		e.Status.Default = string(asked) == e.Name
	} else {
		chosen, err := r.Data.DefaultEnvironment(ctx, projectID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return object.FromStore(fmt.Errorf("finding the default environment: %w", err))
		}
		e.Status.Default = err == nil && chosen == id
	}
	stored, err := r.Data.Environment(ctx, id)
	if err != nil {
		return object.FromStore(err)
	}
	e.Status.LiveDeployment, e.Status.LiveDeploymentID, e.Status.LiveCommit = "", "", ""
	if stored.LiveDeploymentID == nil {
		return nil
	}
	live, err := r.Data.Deployment(ctx, *stored.LiveDeploymentID)
	if err != nil {
		return object.FromStore(err)
	}
	e.Status.LiveDeployment, e.Status.LiveDeploymentID, e.Status.LiveCommit = live.Ref.Name, live.ID.String(), live.ResolvedCommit
	return nil
}
