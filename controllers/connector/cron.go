// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"context"
	"time"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/cron"
	"github.com/agentplatform/agentplatform/store"
)

// cronFields are the fields of spec.cron by the names that they have elsewhere.
var cronFields = map[cron.Field]string{
	cron.FieldSchedule: "schedule", cron.FieldZone: "timeZone", cron.FieldPrompt: "prompt", cron.FieldPayload: "payload",
}

// cron brings a cron connector into the store; it has no secret and no URL.
func (r *Reconciler) cron(ctx context.Context, c *v1alpha1.Connector, ids identity) (time.Duration, error) {
	config := cronConfig(c)
	if wrong := cron.Check(config.Schedule, config.TimeZone, config.Prompt, config.Payload); len(wrong) > 0 {
		c.MarkInvalidCron(cronFields[wrong[0].Field], wrong[0].Problem)
		return 0, nil
	}
	row, err := r.row(c, ids, "", "")
	if err != nil {
		return 0, err
	}
	if held, err := r.put(ctx, c, ids, row); err != nil || !held {
		return object.Later, err
	}
	if err := r.seen(ctx, c, store.Key{ProjectID: ids.project, ID: ids.connector}); err != nil {
		return 0, err
	}
	if c.IsEnabled() {
		c.MarkRoutesReady()
	}
	v1alpha1.MarkReady(c, readyMessage(c))
	return 0, nil
}

// cronConfig is the configuration as the store and the gateway have it.
func cronConfig(c *v1alpha1.Connector) store.CronConfig {
	spec := c.Spec.Cron
	config := store.CronConfig{Schedule: spec.Schedule, TimeZone: spec.TimeZone, MissedTicks: spec.MissedTicks.Word(), Prompt: spec.Prompt}
	if spec.Payload != nil {
		config.Payload = spec.Payload.Raw
	}
	return config
}
