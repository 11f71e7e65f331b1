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

// The store is the truth for a deployment. One that was created a moment ago, or while no
// manager was there, may be an object alone: it is pending then.

// Deployment finds a deployment by id: 404 outside the project, 403 where the key does not
// reach its environment.
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

// notBegun finds a deployment of which there is only the object.
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

// asPending is what the store will say of an object once it knows it.
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

// openDeployments are the objects of deployments that have not ended, by id. Of each environment there are few,
// for a newer one ends the others.
type openDeployments map[uuid.UUID]*v1alpha1.Deployment

// deploymentsOf lists the deployments of an environment, newest first. It joins the deployments
// of the store with the new ones that only Kubernetes has, which are few.
func (s *API) deploymentsOf(
	ctx context.Context, c *rest.Caller, environment *v1alpha1.Environment,
) ([]store.Deployment, openDeployments, error) {
	// Kubernetes is asked first: what is begun meanwhile is in both, and not in none.
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
		if !isKnown && !v1alpha1.IsStalled(&objects.Items[i]) { // that one is refused, and will not begin
			waiting = append(waiting, o)
		}
	}
	slices.SortStableFunc(waiting, func(a, b store.Deployment) int { return b.CreatedAt.Compare(a.CreatedAt) })
	all := append(waiting, known...)
	return all[:min(len(all), store.MaxDeployments)], open, nil
}

// pastDeployments lists the deployments of an environment that is gone, and had some; else there is none.
func (s *API) pastDeployments(ctx context.Context, c *rest.Caller, environment rest.ID, none error) ([]store.Deployment, error) {
	list, err := s.Store.ListDeployments(ctx, c.RowKey(environment))
	if err != nil {
		return nil, fmt.Errorf("listing the deployments of environment %s, which is gone: %w", environment, err)
	}
	if len(list) == 0 {
		return nil, none
	}
	return list, nil
}

// object reads the object of a deployment; nil where it is gone.
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

// objectSeen is the object of a deployment, of which controllers say more than the store does, such
// as why a build does not run; nil where it is gone. What the store knows is answered while
// Kubernetes is away, too.
func (s *API) objectSeen(ctx context.Context, c *rest.Caller, d store.Deployment) *v1alpha1.Deployment {
	o, err := s.object(ctx, c, d)
	if err != nil {
		return nil
	}
	return o
}
