// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/store"
)

// recordDrift records the drift of MCP tools that a runner reports with a claim. An error does not fail the claim, because the
// runner compares the tools again and repeats the report.
func (h *Handler) recordDrift(ctx context.Context, token store.Token, reports []dispatchapi.DriftReport) {
	if len(reports) == 0 {
		return
	}
	drift := make([]store.DriftReport, len(reports))
	for i, r := range reports {
		drift[i] = store.DriftReport{DeploymentID: r.DeploymentID, Agent: r.Agent, Server: r.Server, Tools: r.Tools}
	}
	err := h.callStore(ctx, token.ProjectID, func(ctx context.Context) error {
		return h.opts.Store.RecordDrift(ctx, token.Environment(), drift)
	})
	if err != nil && ctx.Err() == nil {
		h.opts.Logger.Warn("recording the drift of MCP tools; the runner reports it again", "environment", token.EnvironmentID, "error", err)
	}
}
