// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
)

// answerOf is that about files; nil without any.
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

// recorded is a sync webhook whose runs are waited for.
type recorded struct {
	run  store.Key // the connector run
	runs []uuid.UUID
	// agent is that of a single run which this very request has started, else "".
	agent string
	files *webhookapi.Files
	// events is the answer as a stream, nil where it is not.
	events *events
}

// answerSync waits for the runs of an accepted webhook and answers with their
// results; 504 when they take longer than the connector allows, and they go on.
func (h *Handler) answerSync(w http.ResponseWriter, r *http.Request, route store.Route, admission admission, end *watch) error {
	at := recorded{run: store.Key{ProjectID: route.Connector.ProjectID, ID: admission.ConnectorRunID}, runs: admission.RunIDs, files: answerOf(admission.files)}
	if admission.Verdict == store.Accepted && len(route.Links) == 1 {
		at.agent = route.Links[0].AgentName
	}
	if len(at.runs) == 0 {
		return fmt.Errorf("connector run %s has no runs", at.run)
	}
	timeout := time.Duration(route.Connector.TimeoutSeconds) * time.Second
	if timeout <= 0 {
		timeout = defaultSyncTimeout
	}
	h.opts.Metrics.SyncWaits()
	if wantsEvents(r) {
		at.events = beginEvents(w, admission)
		defer at.events.close()
	}
	ctx, cancel := h.opts.WithTimeout(r.Context(), timeout)
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
		at.goesOn(w, httpserver.CodeSyncTimeout,
			"The agent has not finished in time. The run goes on; read it with the REST API's GET /runs/{run_id}.")
	case r.Context().Err() != nil:
		h.opts.Metrics.SyncAnswered(metrics.SyncEnded)
		at.goesOn(w, httpserver.CodeGatewayStopping,
			"The gateway is stopping. The run goes on; read it with the REST API's GET /runs/{run_id}, "+
				"or send the event again with the same Idempotency-Key to wait for it.")
	case errors.Is(err, store.ErrNotFound) && admission.Verdict != store.Accepted:
		h.opts.Metrics.SyncAnswered(metrics.SyncUnknown)
		w.Header().Del(webhookapi.ReplayedHeader) // there is no answer to repeat
		at.ends(w, http.StatusConflict, httpserver.CodeGone, "A run of this event was erased, or is not kept any more, so that the answer cannot be repeated. "+
			"Nothing was started; to start it anew, send the event with another Idempotency-Key.")
	case errors.Is(err, store.ErrNotFound):
		h.opts.Metrics.SyncAnswered(metrics.SyncUnknown)
		at.ends(w, http.StatusConflict, httpserver.CodeGone, "The agent has run, and its run was erased before this answer. To send the event again starts another one.")
	default:
		h.opts.Metrics.SyncAnswered(metrics.SyncUnknown)
		if at.events == nil {
			return err
		}
		h.opts.Logger.Error("waiting for the runs of a webhook", "connector_run", at.run, "error", err)
		at.goesOn(w, httpserver.CodeStoreUnavailable, "It is not known how the run ended; read it with the REST API's GET /runs/{run_id}.")
	}
	return nil
}

// goesOn answers without the results, for the runs go on.
func (at recorded) goesOn(w http.ResponseWriter, code httpserver.Code, detail string) {
	at.ends(w, http.StatusGatewayTimeout, code, detail)
}

// ends answers without the results. It has no Retry-After: whoever sends the event
// again starts another run.
func (at recorded) ends(w http.ResponseWriter, status int, code httpserver.Code, detail string) {
	p := httpserver.NewProblem(status, code, detail)
	p.RunID = at.runs[0].String()
	if at.events != nil {
		at.events.fail(p)
		return
	}
	httpserver.WriteProblem(w, p)
}

// awaitFirst returns the first run once all have ended, of which it is told; while
// the store is away it is told again and again. The caller gives it back.
func (h *Handler) awaitFirst(ctx context.Context, at recorded, end *watch) (*output, error) {
	if end.run == tailOf(at.run) {
		h.waiters.recorded(end, at.run.ID)
	} else { // an earlier request's, which may have ended before
		end = h.waiters.watch(at.run)
		defer h.waiters.stop(end)
		h.waiters.ask(end, at.run)
	}
	for {
		select {
		case <-end.woken:
		case <-at.events.beats():
			if err := at.events.beat(); err != nil {
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
			h.outputs.give(first)
		case errors.Is(err, store.ErrNotFound):
			return nil, err
		}
	}
}

// takeFirst is take for the first of the runs, without a statement where its watch was
// told how it ended.
func (h *Handler) takeFirst(ctx context.Context, at recorded, watch *watch) (*output, error) {
	key := store.Key{ProjectID: at.run.ProjectID, ID: at.runs[0]}
	end := h.waiters.endOf(watch, key)
	if at.agent == "" || end == nil {
		return h.take(ctx, at, 0)
	}
	return atHand(store.Run{
		ID: key.ID, ProjectID: key.ProjectID, AgentName: at.agent,
		Status: end.Status, ErrorCode: end.ErrorCode, Error: end.Error, Output: end.Output,
	}), nil
}

// take reads one of the runs; that of a single one with a statement less.
func (h *Handler) take(ctx context.Context, at recorded, i int) (*output, error) {
	key := store.Key{ProjectID: at.run.ProjectID, ID: at.runs[i]}
	return h.outputs.take(ctx, key, func(ctx context.Context) (store.Run, error) {
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

// errNotRead is a stream that its client does not read.
var errNotRead = errors.New("sending events")

// errBroken is an answer that was begun and cannot be ended: its connection is.
var errBroken = errors.New("breaking off an answer")

// writeResults answers with the results of ended runs, of which one at a time is in
// memory, for as long as the caller reads them.
func (h *Handler) writeResults(w http.ResponseWriter, r *http.Request, at recorded, first *output) error {
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
	out := newResults(paced)
	out.begin(first.run, at.files)
	out.add(first.run)
	h.outputs.give(first)
	for i := 1; i < len(at.runs) && out.Flush() == nil; i++ {
		next, err := h.take(r.Context(), at, i)
		if errors.Is(err, store.ErrNotFound) {
			next, err = atHand(goneRun(at.runs[i])), nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errBroken, err)
		}
		out.add(next.run)
		h.outputs.give(next)
	}
	switch err := out.end(); {
	case err != nil:
		h.opts.Logger.Debug("writing an answer", "error", err) // its client is gone, or does not read
	case at.events != nil:
		at.events.endResults()
	}
	return nil
}

// goneRun stands in an answer for a run that was erased, or is not kept any more, of an event of which
// others are there: all that is known of it is its id.
func goneRun(run uuid.UUID) store.Run {
	return store.Run{ID: run, Status: store.RunStatus(webhookapi.ResultGone), Error: "the run was erased, or is not kept any more"}
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
