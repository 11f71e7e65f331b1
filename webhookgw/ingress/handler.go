// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/agentplatform/agentplatform/webhookgw/handoff"
)

// Store is what the ingress needs of the store.
type Store interface {
	store.Routes
	store.Ingest
	store.Blobs
	EventFiles(ctx context.Context, connectorRun store.Key) ([]store.File, error)
	store.Notifier
	store.Loads
	Outcome(ctx context.Context, connectorRun store.Key) (store.Outcome, error)
	Run(ctx context.Context, key store.Key) (store.Run, error)
	Ended(ctx context.Context, connectorRuns []store.Key) ([]store.Key, error)
	RecordRejections(ctx context.Context, rejected []store.Rejected) error
}

// Options configure a Handler.
type Options struct {
	Store Store
	// Logger is where the handler logs; nil means slog.Default.
	Logger *slog.Logger
	// TrustedProxies may say in X-Forwarded-For where a request came from.
	TrustedProxies httpserver.Proxies
	// Metrics count what is accepted and refused; nil counts nowhere.
	Metrics *metrics.Gateway
	// Keys are for the secrets that providers sign with; nil where there are none, and
	// such requests are refused for a while.
	Keys Keys
	// Now is the clock by which refusals are told, signatures grow old, and how long
	// requests wait for their commit; nil means time.Now.
	Now func() time.Time
	// ReviewBudget is how many bytes of an event's files agents are given: see
	// store.ReviewFiles; 0 means store.DefaultReviewBudget.
	ReviewBudget int64
	// Runners are those that wait for work at this process; nil where none do.
	Runners *handoff.Runners
	// WithTimeout bounds how long a sync webhook waits; nil means context.WithTimeout.
	WithTimeout func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc)
}

// Handler serves /hooks/{project_id}/{connector_id}.
type Handler struct {
	http.Handler
	opts      Options
	routes    *routes
	committer *committer
	waiters   *waiters
	incoming  *quota.Places // in bytes, for the beginnings of bodies
	bodies    *quota.Places // for large ones that come in
	spooled   *quota.Places // for large ones of which the signature is judged first
	callers   *quota.Places // for those who wait for their answer
	outputs   *outputs
	loads     *loads
	wrongs    *wrongs
	refusals  *httpserver.Refusals
	// rejections are of connectors that are known, refusals of callers that are not.
	rejections *rejections
}

// New returns a handler; it answers once Run runs.
func New(opts Options) *Handler {
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewGateway(nil)
	}
	if opts.WithTimeout == nil {
		opts.WithTimeout = context.WithTimeout
	}
	if opts.ReviewBudget == 0 {
		opts.ReviewBudget = store.DefaultReviewBudget
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	h := &Handler{
		opts: opts, routes: newRoutes(opts.Store, opts.Logger), committer: newCommitter(opts.Store, opts.Runners, opts.Metrics, opts.Now),
		waiters: newWaiters(opts.Store, opts.Logger), incoming: quota.NewPlaces(maxIncoming, projectShare), bodies: quota.NewPlaces(maxLargeBodies, projectShare),
		spooled: quota.NewPlaces(maxSpooled, projectShare), callers: quota.NewPlaces(maxCallers, projectShare), outputs: newOutputs(maxOutputs),
		loads:      newLoads(opts.Store, opts.Logger, opts.Now),
		wrongs:     newWrongs(opts.Now),
		refusals:   httpserver.NewRefusals("webhook requests that nobody knows were refused", opts.Logger, opts.Now),
		rejections: newRejections(opts.Store, opts.Metrics, opts.Logger, opts.Now),
	}
	router := chi.NewRouter()
	router.HandleFunc("/hooks/{project_id}/{connector_id}", h.serve)
	router.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) { h.refuse(w, r, otherMethod) }) // one that HTTP does not know
	router.NotFound(func(w http.ResponseWriter, r *http.Request) { h.refuse(w, r, notFound) })
	h.Handler = router
	return h
}

// Run commits requests and follows the store's hints until ctx ends. It is to
// be stopped after the server, so that no request waits in vain.
func (h *Handler) Run(ctx context.Context) error {
	routeHints, stopRoutes := h.opts.Store.Subscribe(store.TopicRoute)
	doneHints, stopDone := h.opts.Store.Subscribe(store.TopicDone)
	var group sync.WaitGroup
	group.Go(func() { h.routes.follow(routeHints) })
	group.Go(func() { h.routes.run(ctx) })
	group.Go(func() { h.waiters.follow(doneHints) })
	group.Go(func() { h.waiters.run(ctx) })
	group.Go(func() { h.loads.run(ctx) })
	group.Go(func() { h.rejections.run(ctx) })
	h.committer.run(ctx)
	stopRoutes()
	stopDone()
	group.Wait()
	return nil
}

// Ready says whether the ids of all connectors are known: before that, those that
// strangers make up stand in the others' way. Once they are, they stay so.
func (h *Handler) Ready() bool { return h.routes.learned.Load() }

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	err := h.receive(w, r)
	var (
		problem httpserver.Problem
		asked   challenge
	)
	switch {
	case err == nil:
	case errors.As(err, &asked):
		answerHandshake(w, asked)
	case errors.Is(err, errBroken):
		h.opts.Logger.Error("answering a webhook", "connector", chi.URLParam(r, "connector_id"), "error", err)
		panic(http.ErrAbortHandler) // as net/http wants it
	case errors.As(err, &problem):
		h.refuse(w, r, problem)
	default: // also when the request ended meanwhile: its client may be there, and the gateway stopping
		code := metrics.RequestEnded
		if r.Context().Err() == nil {
			code = httpserver.CodeStoreUnavailable
			h.opts.Logger.Error("taking a webhook", "connector", chi.URLParam(r, "connector_id"), "error", err)
		}
		problem = httpserver.NewProblem(http.StatusServiceUnavailable, httpserver.CodeStoreUnavailable,
			"The request could not be recorded, or it is not known whether it was. Send it again, with the same Idempotency-Key if it had one.")
		problem.RetryAfter = retryAfter
		h.opts.Metrics.Refused(code)
		if code != metrics.RequestEnded {
			h.reject(r, problem)
		}
		httpserver.WriteProblem(w, problem)
	}
}

// receive takes a request through all checks to its commit and answers it. An
// error that is no Problem means that the store did not answer.
func (h *Handler) receive(w http.ResponseWriter, r *http.Request) error {
	key, err := connectorOf(r)
	if err != nil {
		return notFound
	}
	route, err := h.admitted(r.Context(), key, h.factsOf(r))
	if err != nil {
		return err
	}
	req := request{class: store.ClassInbound, facts: h.factsOf(r)}
	if route.Connector.Mode == modeSync && !prefersAsync(r) {
		req.class = store.ClassSync
	}
	full := h.room(r, route.Connector, req.class)
	if full != nil && !mayShake(route.Connector, r) {
		return full
	}
	req.signed, route, err = h.verified(w, r, route, &req.facts)
	defer req.signed.close()
	switch {
	case err != nil:
		return err
	case full != nil:
		return full
	}
	if req.run, err = uuid.NewV7(); err != nil {
		return fmt.Errorf("making an id: %w", err)
	}
	if req.class == store.ClassSync {
		return h.receiveSync(w, r, route, req)
	}
	route, admitted, err := h.record(w, r, route, req)
	switch {
	case err != nil:
		return err
	case route.Connector.Mode == modeSync:
		w.Header().Set("Preference-Applied", "respond-async")
		answerInbound(w, http.StatusAccepted, admitted)
	default:
		answerInbound(w, http.StatusOK, admitted)
	}
	return nil
}

// receiveSync takes a request whose caller waits for the answer.
func (h *Handler) receiveSync(w http.ResponseWriter, r *http.Request, route store.Route, req request) error {
	project := route.Connector.ProjectID
	if err := quota.Refusal(h.callers.Take(project, 1), errManyCallers, errAllCallers); err != nil {
		return err
	}
	defer h.callers.Give(project, 1)
	end := h.waiters.watch(store.Key{ProjectID: project, ID: req.run})
	defer h.waiters.stop(end)
	route, admitted, err := h.record(w, r, route, req)
	if err != nil {
		return err
	}
	return h.answerSync(w, r, route, admitted, end)
}

// connectorOf is the connector that the path names.
func connectorOf(r *http.Request) (key store.Key, err error) {
	if key.ProjectID, err = uuid.Parse(chi.URLParam(r, "project_id")); err != nil {
		return key, err
	}
	key.ID, err = uuid.Parse(chi.URLParam(r, "connector_id"))
	return key, err
}

var (
	errKeyReused = httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeKeyReused,
		"This Idempotency-Key was used within 24 hours for another body; use a new key for a new request.")
	errKeyExpired = later(http.StatusServiceUnavailable, httpserver.CodeKeyExpired,
		"The key of an earlier request was forgotten while this one came in. Send the request again.")
)

// record reads the body of an admitted request and commits it as a connector run.
func (h *Handler) record(w http.ResponseWriter, r *http.Request, route store.Route, req request) (store.Route, admission, error) {
	in, err := h.readInput(w, r, route.Connector, req.signed)
	req.signed.close() // which nobody needs any more, however long the caller waits
	req.facts.read = true
	kept := false
	defer func() {
		if kept {
			return
		}
		for _, blob := range in.blobs() {
			h.drop(r.Context(), store.Key{ProjectID: route.Connector.ProjectID, ID: blob})
		}
	}()
	if err != nil {
		return route, admission{}, err
	}
	req.input, req.headers = in, contextHeaders(route.Connector, r)
	begin := time.Now() // how fast a caller sends its body is not ours
	route, a, err := h.commit(r.Context(), route, req)
	kept = err == nil && a.Verdict == store.Accepted
	switch {
	case err != nil:
		return route, a, err
	case a.Verdict == store.KeyReused:
		return route, a, errKeyReused
	case a.Verdict == store.Expired:
		return route, a, errKeyExpired
	case a.Verdict == store.Repeated:
		if a.files, err = h.filesOf(r.Context(), store.Key{ProjectID: route.Connector.ProjectID, ID: a.ConnectorRunID}); err != nil {
			return route, a, err
		}
		w.Header().Set(webhookapi.ReplayedHeader, "true")
	}
	h.opts.Metrics.Accepted(route.Connector.Mode, a.Verdict == store.Repeated, time.Since(begin))
	return route, a, nil
}

// filesOf are those of an earlier request, of which a repetition is answered the same.
func (h *Handler) filesOf(ctx context.Context, connectorRun store.Key) ([]store.File, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	files, err := h.opts.Store.EventFiles(ctx, connectorRun)
	if err != nil {
		return nil, fmt.Errorf("reading the files of an earlier request: %w", err)
	}
	return files, nil
}

// room refuses what there is no room for, but a repetition of what was decided before:
// that has its answer.
func (h *Handler) room(r *http.Request, c store.Connector, class store.Class) error {
	full := h.loads.refusal(c.ProjectID, c.EnvironmentID, class)
	if full == nil {
		return nil
	}
	if key, wrong := keyFor(c, r, nil); wrong == nil && key.name != "" {
		if known, err := h.known(r.Context(), c.Key(), key); err != nil || known {
			return err
		}
	}
	return *full
}

// admitted returns the route of a request that all checks but that of the body
// let in. What the cached route refuses is judged again by a fresh one.
func (h *Handler) admitted(ctx context.Context, key store.Key, f facts) (store.Route, error) {
	if route, ok := h.routes.peek(key); ok && admit(route, f) == nil {
		return route, nil
	}
	return h.admittedFresh(ctx, key, f)
}

func (h *Handler) admittedFresh(ctx context.Context, key store.Key, f facts) (store.Route, error) {
	route, err := h.routes.load(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Route{}, notFound
	case err != nil:
		return store.Route{}, err
	}
	if p := admit(route, f); p != nil {
		return store.Route{}, *p
	}
	return route, nil
}

// request is what is committed for a request, whatever its route becomes.
type request struct {
	run   uuid.UUID // the connector run's
	class store.Class
	facts facts
	// signed is the body where callers sign it: it was judged.
	signed *signed
	input  input
	// headers are those that the runs see.
	headers map[string]string
}

// commit stores a request, again with the route of that moment whenever it has
// changed in between. The route returned is the one that was committed.
func (h *Handler) commit(ctx context.Context, route store.Route, req request) (store.Route, admission, error) {
	for until := h.opts.Now().Add(changesTime); ; {
		event, err := newEvent(route, req)
		if err != nil {
			return route, admission{}, err
		}
		admitted, err := h.committer.commit(ctx, event)
		if err != nil || admitted.Verdict != store.Outdated {
			return route, admission{Admission: admitted, files: event.Files, runs: event.Runs}, err
		}
		if !h.opts.Now().Before(until) {
			return route, admission{}, errors.New("the connector changes faster than a request can be recorded")
		}
		if route, err = h.admittedFresh(ctx, route.Connector.Key(), req.facts); err != nil {
			return route, admission{}, err
		}
	}
}
