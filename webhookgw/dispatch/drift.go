// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// maxDriftRecords limits the claims whose reports are recorded at the same time, one per project. So the other calls of the
	// project keep their turns.
	maxDriftRecords = 16
	// driftLogInterval is the minimum interval between two log entries about reports, because runners can send invalid ones.
	driftLogInterval = time.Minute
)

// driftRecorder records the drift of MCP tools beside the claims that report it.
type driftRecorder struct {
	slots   *quota.SlotSet
	log     *rate.Limiter
	records sync.WaitGroup
}

func newDriftRecorder() *driftRecorder {
	return &driftRecorder{slots: quota.NewSlotSet(maxDriftRecords, maxDriftRecords), log: rate.NewLimiter(rate.Every(driftLogInterval), 1)}
}

// startDriftRecord records the drift of MCP tools that a runner reports with a claim. The claim does not wait for it. Reports
// that cannot be recorded are dropped. The runner does not send them again. It reports a change that lasts after its next list.
func (h *Handler) startDriftRecord(ctx context.Context, token store.Token, reports []dispatchapi.DriftReport) {
	if len(reports) == 0 {
		return
	}
	if err := h.drift.slots.Take(token.ProjectID, 1); err != nil {
		h.warnOfDrift(token, err)
		return
	}
	ctx = context.WithoutCancel(ctx) // a claim with runs ends before the record
	h.drift.records.Go(func() {
		defer h.drift.slots.Give(token.ProjectID, 1)
		if err := h.recordDrift(ctx, token, reports); err != nil {
			h.warnOfDrift(token, err)
		}
	})
}

func (h *Handler) warnOfDrift(token store.Token, err error) {
	if h.drift.log.Allow() {
		h.opts.Logger.Warn("cannot record the drift of MCP tools; runners report it after their next list; further errors are logged once a minute",
			"environment", token.EnvironmentID, "error", err)
	}
}

func (h *Handler) recordDrift(ctx context.Context, token store.Token, reports []dispatchapi.DriftReport) error {
	drift := make([]store.DriftReport, len(reports))
	for i, r := range reports {
		drift[i] = store.DriftReport{DeploymentID: r.DeploymentID, Agent: r.Agent, Server: r.Server, Tools: r.Tools}
	}
	return h.callStore(ctx, token.ProjectID, func(ctx context.Context) error {
		return h.opts.Store.RecordDrift(ctx, token.Environment(), drift)
	})
}
