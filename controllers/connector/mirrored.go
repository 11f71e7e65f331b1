// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"context"
	"fmt"
	"time"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/store"
)

// mirrored brings a connector of the code into the store as its activation did, with what
// people may change of it since: enabled, and the version of its secrets.
func (r *Reconciler) mirrored(
	ctx context.Context, c *v1alpha1.Connector, environment *v1alpha1.Environment, row store.Environment, key store.Key,
) (time.Duration, error) {
	c.Status.DefinedInCode, c.Status.Retired = true, c.Retired()
	if c.Activation() == 0 {
		return 0, &object.WaitingError{Message: fmt.Sprintf("the label %s is the platform's: remove it, and the connector is your own", v1alpha1.LabelDefinedInCode)}
	}
	if c.Retired() { // by the activation that it mirrors, in the store too
		c.MarkDisabled()
		v1alpha1.MarkReady(c, readyMessage(c))
		return 0, nil
	}
	var variables runnerconfig.Variables
	if projection.NamesVariables(c) {
		var err error
		if variables, err = r.Variables(ctx, environment, row.Key(), r.Keys); err != nil {
			return 0, err
		}
	}
	expanded, err := projection.Expanded(c, variables)
	if problem, is := projection.IsTextError(err); is {
		c.MarkUnexpanded(problem)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	after, err := r.project(ctx, expanded, projection.Identity{Project: key.ProjectID, Environment: row.ID, Connector: key.ID})
	c.Status = expanded.Status
	return after, err
}
