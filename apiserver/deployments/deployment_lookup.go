// SPDX-License-Identifier: Apache-2.0

package deployments

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
)

// The store is the source of truth for deployments. A deployment may be only an object if it is new, or if no manager
// has processed it. It is pending then.

// Deployment finds a deployment by ID. It returns 404 outside the project, and 403 if the key does not reach its
// environment.
func (s *API) Deployment(ctx context.Context, c *rest.Caller, id rest.ID) (store.Deployment, error) {
	d, err := s.Store.Deployment(ctx, c.RowKey(id))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return s.notBegun(ctx, c, id)
	case err != nil:
		return store.Deployment{}, fmt.Errorf("reading deployment %s: %w", id, err)
	}
	return d, s.Service.CheckReachID(ctx, c, d.EnvironmentID)
}

// notBegun finds a deployment that is only an object.
func (s *API) notBegun(ctx context.Context, c *rest.Caller, id rest.ID) (store.Deployment, error) {
	o := &v1alpha1.Deployment{}
	if err := s.Service.GetByID(ctx, c, "deployment", id, o); err != nil {
		return store.Deployment{}, err
	}
	if err := c.CheckReach(string(o.Spec.Environment)); err != nil {
		return store.Deployment{}, err
	}
	environment, err := s.Service.EnvironmentByName(ctx, c, o.Spec.Environment)
	if err != nil {
		return store.Deployment{}, err
	}
	if environment == nil {
		return store.Deployment{}, rest.NotFound("deployment")
	}
	return asPending(c, o, environment), nil
}

// asPending returns the row that the store will have for an object.
func asPending(c *rest.Caller, o *v1alpha1.Deployment, environment *v1alpha1.Environment) store.Deployment {
	out := store.Deployment{Status: store.DeploymentPending, CreatedAt: o.CreationTimestamp.Time, DeploymentSpec: store.DeploymentSpec{
		ID: c.ObjectKey(o).ID, ProjectID: c.ProjectID, EnvironmentID: c.ObjectKey(environment).ID, SourceType: "git",
		SkipTests: o.Spec.SkipTests, SkipFailedConnectors: o.Spec.SkipFailedConnectors,
	}}
	if git := o.Spec.Source.Git; git != nil {
		out.Branch, out.Commit = string(git.Branch), string(git.Commit)
	}
	if bundle := o.Spec.Source.Bundle; bundle != nil {
		out.SourceType, out.UploadDigest = "upload", string(bundle.Digest)
	}
	if of, err := uuid.Parse(string(o.Spec.RedeployOf)); err == nil {
		out.RedeployOf = &of
	}
	return out
}

// openDeployments returns the objects of open deployments by ID. An environment has few of them, because a new
// deployment ends the others.
type openDeployments map[uuid.UUID]*v1alpha1.Deployment

// deploymentsOf lists the deployments of an environment, newest first. It joins the deployments
// of the store with the new ones that only Kubernetes has, which are few.
func (s *API) deploymentsOf(
	ctx context.Context, c *rest.Caller, environment *v1alpha1.Environment,
) ([]store.Deployment, openDeployments, error) {
	// Read Kubernetes first. A deployment that starts in between is then in both results, not in neither.
	var objects v1alpha1.DeploymentList
	selected := []fields.Selector{fields.OneTermEqualSelector("spec.environment", environment.Name)}
	for _, ended := range []v1alpha1.DeploymentPhase{v1alpha1.DeploymentDeployed, v1alpha1.DeploymentFailed, v1alpha1.DeploymentCancelled} {
		selected = append(selected, fields.OneTermNotEqualSelector("status.phase", string(ended)))
	}
	err := s.Service.List(ctx, c, store.KindDeployment, &objects, client.Limit(store.MaxDeployments),
		client.MatchingFieldsSelector{Selector: fields.AndSelectors(selected...)})
	if err != nil {
		return nil, nil, err
	}
	known, err := s.Store.ListDeployments(ctx, c.ObjectKey(environment))
	if err != nil {
		return nil, nil, fmt.Errorf("listing the deployments of environment %q: %w", environment.Name, err)
	}
	var waiting []store.Deployment
	open := openDeployments{}
	for i := range objects.Items {
		o := asPending(c, &objects.Items[i], environment)
		open[o.ID] = &objects.Items[i]
		isKnown := slices.ContainsFunc(known, func(d store.Deployment) bool { return d.ID == o.ID })
		if !isKnown && !v1alpha1.IsStalled(&objects.Items[i]) { // a rejected deployment does not start
			waiting = append(waiting, o)
		}
	}
	slices.SortStableFunc(waiting, func(a, b store.Deployment) int { return b.CreatedAt.Compare(a.CreatedAt) })
	all := append(waiting, known...)
	return all[:min(len(all), store.MaxDeployments)], open, nil
}

// deploymentsOfDeleted lists the deployments of a deleted environment. It returns 404 if there are none.
func (s *API) deploymentsOfDeleted(ctx context.Context, c *rest.Caller, environment rest.ID, none error) ([]store.Deployment, error) {
	list, err := s.Store.ListDeployments(ctx, c.RowKey(environment))
	if err != nil {
		return nil, fmt.Errorf("listing the deployments of environment %s, which is gone: %w", environment, err)
	}
	if len(list) == 0 {
		return nil, none
	}
	return list, nil
}

// object reads the object of a deployment. It returns nil if the object was deleted.
func (s *API) object(ctx context.Context, c *rest.Caller, d store.Deployment) (*v1alpha1.Deployment, error) {
	o := &v1alpha1.Deployment{}
	switch err := s.Service.GetByID(ctx, c, "deployment", rest.ID(d.ID), o); {
	case rest.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return o, nil
}

// objectIfAvailable returns the object of a deployment, whose conditions explain more than the store, for example why a
// build does not run. It returns nil if the object was deleted or Kubernetes is unavailable.
func (s *API) objectIfAvailable(ctx context.Context, c *rest.Caller, d store.Deployment) *v1alpha1.Deployment {
	o, err := s.object(ctx, c, d)
	if err != nil {
		return nil
	}
	return o
}
