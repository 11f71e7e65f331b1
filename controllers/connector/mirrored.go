// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/store"
)

// mirrored brings a connector of the code into the store as its activation did, with what
// people may change of it since: enabled, and the version of its secrets.
func (r *Reconciler) mirrored(
	ctx context.Context, c *v1alpha1.Connector, environment *v1alpha1.Environment, row store.Environment, key store.Key,
) (time.Duration, error) {
	c.Status.DefinedInCode, c.Status.Retired = true, false
	if c.Activation() == 0 {
		return 0, &object.WaitingError{Message: fmt.Sprintf("the label %s is the platform's: remove it, and the connector is your own", v1alpha1.LabelDefinedInCode)}
	}
	if c.Retired() {
		return 0, r.retired(ctx, c, key)
	}
	expanded, err := projection.Expanded(c, projection.VariablesOf(environment))
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

// retired shows a connector that an activation has retired, once the store says so too: anybody
// can write labels.
func (r *Reconciler) retired(ctx context.Context, c *v1alpha1.Connector, key store.Key) error {
	row, err := r.Store.Connector(ctx, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return object.FromStore(fmt.Errorf("reading whether the connector is retired: %w", err))
	}
	if err != nil || !row.DefinedInCode || !row.Retired {
		return &object.WaitingError{Message: fmt.Sprintf(
			"the label %s says what no activation has done; if it is your own object, remove that and %s", v1alpha1.LabelRetired, v1alpha1.LabelDefinedInCode)}
	}
	c.Status.Retired = true
	c.MarkDisabled()
	v1alpha1.MarkReady(c, readyMessage(c))
	return nil
}

// ownName holds back a connector that is not marked as one of the code, but has the id of one:
// a mirror that has lost its labels, or somebody's own of its name.
func (r *Reconciler) ownName(ctx context.Context, c *v1alpha1.Connector, key store.Key) error {
	row, err := r.Store.Connector(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && !row.DefinedInCode:
		return nil
	case err != nil:
		return object.FromStore(fmt.Errorf("reading whose connector has the id: %w", err))
	}
	return &object.StalledError{Reason: v1alpha1.ReasonNameCollision, Message: fmt.Sprintf(
		"a connector of the project's code is called %q, and stays as it is; delete this object, or make it with another name", c.Name)}
}
