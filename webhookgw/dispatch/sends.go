// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/jsonscan"
	"github.com/agentplatform/agentplatform/store"
)

// send makes a delivery of what a run sends while it runs.
func (h *Handler) send(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.SendRequest
	lease, err := h.lease(w, r, token, dispatchapi.MaxSendRequest, &req, func() int64 { return req.Token })
	if err != nil {
		return err
	}
	send := store.Send{Lease: lease, Mode: store.LinkMode(req.Mode), Name: req.Name, Position: req.Position, Payload: req.Payload}
	if err := send.Check(); err != nil {
		return err
	}
	if err := jsonscan.Check(send.Payload); err != nil {
		return fmt.Errorf("the payload is not JSON that receivers can read: %w: %w", err, store.ErrInvalid)
	}
	var (
		sent store.Sent
		many *store.TooManySendsError
		much *store.TooMuchSentError
		full *store.StorageFullError
	)
	err = h.call(r.Context(), token.ProjectID, func(ctx context.Context) (err error) {
		sent, err = h.opts.Store.Send(ctx, send)
		return err
	})
	switch {
	case errors.As(err, &many):
		return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeTooManySends, "Not sent: "+many.Error()+".")
	case errors.As(err, &much):
		return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeTooMuchSent, "Not sent: "+much.Error()+".")
	case errors.As(err, &full): // no 429: the run goes on, and does not wait for a larger plan
		return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeStorageFull, "Not sent: "+full.Error()+".")
	case errors.Is(err, store.ErrNotFound):
		return httpserver.NewProblem(http.StatusNotFound, httpserver.CodeNotFound,
			"Not sent: the run's agent has no link by which it could send so; it may have been removed.")
	case err != nil:
		return err
	}
	answer := dispatchapi.SendResponse{DeliveryID: sent.DeliveryID, Status: dispatchapi.SendQueued}
	if sent.Skipped != "" {
		answer.Status, answer.Reason = dispatchapi.SendSkipped, sent.Skipped
	}
	httpserver.WriteJSON(w, http.StatusOK, answer)
	return nil
}

// addActions tells runs which tools their agents send by, and returns how many bytes that
// takes. Where they cannot be read the runs stay leased to their runner, which asks again.
func (h *Handler) addActions(ctx context.Context, token store.Token, runs []dispatchapi.Run) (taken int64, err error) {
	if len(runs) == 0 {
		return 0, nil
	}
	var agents []string
	for _, run := range runs {
		if !slices.Contains(agents, run.AgentName) {
			agents = append(agents, run.AgentName)
		}
	}
	ctx = context.WithoutCancel(ctx) // what a runner that left has claimed is given back then
	of, err := h.actions.of(ctx, token.Environment(), agents, func(ctx context.Context, agents []string) (all []store.Action, err error) {
		err = h.call(ctx, token.ProjectID, func(ctx context.Context) (err error) {
			all, err = h.opts.Store.Actions(ctx, token.Environment(), agents)
			return err
		})
		return all, err
	})
	if err != nil {
		return 0, err
	}
	for i := range runs {
		for _, a := range of[runs[i].AgentName] {
			runs[i].Actions = append(runs[i].Actions, dispatchapi.Action{Name: a.Name, Connector: a.Connector})
			taken += int64(len(a.Name) + len(a.Connector) + actionOverhead)
		}
	}
	return taken, nil
}

// actionOverhead is more than an action takes in an answer beside its names.
const actionOverhead = 64
