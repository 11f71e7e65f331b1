// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	"github.com/agentplatform/agentplatform/store"
)

// cancelDeployment asks for the end of a deployment that is building. One that is pending
// begins within a moment as a rule, which is waited for; one that goes on waiting, as in an
// environment that is suspended, is not building and stays as it is.
func (s *Server) cancelDeployment(ctx context.Context, c *caller, in *DeploymentPath) (answer[Done], error) {
	d, err := s.deployment(ctx, c, in.DeploymentID)
	if err != nil {
		return answer[Done]{}, err
	}
	nothing := answer[Done]{Body: Done{OK: false}}
	o, err := s.object(ctx, c, d)
	if o == nil || err != nil {
		return nothing, err // whose object is gone, it ends by itself
	}
	if repeated, err := s.repeats(ctx, c, o); repeated || err != nil {
		return answer[Done]{Body: Done{OK: true}}, err
	}
	before, err := s.awaitDeployment(ctx, c, in.DeploymentID, func(d store.Deployment) bool { return d.Status != store.DeploymentPending })
	if err != nil || before.Status != store.DeploymentBuilding {
		return nothing, err
	}
	_, err = s.amend(ctx, c, o, func() error {
		o.Spec.Cancel = true
		return nil
	})
	if err != nil {
		return answer[Done]{}, err
	}
	after, err := s.awaitDeployment(ctx, c, in.DeploymentID, func(d store.Deployment) bool { return d.Status.Terminal() })
	if err != nil {
		return answer[Done]{}, err
	}
	shown := showDeployment(after, place{})
	changed(ctx, shown.audited(), showDeployment(before, place{}), shown)
	// One that came to another end meanwhile was not cancelled.
	return answer[Done]{Body: Done{OK: !after.Status.Terminal() || after.Status == store.DeploymentCancelled}}, nil
}

// awaitDeployment returns a deployment once it is as it should be, or as it is when await
// gives up.
func (s *Server) awaitDeployment(ctx context.Context, c *caller, id ID, is func(store.Deployment) bool) (d store.Deployment, err error) {
	s.await(ctx, func() bool {
		d, err = s.deployment(ctx, c, id)
		return err != nil || is(d)
	})
	return d, err
}
