// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
)

// answerOf returns the part of the response about files, or nil without files.
func answerOf(files []store.File) *webhookapi.Files {
	if len(files) == 0 {
		return nil
	}
	accepted, omitted := store.SplitFiles(files)
	a := &webhookapi.Files{Accepted: len(accepted), Omitted: len(omitted), Issues: []webhookapi.FileIssue{}}
	for _, f := range store.FileIssues(files) {
		a.Issues = append(a.Issues, webhookapi.FileIssue{Name: f.Name, FieldName: f.FieldName, Reason: string(f.Reason)})
	}
	return a
}

func answerInbound(w http.ResponseWriter, status int, admission admission) {
	httpserver.WriteJSON(w, status, inboundAnswerOf(admission))
}

func inboundAnswerOf(admission admission) webhookapi.Accepted {
	ids := admission.RunIDs
	if ids == nil {
		ids = []uuid.UUID{}
	}
	return webhookapi.Accepted{Status: "ok", DispatchedTo: len(ids), RunIDs: ids, Files: answerOf(admission.files)}
}

// recordedEvent is a committed sync webhook whose caller waits for its runs.
type recordedEvent struct {
	run  store.Key // the connector run
	runs []uuid.UUID
	// agent is the name of the agent if this request started exactly one run, else "".
	agent string
	files *webhookapi.Files
	// events is the response stream, or nil for a JSON response.
	events *eventStream
}

// answerSync waits for the runs of an accepted webhook and returns their results. If they exceed
// the connector's timeout, it returns 504 and they continue.
func (h *Handler) answerSync(w http.ResponseWriter, r *http.Request, route *webhook, admission admission, end *runWatch) error {
	at := recordedEvent{run: store.Key{ProjectID: route.Connector.ProjectID, ID: admission.ConnectorRunID}, runs: admission.RunIDs, files: answerOf(admission.files)}
	if admission.Verdict == store.Accepted && len(route.Links) == 1 {
		at.agent = route.Links[0].AgentName
	}
	if len(at.runs) == 0 {
		return fmt.Errorf("connector run %s has no runs", at.run)
	}
	h.opts.Metrics.SyncWaits()
	if wantsEvents(r) {
		at.events = beginEvents(w, admission)
		defer at.events.close()
	}
	ctx, cancel := h.opts.WithTimeout(r.Context(), route.timeout)
	defer cancel()
	first, err := h.awaitFirst(ctx, at, end)
	switch {
	case err == nil:
		h.opts.Metrics.SyncAnswered(string(first.run.Status))
		return h.writeResults(w, r, at, first)
	case errors.Is(err, errNotRead):
		h.opts.Metrics.SyncAnswered(metrics.SyncEnded)
	case r.Context().Err() == nil && ctx.Err() != nil:
		h.opts.Metrics.SyncAnswered(metrics.SyncTimeout)
		at.answerPending(w, httpserver.CodeSyncTimeout,
			"The agent has not finished in time. The run continues. Read it with GET /runs/{run_id} of the REST API.")
	case r.Context().Err() != nil:
		h.opts.Metrics.SyncAnswered(metrics.SyncEnded)
		at.answerPending(w, httpserver.CodeGatewayStopping,
			"The gateway is stopping. The run continues. Read it with GET /runs/{run_id} of the REST API, "+
				"or send the event again with the same Idempotency-Key to wait for it.")
	case errors.Is(err, store.ErrNotFound) && admission.Verdict != store.Accepted:
		h.opts.Metrics.SyncAnswered(metrics.SyncUnknown)
		w.Header().Del(webhookapi.ReplayedHeader) // no response is replayed
		at.answerFailed(w, http.StatusConflict, httpserver.CodeGone, "A run of this event was erased or has expired, so the earlier response cannot be returned. "+
			"Nothing was started. To start a new run, send the event with another Idempotency-Key.")
	case errors.Is(err, store.ErrNotFound):
		h.opts.Metrics.SyncAnswered(metrics.SyncUnknown)
		at.answerFailed(w, http.StatusConflict, httpserver.CodeGone, "The run has ended and was erased before this response. Sending the event again starts another run.")
	default:
		h.opts.Metrics.SyncAnswered(metrics.SyncUnknown)
		if at.events == nil {
			return err
		}
		h.opts.Logger.Error("waiting for the runs of a webhook", "connector_run", at.run, "error", err)
		at.answerPending(w, httpserver.CodeStoreUnavailable, "The outcome of the run is unknown. Read it with GET /runs/{run_id} of the REST API.")
	}
	return nil
}

// answerPending responds without results, because the runs continue.
func (at recordedEvent) answerPending(w http.ResponseWriter, code httpserver.Code, detail string) {
	at.answerFailed(w, http.StatusGatewayTimeout, code, detail)
}

// answerFailed responds with an error. It sets no Retry-After, because sending the event again would start
// another run.
func (at recordedEvent) answerFailed(w http.ResponseWriter, status int, code httpserver.Code, detail string) {
	p := httpserver.NewProblem(status, code, detail)
	p.RunID = at.runs[0].String()
	if at.events != nil {
		at.events.sendError(p)
		return
	}
	httpserver.WriteProblem(w, p)
}

// awaitFirst returns the first run after all runs have ended. It waits for a notification, and
// retries while the store is unavailable. The caller gives the run back.
func (h *Handler) awaitFirst(ctx context.Context, at recordedEvent, end *runWatch) (*cachedOutput, error) {
	if end.run == runTailOf(at.run) {
		h.waiters.recorded(end, at.run.ID)
	} else { // of an earlier request, which may have ended before
		end = h.waiters.watchRun(at.run)
		defer h.waiters.stopWatch(end)
		h.waiters.queryEnd(end, at.run)
	}
	for {
		select {
		case <-end.woken:
		case <-at.events.heartbeats():
			if err := at.events.sendHeartbeat(); err != nil {
				return nil, fmt.Errorf("%w: %w", errNotRead, err)
			}
			continue
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		first, err := h.takeFirst(ctx, at, end)
		switch {
		case err == nil && first.run.Status.Terminal():
			return first, nil
		case err == nil:
			at.events.progress(at.runs[0], first.run.Status)
			h.outputs.releaseOutput(first)
		case errors.Is(err, store.ErrNotFound):
			return nil, err
		}
	}
}

// takeFirst returns the first run. If its watch already has the end of the run, it needs no query.
func (h *Handler) takeFirst(ctx context.Context, at recordedEvent, watch *runWatch) (*cachedOutput, error) {
	key := store.Key{ProjectID: at.run.ProjectID, ID: at.runs[0]}
	end := h.waiters.knownEnd(watch, key)
	if at.agent == "" || end == nil {
		return h.readRun(ctx, at, 0)
	}
	return loadedOutput(store.Run{
		ID: key.ID, ProjectID: key.ProjectID, AgentName: at.agent,
		Status: end.Status, ErrorCode: end.ErrorCode, Error: end.Error, Output: end.Output, FinishReason: end.FinishReason,
	}), nil
}

// readRun reads one of the runs. A single run needs one query less.
func (h *Handler) readRun(ctx context.Context, at recordedEvent, i int) (*cachedOutput, error) {
	key := store.Key{ProjectID: at.run.ProjectID, ID: at.runs[i]}
	return h.outputs.acquireOutput(ctx, key, func(ctx context.Context) (store.Run, error) {
		if len(at.runs) > 1 {
			return h.opts.Store.Run(ctx, key)
		}
		outcome, err := h.opts.Store.Outcome(ctx, at.run)
		if err == nil && len(outcome.Runs) != 1 {
			err = store.ErrNotFound
		}
		if err != nil {
			return store.Run{}, err
		}
		return outcome.Runs[0], nil
	})
}

// errNotRead means that the client does not read its stream.
var errNotRead = errors.New("sending events")

// errBroken means that a started response cannot be completed, so its connection must be closed.
var errBroken = errors.New("aborting a response")

// writeResults writes the results of ended runs, with one output in memory at a time, while the
// caller reads them fast enough.
func (h *Handler) writeResults(w http.ResponseWriter, r *http.Request, at recordedEvent, first *cachedOutput) error {
	var paced *httpserver.PacedAnswer
	if at.events != nil {
		paced = at.events.beginResults()
	} else {
		w.Header().Set("Content-Type", typeJSON)
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusOK)
		paced = httpserver.NewPacedAnswer(w, pace)
	}
	defer paced.Done()
	out := newResultWriter(paced)
	out.beginResults(first.run, at.files)
	out.addResult(first.run)
	h.outputs.releaseOutput(first)
	for i := 1; i < len(at.runs) && out.Flush() == nil; i++ {
		next, err := h.readRun(r.Context(), at, i)
		if errors.Is(err, store.ErrNotFound) {
			next, err = loadedOutput(missingRun(at.runs[i])), nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errBroken, err)
		}
		out.addResult(next.run)
		h.outputs.releaseOutput(next)
	}
	switch err := out.endResults(); {
	case err != nil:
		h.opts.Logger.Debug("writing a response", "error", err) // the client disconnected or does not read
	case at.events != nil:
		at.events.endResults()
	}
	return nil
}

// missingRun returns a placeholder for an erased or expired run whose event has other runs. Only its
// ID is known.
func missingRun(run uuid.UUID) store.Run {
	return store.Run{ID: run, Status: store.RunStatus(webhookapi.ResultGone), Error: "the run was erased or has expired"}
}

// prefersAsync reads `Prefer: respond-async` of RFC 7240.
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
