// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"context"
	"time"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/internal/cron"
)

// cronFields maps fields of spec.cron to their names.
var cronFields = map[cron.Field]string{
	cron.FieldSchedule: "schedule", cron.FieldZone: "timeZone", cron.FieldPrompt: "prompt", cron.FieldPayload: "payload",
}

// reconcileCron projects a cron connector into the store. It has no secret and no URL.
func (r *Reconciler) reconcileCron(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity) (time.Duration, error) {
	config := projection.CronConfig(c)
	if wrong := cron.Check(config.Schedule, config.TimeZone, config.Prompt, config.Payload); len(wrong) > 0 {
		c.MarkInvalidCron(cronFields[wrong[0].Field], wrong[0].Problem)
		return 0, nil
	}
	row, err := r.connectorRow(c, ids, "", "")
	if err != nil {
		return 0, err
	}
	if held, err := r.projectRow(ctx, c, ids, row); err != nil || !held {
		return object.Later, err
	}
	if err := r.readDestination(ctx, c, ids.Key()); err != nil {
		return 0, err
	}
	if c.IsEnabled() {
		c.MarkRoutesReady()
	}
	v1alpha1.MarkReady(c, readyMessage(c))
	return 0, nil
}
