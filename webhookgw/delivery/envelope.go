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
		RunID: run.ID, AgentName: run.AgentName, Status: string(run.Status), Output: run.Output, Error: webhookapi.Optional(run.Error), FinishReason: webhookapi.Optional(run.FinishReason),
		StartedAt: run.StartedAt, EndedAt: run.EndedAt, TokenUsage: webhookapi.TokenUsage(run.Usage),
	}
	return json.Marshal(e)
}
