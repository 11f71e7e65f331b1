// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"encoding/json"

	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
)

// envelopeOf returns the same bytes for each attempt of a run.
func envelopeOf(run store.Run) ([]byte, error) {
	e := webhookapi.Envelope{
		RunID: run.ID, AgentName: run.AgentName, Status: string(run.Status), Output: run.Output,
		StartedAt: run.StartedAt, EndedAt: run.EndedAt, TokenUsage: webhookapi.TokenUsage(run.Usage),
	}
	if run.Error != "" {
		e.Error = &run.Error
	}
	return json.Marshal(e)
}
