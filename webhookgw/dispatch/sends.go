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

// sendPayload creates a delivery from a payload that a run sends.
func (h *Handler) sendPayload(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.SendRequest
	lease, err := h.readLease(w, r, token, dispatchapi.MaxSendRequest, &req, func() int64 { return req.Token })
	if err != nil {
		return err
	}
	send := store.Send{Lease: lease, Mode: store.LinkMode(req.Mode), Name: req.Name, Position: req.Position, Payload: req.Payload}
	if err := send.Check(); err != nil {
		return err
	}
	if err := jsonscan.Check(send.Payload); err != nil {
		return fmt.Errorf("the payload is not valid JSON for receivers: %w: %w", err, store.ErrInvalid)
	}
	var (
		sent store.Sent
		many *store.TooManySendsError
		much *store.TooMuchSentError
		full *store.StorageFullError
	)
	err = h.callStore(r.Context(), token.ProjectID, func(ctx context.Context) (err error) {
		sent, err = h.opts.Store.Send(ctx, send)
		return err
	})
	switch {
	case errors.As(err, &many):
		return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeTooManySends, "Not sent: "+many.Error()+".")
	case errors.As(err, &much):
		return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeTooMuchSent, "Not sent: "+much.Error()+".")
	case errors.As(err, &full): // not 429, because the run continues and does not wait for a larger plan
		return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeStorageFull, "Not sent: "+full.Error()+".")
	case errors.Is(err, store.ErrNotFound):
		return httpserver.NewProblem(http.StatusNotFound, httpserver.CodeNotFound, missingLinkText(send.Mode))
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

// missingLinkText is the text for a payload whose link does not exist.
func missingLinkText(mode store.LinkMode) string {
	if mode == store.LinkMiddleware {
		return "Not sent: no link in the mode middleware joins the run's agent and an outbound connector with this name. " +
			"Create the link, or correct the name."
	}
	return "Not sent: the run's agent has no link for this tool. The link may have been removed."
}

// addActions adds the tools for sending to the runs, and returns their size in bytes. If they
// cannot be read, the runs stay leased to their runner, which asks again.
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
	ctx = context.WithoutCancel(ctx) // if the runner disconnected, its claimed runs are released
	of, err := h.actions.toolsOf(ctx, token.Environment(), agents, func(ctx context.Context, agents []string) (all []store.Action, err error) {
		err = h.callStore(ctx, token.ProjectID, func(ctx context.Context) (err error) {
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

// actionOverhead is an upper limit for the size of an action in a response without its names.
const actionOverhead = 64
