// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"context"
	"time"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/projection"
)

// reconcileSource projects a connector that creates events itself into the store. It has no secret and no URL.
func (r *Reconciler) reconcileSource(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity) (time.Duration, error) {
	if wrong := crd.KindOf(c).Check(crd.ConfigOf(c)); len(wrong) > 0 {
		c.MarkInvalidSetting(crd.FieldName(wrong[0].Field), wrong[0].Problem)
		return 0, nil
	}
	row, err := r.connectorRow(c, ids, "", "")
	if err != nil {
		return 0, err
	}
	if held, err := r.projectRow(ctx, c, ids, row); err != nil || !held {
		return base.MaxRetryInterval, err
	}
	if err := r.checkProjected(ctx, c, ids.Key()); err != nil {
		return 0, err
	}
	if c.IsEnabled() {
		c.MarkRoutesReady()
	}
	v1alpha1.MarkReady(c, readyMessage(c))
	return 0, nil
}
