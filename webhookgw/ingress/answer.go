// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/store"
)

// inboundAnswer says which runs were started.
type inboundAnswer struct {
	Status       string      `json:"status"`
	DispatchedTo int         `json:"dispatched_to"`
	RunIDs       []uuid.UUID `json:"run_ids"`
}

func answerInbound(w http.ResponseWriter, status int, admission store.Admission) {
	ids := admission.RunIDs
	if ids == nil {
		ids = []uuid.UUID{}
	}
	httpserver.WriteJSON(w, status, inboundAnswer{Status: "ok", DispatchedTo: len(ids), RunIDs: ids})
}

// syncAnswer is the result of the oldest link's run, and of all.
type syncAnswer struct {
	Status  string       `json:"status"`
	Result  syncResult   `json:"result"`
	Results []syncResult `json:"results"`
}

type syncResult struct {
	RunID     uuid.UUID `json:"run_id"`
	AgentName string    `json:"agent_name"`
	Status    string    `json:"status"`
	Output    string    `json:"output"`
	Error     *string   `json:"error"`
}

// answerSync waits for the runs of an accepted webhook and answers with their
// results; 504 when they take longer than the connector allows, and they go on.
func (h *Handler) answerSync(w http.ResponseWriter, r *http.Request, route store.Route, admission store.Admission, end *watch) error {
	timeout := time.Duration(route.Connector.TimeoutSeconds) * time.Second
	if timeout <= 0 {
		timeout = defaultSyncTimeout
	}
	h.opts.Metrics.SyncWaits()
	ctx, cancel := h.opts.WithTimeout(r.Context(), timeout)
	defer cancel()
	outcome, err := h.awaitOutcome(ctx, store.Key{ProjectID: route.Connector.ProjectID, ID: admission.ConnectorRunID}, end)
	switch {
	case err == nil:
		h.opts.Metrics.SyncAnswered(string(outcome.Status))
		httpserver.WriteJSON(w, http.StatusOK, newSyncAnswer(outcome))
	case r.Context().Err() == nil && ctx.Err() != nil && len(admission.RunIDs) > 0:
		h.opts.Metrics.SyncAnswered(metrics.SyncTimeout)
		p := httpserver.NewProblem(http.StatusGatewayTimeout, httpserver.CodeSyncTimeout,
			"The agent has not finished in time. The run goes on; read it with the REST API's GET /runs/{run_id}.")
		p.RunID = admission.RunIDs[0].String()
		httpserver.WriteProblem(w, p)
	case r.Context().Err() != nil && len(admission.RunIDs) > 0:
		h.opts.Metrics.SyncAnswered(metrics.SyncEnded)
		// No Retry-After: whoever sends the event again starts another run.
		p := httpserver.NewProblem(http.StatusGatewayTimeout, httpserver.CodeGatewayStopping,
			"The gateway is stopping. The run goes on; read it with the REST API's GET /runs/{run_id}, "+
				"or send the event again with the same Idempotency-Key to wait for it.")
		p.RunID = admission.RunIDs[0].String()
		httpserver.WriteProblem(w, p)
	default:
		h.opts.Metrics.SyncAnswered(metrics.SyncUnknown)
		return err
	}
	return nil
}

// awaitOutcome returns once all runs of a connector run ended, which it reads when
// it is woken; while the store is away it is woken again and again.
func (h *Handler) awaitOutcome(ctx context.Context, run store.Key, end *watch) (store.Outcome, error) {
	look := end.run != tailOf(run) // an earlier request's run, which may have ended before
	if look {
		end = h.waiters.watch(run)
		defer h.waiters.stop(end)
	}
	h.waiters.recorded(end, run.ID)
	for ; ; look = true {
		if look {
			outcome, err := h.opts.Store.Outcome(ctx, run)
			if err == nil && outcome.Terminal() || errors.Is(err, store.ErrNotFound) {
				return outcome, err
			}
		}
		select {
		case <-end.woken:
		case <-ctx.Done():
			return store.Outcome{}, context.Cause(ctx)
		}
	}
}

func newSyncAnswer(outcome store.Outcome) syncAnswer {
	answer := syncAnswer{Status: "ok", Results: []syncResult{}}
	for _, run := range outcome.Runs {
		answer.Results = append(answer.Results, syncResult{
			RunID: run.ID, AgentName: run.AgentName, Status: string(run.Status), Output: run.Output, Error: failure(run),
		})
	}
	if len(answer.Results) > 0 {
		answer.Result = answer.Results[0]
	}
	if answer.Result.Status != string(store.RunCompleted) {
		answer.Status = answer.Result.Status
	}
	return answer
}

// prefersAsync reads RFC 7240's `Prefer: respond-async`.
func prefersAsync(r *http.Request) bool {
	for _, header := range r.Header.Values("Prefer") {
		for preference := range strings.SplitSeq(header, ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(preference), ";")
			if strings.EqualFold(strings.TrimSpace(name), "respond-async") {
				return true
			}
		}
	}
	return false
}
