// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/internal/cron"
)

// showTicks fills in the last and the next tick of cron connectors, with one query for all.
func (s *API) showTicks(ctx context.Context, c *rest.Caller, conns []v1alpha1.Connector, shown []*Connector) error {
	var ids []uuid.UUID
	for _, out := range shown {
		if id, err := uuid.Parse(out.ID); err == nil && out.Type == rest.ConnectorType(v1alpha1.ConnectorCron) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	times, err := s.Store.TickTimes(ctx, c.ProjectID, ids)
	if err != nil {
		return fmt.Errorf("reading when connectors tick: %w", err)
	}
	for i, out := range shown {
		id, err := uuid.Parse(out.ID)
		if err != nil || out.Type != rest.ConnectorType(v1alpha1.ConnectorCron) {
			continue
		}
		ticks := times[id]
		out.LastTickAt = rest.OptionalTime(ticks.Last)
		next := ticks.Next
		if !ticks.Planned { // the gateway adds the row in a moment
			config := crd.ConfigOf(&conns[i])
			schedule, err := cron.Parse(config.Schedule, config.Timezone)
			if err != nil {
				continue
			}
			next = schedule.Next(ticks.Next)
		}
		if ticks.Active && !next.IsZero() {
			out.NextTickAt = rest.OptionalTime(&next)
		}
	}
	return nil
}
