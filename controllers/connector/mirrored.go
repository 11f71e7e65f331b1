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
	ctx context.Context, c *v1alpha1.Connector, environment *v1alpha1.Environment, ids projection.Identity,
) (time.Duration, error) {
	c.Status.DefinedInCode, c.Status.Retired = true, false
	if c.Activation() == 0 {
		return 0, &object.WaitingError{Message: fmt.Sprintf("the label %s is the platform's: remove it, and the connector is your own", v1alpha1.LabelDefinedInCode)}
	}
	if c.Retired() {
		return 0, r.retired(ctx, c, ids.Key())
	}
	expanded, err := projection.Expanded(c, projection.VariablesOf(environment))
	if problem, is := projection.IsTextError(err); is {
		c.MarkUnexpanded(problem)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	after, err := r.project(ctx, expanded, ids)
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

// ofCode says whether a connector mirrors the code, which the store knows: anybody can write
// labels. One that is not marked as such, but has the id of one, is held back: a mirror that has
// lost its labels, or somebody's own of its name. Where it is the object that the gateway serves
// by, it can be disabled all the same.
func (r *Reconciler) ofCode(ctx context.Context, c *v1alpha1.Connector, key store.Key) (bool, error) {
	row, err := r.Store.Connector(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return c.DefinedInCode(), nil // one that an activation has yet to bring
	case err != nil:
		return false, object.FromStore(fmt.Errorf("reading whose connector has the id: %w", err))
	case c.DefinedInCode() || !row.DefinedInCode:
		return row.DefinedInCode, nil
	}
	if row.Ref.ObjectUID == string(c.UID) {
		if err := r.disable(ctx, c, key, false); err != nil {
			return false, err
		}
	}
	return false, &object.StalledError{Reason: v1alpha1.ReasonNameCollision, Message: fmt.Sprintf(
		"a connector of the project's code is called %q, and stays as it is; delete this object, or make it with another name", c.Name)}
}

// mislabelled brings in a connector that says of itself that it is of the code, and is not: what
// it is told, such as to be disabled, holds as for any other.
func (r *Reconciler) mislabelled(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity) (time.Duration, error) {
	own := c.DeepCopy()
	delete(own.Labels, v1alpha1.LabelDefinedInCode)
	after, err := r.project(ctx, own, ids)
	c.Status = own.Status
	if v1alpha1.IsReady(c) {
		v1alpha1.MarkReady(c, fmt.Sprintf("in effect as your own; remove the label %s, which is the platform's", v1alpha1.LabelDefinedInCode))
	}
	return after, err
}
