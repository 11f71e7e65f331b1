// SPDX-License-Identifier: Apache-2.0

// Package push serves the push webhooks of Git providers at the gateway's public port. Calls are
// not authenticated. So a call can only request a poll of the project's repository, and a project
// has at most one such request at a time. The manager performs the poll.
package push

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
)

// Options configure a Handler.
type Options struct {
	Store store.PollRequests
	// Logger receives the log; nil means slog.Default.
	Logger *slog.Logger
	// TrustedProxies has the proxies whose X-Forwarded-For is used.
	TrustedProxies httpserver.Proxies
	// Metrics counts the calls; nil disables the metrics.
	Metrics *metrics.Gateway
	// Now is the clock for the log of rejections; nil means time.Now.
	Now func() time.Time
}

// Handler serves /git/{project_id}.
type Handler struct {
	http.Handler
	opts     Options
	lookup   *projectLookup
	bodies   *quota.SlotSet
	refusals *httpserver.Refusals
}

// New returns a Handler. It serves requests while Run runs.
func New(opts Options) *Handler {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewGateway(nil, nil)
	}
	h := &Handler{
		opts: opts, lookup: newProjectLookup(opts.Store), bodies: quota.NewSlotSet(maxBodies, projectShare),
		refusals: httpserver.NewRefusals("push webhooks of unknown projects were rejected", opts.Logger, opts.Now),
	}
	router := chi.NewRouter()
	router.HandleFunc(webhookapi.PushPath, h.serveHTTP)
	router.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) { h.writeProblem(w, r, errMethod) }) // a method that HTTP does not define
	router.NotFound(func(w http.ResponseWriter, r *http.Request) { h.writeProblem(w, r, errUnknown) })
	h.Handler = router
	return h
}

// Run queries the store until ctx ends. Stop it after the server, so that no request waits forever.
func (h *Handler) Run(ctx context.Context) error {
	var learning sync.WaitGroup
	defer learning.Wait()
	learning.Go(func() { h.lookup.refreshProjects(ctx, h.opts.Logger) })
	h.lookup.runLoop(ctx)
	return nil
}

func (h *Handler) serveHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := h.receive(w, r)
	var problem httpserver.Problem
	switch {
	case err == nil && answer.Status == webhookapi.PushIgnored:
		h.opts.Metrics.Pushed(metrics.PushIgnored)
		httpserver.WriteJSON(w, http.StatusOK, answer)
	case err == nil:
		h.opts.Metrics.Pushed(metrics.PushAccepted)
		httpserver.WriteJSON(w, http.StatusAccepted, answer)
	case errors.As(err, &problem):
		h.writeProblem(w, r, problem)
	default: // also if the request ended meanwhile
		if r.Context().Err() == nil {
			h.opts.Logger.Error("accepting a push webhook", "project", chi.URLParam(r, "project_id"), "error", err)
		}
		h.writeProblem(w, r, errStore)
	}
}

// receive waits until the poll request is committed. Then it reads the body if a slot is free. The
// body is not used, so a call without a slot gets its response at once.
func (h *Handler) receive(w http.ResponseWriter, r *http.Request) (webhookapi.Pushed, error) {
	if r.Method != http.MethodPost {
		return webhookapi.Pushed{}, errMethod
	}
	project, err := uuid.Parse(chi.URLParam(r, "project_id"))
	if err != nil {
		return webhookapi.Pushed{}, errUnknown
	}
	answer := webhookapi.Pushed{Status: webhookapi.PushIgnored}
	if isPush(r.Header) {
		answer.Status = webhookapi.PushAccepted
	}
	there, err := h.lookup.lookUpProject(r.Context(), project, answer.Status == webhookapi.PushAccepted)
	switch {
	case err != nil:
		return answer, err
	case !there:
		return answer, errUnknown
	}
	if h.bodies.Take(project, 1) != nil {
		return answer, nil // the server reads the start of the body and closes the connection
	}
	defer h.bodies.Give(project, 1)
	return answer, discard(w, r)
}

// discard reads the body and ignores it, because the sender expects that it is read.
func discard(w http.ResponseWriter, r *http.Request) error {
	_, err := io.Copy(io.Discard, httpserver.Paced(w, http.MaxBytesReader(w, r.Body, maxBody), pace))
	switch {
	case err == nil:
		httpserver.BodyRead(w)
		return nil
	case errors.As(err, new(*http.MaxBytesError)):
		return errLarge
	case httpserver.TooSlow(err):
		return errSlow
	}
	return errUnreadable
}

// writeProblem writes an error response. It counts calls for projects that do not exist by client
// address.
func (h *Handler) writeProblem(w http.ResponseWriter, r *http.Request, p httpserver.Problem) {
	if p.Status == http.StatusNotFound {
		h.refusals.Add(h.opts.TrustedProxies.Client(r), string(p.Code))
	}
	h.opts.Metrics.Pushed(metrics.PushRefused)
	httpserver.WriteProblem(w, p)
}

// events has the headers that name an event, with the value for a push to a branch. Forgejo also
// sends the headers of Gitea and GitHub, and Gitea also sends that of GitHub. The first header in a
// request counts.
var events = []struct{ header, push string }{
	{"X-Forgejo-Event", "push"},
	{"X-Gitea-Event", "push"},
	{"X-Gitlab-Event", "Push Hook"},
	{"X-GitHub-Event", "push"},
}

// isPush reports whether a request is about a push. A request without an event header counts as a
// push, because other clients, such as the hook of a Git server, only send it for pushes.
func isPush(header http.Header) bool {
	for _, e := range events {
		if said := header.Values(e.header); len(said) > 0 {
			return said[0] == e.push
		}
	}
	return true
}
