// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// Envelope is the body of an automatic delivery: what a run has ended with.
type Envelope struct {
	RunID      uuid.UUID        `json:"run_id"`
	AgentName  string           `json:"agent_name"`
	Status     store.RunStatus  `json:"status"`
	Output     string           `json:"output"`
	Error      *string          `json:"error"`
	StartedAt  *time.Time       `json:"started_at"`
	EndedAt    *time.Time       `json:"ended_at"`
	TokenUsage store.TokenUsage `json:"token_usage"`
}

// envelopeOf is the same bytes each time that a run is sent.
func envelopeOf(run store.Run) ([]byte, error) {
	e := Envelope{
		RunID: run.ID, AgentName: run.AgentName, Status: run.Status, Output: run.Output,
		StartedAt: run.StartedAt, EndedAt: run.EndedAt, TokenUsage: run.Usage,
	}
	if run.Error != "" {
		e.Error = &run.Error
	}
	return json.Marshal(e)
}
