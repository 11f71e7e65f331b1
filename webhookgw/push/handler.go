// SPDX-License-Identifier: Apache-2.0

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
	Store store.Looks
	// Logger is where the handler logs; nil means slog.Default.
	Logger *slog.Logger
	// TrustedProxies may say in X-Forwarded-For where a request came from.
	TrustedProxies httpserver.Proxies
	// Metrics count what comes; nil counts nowhere.
	Metrics *metrics.Gateway
	// Now is the clock by which refusals are told; nil means time.Now.
	Now func() time.Time
}

// Handler serves /git/{project_id}.
type Handler struct {
	http.Handler
	opts     Options
	asker    *asker
	bodies   *quota.Places
	refusals *httpserver.Refusals
}

// New returns a handler; it answers once Run runs.
func New(opts Options) *Handler {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewGateway(nil)
	}
	h := &Handler{
		opts: opts, asker: newAsker(opts.Store), bodies: quota.NewPlaces(maxBodies, projectShare),
		refusals: httpserver.NewRefusals("push webhooks of projects that nobody knows were refused", opts.Logger, opts.Now),
	}
	router := chi.NewRouter()
	router.HandleFunc(webhookapi.PushPath, h.serve)
	router.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) { h.refuse(w, r, errMethod) }) // one that HTTP does not know
	router.NotFound(func(w http.ResponseWriter, r *http.Request) { h.refuse(w, r, errUnknown) })
	h.Handler = router
	return h
}

// Run asks the store until ctx ends. It is to be stopped after the server, so that no
// request waits in vain.
func (h *Handler) Run(ctx context.Context) error {
	var learning sync.WaitGroup
	defer learning.Wait()
	learning.Go(func() { h.asker.learn(ctx, h.opts.Logger) })
	h.asker.run(ctx)
	return nil
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
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
		h.refuse(w, r, problem)
	default: // also when the request ended meanwhile
		if r.Context().Err() == nil {
			h.opts.Logger.Error("taking a push webhook", "project", chi.URLParam(r, "project_id"), "error", err)
		}
		h.refuse(w, r, errStore)
	}
}

// receive takes a call to its commit, and then reads its body if there is a slot for it. The body
// means nothing, so a call without a slot gets its answer at once.
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
	there, err := h.asker.ask(r.Context(), project, answer.Status == webhookapi.PushAccepted)
	switch {
	case err != nil:
		return answer, err
	case !there:
		return answer, errUnknown
	}
	if h.bodies.Take(project, 1) != nil {
		return answer, nil // the server reads the beginning of the body and closes the connection
	}
	defer h.bodies.Give(project, 1)
	return answer, discard(w, r)
}

// discard reads a body and throws it away, because its sender expects that it is read.
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

// refuse answers with a problem. Callers who name a project that there is not are counted
// by address.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, p httpserver.Problem) {
	if p.Status == http.StatusNotFound {
		h.refusals.Add(h.opts.TrustedProxies.Client(r), string(p.Code))
	}
	h.opts.Metrics.Pushed(metrics.PushRefused)
	httpserver.WriteProblem(w, p)
}
