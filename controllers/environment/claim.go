// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"time"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/store"
)

// claimSlug claims a slot of the plan and the slug in the store. held is false if an older environment
// has the slug, or if the project has reached its limit of environments.
func (r *Reconciler) claimSlug(ctx context.Context, e *v1alpha1.Environment, limit int32, key store.Key) (held bool, err error) {
	err = r.Store.PutEnvironment(ctx, store.Environment{
		Ref: r.Ref(e), ID: key.ID, ProjectID: key.ProjectID, DisplayName: e.Title(), Slug: e.WantedSlug(),
		Kind: e.Spec.Kind.EnumValue(), ObjectCreatedAt: e.CreationTimestamp.Time,
		Limit: int(limit),
	})
	var reached *store.LimitReachedError
	if errors.As(err, &reached) {
		e.MarkLimitReached(limit, reached.Stored)
		return false, nil
	}
	var taken *store.SlugTakenError
	if errors.As(err, &taken) {
		e.MarkSlugTaken(taken.Slug, taken.Holder.String())
		return false, nil
	}
	if err != nil {
		return false, base.FromStore(err)
	}
	e.Status.Slug = e.WantedSlug()
	return true, nil
}

// reportState reports the store's state: whether the environment is the default, and its live deployment,
// which it returns. It returns nil if nothing is live.
func (r *Reconciler) reportState(ctx context.Context, e *v1alpha1.Environment, project *v1alpha1.Project, key store.Key) (*store.Deployment, error) {
	stored, err := r.Store.Environment(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil // another environment holds its slot or its slug
	}
	if err != nil {
		return nil, base.FromStore(err)
	}
	name, _, err := r.DefaultName(ctx, r.Store, project, key.ProjectID)
	if err != nil {
		return nil, err
	}
	e.Status.Default = name == e.Name
	if stored.LiveDeploymentID == nil {
		e.MarkNothingLive()
		e.MarkToolsDrifted("", time.Time{})
		return nil, nil
	}
	live, err := r.Store.Deployment(ctx, store.Key{ProjectID: key.ProjectID, ID: *stored.LiveDeploymentID})
	if err != nil {
		return nil, base.FromStore(err)
	}
	path := live.Path
	if live.UploadDigest != "" {
		path = nil
	}
	e.MarkLive(live.Ref.Name, live.ID.String(), live.ResolvedCommit, path)
	return &live, r.reportDrift(ctx, e, live.Key())
}
