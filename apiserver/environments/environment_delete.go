// SPDX-License-Identifier: Apache-2.0

package environments

import (
	"context"

	"github.com/agentplatform/agentplatform/apiserver/rest"
)

var deleteEnvironment = rest.Handle((*API).deleteEnvironment, rest.Endpoint{
	Method: rest.Delete, Path: "/environments/{environment_id}", ID: "deleteEnvironment",
	Permissions: rest.Requires("environments.delete"), Effect: rest.EffectUpdate, Errors: rest.WithStatuses(rest.DeleteErrors, 400),
	Summary: "Delete an environment",
	Doc: "The platform cancels the open runs, takes the deployment out of service and disables the connectors. The call waits " +
		"up to two seconds for that. The history stays until its retention ends.\n\n" +
		"Returns 400 for the default environment and for the last standard environment, and 409 for a test environment during " +
		"a test session.",
	Example: rest.Example{Path: "/environments/{spare_environment}"},
})

// deleteEnvironment deletes the object. Its controller cancels the runs, takes the deployment out of service and
// disables the connectors when it deletes the row.
func (s *API) deleteEnvironment(ctx context.Context, c *rest.Caller, in *rest.EnvironmentPath) (done rest.Response[rest.Done], err error) {
	e, err := s.Service.Environment(ctx, c, in.EnvironmentID)
	if rest.IsNotFound(err) {
		return s.Service.RepeatedDelete(ctx, c, in.EnvironmentID, err)
	}
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	show, err := s.environmentShower(ctx, c, e)
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	before := show(e)
	leaves := removal{API: s, caller: c}
	defer func() { leaves.end(ctx, err) }()
	judge := func() error {
		if err := c.CheckMatch(e); err != nil {
			return err
		}
		if err := s.mustBeUnused(e); err != nil {
			return err
		}
		if err := leaves.begin(ctx, e, "be deleted"); err != nil {
			return err
		}
		return s.Service.CheckOwnership(e, nil)
	}
	if err := judge(); err != nil {
		return rest.Response[rest.Done]{}, err
	}
	if err := s.Service.DeleteObject(ctx, e, judge); err != nil {
		return rest.Response[rest.Done]{}, err
	}
	s.Service.Wait(ctx, func() bool { // no further runs start
		_, err := s.Service.Store.Environment(ctx, c.ObjectKey(e))
		return err != nil
	})
	return rest.DeletedResponse(ctx, before), nil
}
