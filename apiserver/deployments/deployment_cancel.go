// SPDX-License-Identifier: Apache-2.0

package deployments

import (
	"context"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
)

var cancelDeployment = rest.Handle((*API).cancelDeployment, rest.Endpoint{
	Method: rest.Post, Path: "/deployments/{deployment_id}/cancel", ID: "cancelDeployment",
	Permissions: rest.Requires("deployments.cancel"), Effect: rest.EffectAction, Errors: rest.ActionErrors,
	Summary: "Cancel a deployment",
	Doc: "Stops a building deployment. `ok` says whether the deployment is cancelled or will be. For a deployment with another " +
		"status, `ok` is false and nothing changes.\n\n" +
		"The call gives a pending deployment two seconds to start. A deployment that is still pending then, as in a suspended " +
		"environment, stays pending until another deployment replaces it. A repeated call with the same `Idempotency-Key` gets " +
		"the same response.",
	Example: rest.Example{Path: "/deployments/{open_deployment}/cancel"},
})

// cancelDeployment cancels a building deployment. It gives a pending deployment time to start. A deployment that stays
// pending, for example in a suspended environment, does not change.
func (s *API) cancelDeployment(ctx context.Context, c *rest.Caller, in *DeploymentPath) (rest.Response[rest.Done], error) {
	d, err := s.Deployment(ctx, c, in.DeploymentID)
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	nothing := rest.Response[rest.Done]{Body: rest.Done{OK: false}}
	o, err := s.object(ctx, c, d)
	if o == nil || err != nil {
		return nothing, err // its object was deleted, so it ends by itself
	}
	if repeated, err := s.Service.IsRepeated(ctx, c, o); repeated || err != nil {
		return rest.Response[rest.Done]{Body: rest.Done{OK: true}}, err
	}
	before, err := s.awaitDeployment(ctx, c, in.DeploymentID, func(d store.Deployment) bool { return d.Status != store.DeploymentPending })
	if err != nil || before.Status != store.DeploymentBuilding {
		return nothing, err
	}
	_, err = s.Service.UpdateObject(ctx, c, o, func() error {
		o.Spec.Cancel = true
		return nil
	})
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	after, err := s.awaitDeployment(ctx, c, in.DeploymentID, func(d store.Deployment) bool { return d.Status.Terminal() })
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	shown := showDeployment(after, place{})
	rest.RecordChange(ctx, shown.Audited(), showDeployment(before, place{}), shown)
	// A deployment that ended in another way was not cancelled.
	return rest.Response[rest.Done]{Body: rest.Done{OK: !after.Status.Terminal() || after.Status == store.DeploymentCancelled}}, nil
}

// awaitDeployment returns a deployment once it satisfies a condition, or its state when Wait gives up.
func (s *API) awaitDeployment(ctx context.Context, c *rest.Caller, id rest.ID, is func(store.Deployment) bool) (d store.Deployment, err error) {
	s.Service.Wait(ctx, func() bool {
		d, err = s.Deployment(ctx, c, id)
		return err != nil || is(d)
	})
	return d, err
}
