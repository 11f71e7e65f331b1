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

// Store is the part of the store that the ingress needs.
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
	// Logger receives the log; nil means slog.Default.
	Logger *slog.Logger
	// TrustedProxies has the proxies whose X-Forwarded-For is used.
	TrustedProxies httpserver.Proxies
	// Metrics counts accepted and rejected requests; nil disables the metrics.
	Metrics *metrics.Gateway
	// Keys has the secrets that providers sign with. Without Keys signed requests get a temporary
	// error.
	Keys Keys
	// Now is the clock for the log of rejections, the age of signatures and the wait for a commit;
	// nil means time.Now.
	Now func() time.Time
	// ReviewBudget limits the bytes of an event's files that agents get, see store.ReviewFiles; 0
	// means store.DefaultReviewBudget.
	ReviewBudget int64
	// Runners has the runners that wait at this process. It can be nil.
	Runners *handoff.Runners
	// WithTimeout limits the wait of a sync webhook; nil means context.WithTimeout.
	WithTimeout func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc)
}

// Handler serves /hooks/{project_id}/{connector_id}.
type Handler struct {
	http.Handler
	opts      Options
	routes    *routeCache
	committer *committer
	waiters   *runWaiters
	incoming  *quota.SlotSet // in bytes, for the start of bodies
	bodies    *quota.SlotSet // for large bodies that arrive
	spooled   *quota.SlotSet // for large bodies before their signature is verified
	callers   *quota.SlotSet // for waiting sync callers
	outputs   *outputCache
	loads     *loadCache
	wrongs    *wrongSecrets
	refusals  *httpserver.Refusals
	// rejections has the requests that known connectors rejected, refusals counts unknown callers.
	rejections *rejectionLog
}

// New returns a Handler. It serves requests while Run runs.
func New(opts Options) *Handler {
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewGateway(nil, nil)
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
		opts: opts, routes: newRouteCache(opts.Store, opts.Logger), committer: newCommitter(opts.Store, opts.Runners, opts.Metrics, opts.Now),
		waiters: newRunWaiters(opts.Store, opts.Logger), incoming: quota.NewSlotSet(maxIncoming, projectShare), bodies: quota.NewSlotSet(maxLargeBodies, projectShare),
		spooled: quota.NewSlotSet(maxSpooled, projectShare), callers: quota.NewSlotSet(maxCallers, projectShare), outputs: newOutputCache(maxOutputs),
		loads:      newLoadCache(opts.Store, opts.Logger, opts.Now),
		wrongs:     newWrongSecrets(opts.Now),
		refusals:   httpserver.NewRefusals("webhook requests from unknown callers were rejected", opts.Logger, opts.Now),
		rejections: newRejectionLog(opts.Store, opts.Metrics, opts.Logger, opts.Now),
	}
	router := chi.NewRouter()
	router.HandleFunc("/hooks/{project_id}/{connector_id}", h.serveWebhook)
	router.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) { h.writeProblem(w, r, otherMethod) }) // a method that HTTP does not define
	router.NotFound(func(w http.ResponseWriter, r *http.Request) { h.writeProblem(w, r, notFound) })
	h.Handler = router
	return h
}

// Run commits requests and follows the store's hints until ctx ends. Stop it after the server, so
// that no request waits forever.
func (h *Handler) Run(ctx context.Context) error {
	routeHints, stopRoutes := h.opts.Store.Subscribe(store.TopicRoute)
	doneHints, stopDone := h.opts.Store.Subscribe(store.TopicDone)
	var group sync.WaitGroup
	group.Go(func() { h.routes.followHints(routeHints) })
	group.Go(func() { h.routes.refreshKnown(ctx) })
	group.Go(func() { h.waiters.followHints(doneHints) })
	group.Go(func() { h.waiters.runLoop(ctx) })
	group.Go(func() { h.loads.runLoop(ctx) })
	group.Go(func() { h.rejections.runLoop(ctx) })
	h.committer.runLoop(ctx)
	stopRoutes()
	stopDone()
	group.Wait()
	return nil
}

// Ready reports whether the IDs of all connectors were read once. Before that, made-up IDs could
// delay requests for existing connectors. Ready stays true.
func (h *Handler) Ready() bool { return h.routes.learned.Load() }

func (h *Handler) serveWebhook(w http.ResponseWriter, r *http.Request) {
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
		h.opts.Logger.Error("handling a webhook", "connector", chi.URLParam(r, "connector_id"), "error", err)
		panic(http.ErrAbortHandler) // the way to abort a response in net/http
	case errors.As(err, &problem):
		h.writeProblem(w, r, problem)
	default: // also if the request ended meanwhile: the client may still be connected while the gateway stops
		code := metrics.RequestEnded
		if r.Context().Err() == nil {
			code = httpserver.CodeStoreUnavailable
			h.opts.Logger.Error("accepting a webhook", "connector", chi.URLParam(r, "connector_id"), "error", err)
		}
		problem = httpserver.NewProblem(http.StatusServiceUnavailable, httpserver.CodeStoreUnavailable,
			"The request may not have been recorded. Send it again, with the same Idempotency-Key if it had one.")
		problem.RetryAfter = retryAfter
		h.opts.Metrics.Refused(code)
		if code != metrics.RequestEnded {
			h.recordRejection(r, problem)
		}
		httpserver.WriteProblem(w, problem)
	}
}

// receive checks and commits a request, and writes the response. An error that is no Problem means
// that the store did not answer.
func (h *Handler) receive(w http.ResponseWriter, r *http.Request) error {
	key, err := connectorOf(r)
	if err != nil {
		return notFound
	}
	route, err := h.admittedRoute(r.Context(), key, h.factsOf(r))
	if err != nil {
		return err
	}
	req := request{class: store.ClassInbound, facts: h.factsOf(r)}
	if route.kind.Answers() && !prefersAsync(r) {
		req.class = store.ClassSync
	}
	full := h.checkCapacity(r, route, req.class)
	if full != nil && !canBeHandshake(route, r) {
		return full
	}
	req.signed, route, err = h.verified(w, r, route, &req.facts)
	defer req.signed.closeFile()
	switch {
	case err != nil:
		return err
	case full != nil:
		return full
	}
	if req.run, err = uuid.NewV7(); err != nil {
		return fmt.Errorf("generating an ID: %w", err)
	}
	if req.class == store.ClassSync {
		return h.receiveSync(w, r, route, req)
	}
	route, admitted, err := h.recordRequest(w, r, route, req)
	switch {
	case err != nil:
		return err
	case route.kind.Answers():
		w.Header().Set("Preference-Applied", "respond-async")
		answerInbound(w, http.StatusAccepted, admitted)
	default:
		answerInbound(w, http.StatusOK, admitted)
	}
	return nil
}

// receiveSync handles a request whose caller waits for the results.
func (h *Handler) receiveSync(w http.ResponseWriter, r *http.Request, route *webhook, req request) error {
	project := route.Connector.ProjectID
	if err := quota.Refusal(h.callers.Take(project, 1), errManyCallers, errAllCallers); err != nil {
		return err
	}
	defer h.callers.Give(project, 1)
	end := h.waiters.watchRun(store.Key{ProjectID: project, ID: req.run})
	defer h.waiters.stopWatch(end)
	route, admitted, err := h.recordRequest(w, r, route, req)
	if err != nil {
		return err
	}
	return h.answerSync(w, r, route, admitted, end)
}

// connectorOf returns the connector in the path.
func connectorOf(r *http.Request) (key store.Key, err error) {
	if key.ProjectID, err = uuid.Parse(chi.URLParam(r, "project_id")); err != nil {
		return key, err
	}
	key.ID, err = uuid.Parse(chi.URLParam(r, "connector_id"))
	return key, err
}

var (
	errKeyReused = httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeKeyReused,
		"This Idempotency-Key was used for another body within the last 24 hours. Use a new key for a new request.")
	errKeyExpired = temporaryProblem(http.StatusServiceUnavailable, httpserver.CodeKeyExpired,
		"The Idempotency-Key of an earlier request expired while this request arrived. Send the request again.")
)

// recordRequest reads the body of an admitted request and commits it as a connector run.
func (h *Handler) recordRequest(w http.ResponseWriter, r *http.Request, route *webhook, req request) (*webhook, admission, error) {
	project := route.Connector.ProjectID
	in, err := h.readInput(w, r, route, req.signed)
	req.signed.closeFile() // it is no longer needed, however long the caller waits
	req.facts.read = true
	kept := false
	defer func() {
		if kept {
			return
		}
		for _, blob := range in.writtenBlobs() {
			h.dropBlob(r.Context(), store.Key{ProjectID: project, ID: blob})
		}
	}()
	if err != nil {
		return route, admission{}, err
	}
	req.input, req.headers = in, contextHeaders(route, r)
	begin := time.Now() // after the caller has sent its body
	route, a, err := h.commitRequest(r.Context(), route, req)
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

// filesOf returns the files of an earlier request for the response to a duplicate.
func (h *Handler) filesOf(ctx context.Context, connectorRun store.Key) ([]store.File, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	files, err := h.opts.Store.EventFiles(ctx, connectorRun)
	if err != nil {
		return nil, fmt.Errorf("reading the files of an earlier request: %w", err)
	}
	return files, nil
}

// checkCapacity rejects requests without free capacity, except duplicates of earlier requests, which get the
// earlier response.
func (h *Handler) checkCapacity(r *http.Request, c *webhook, class store.Class) error {
	full := h.loads.quotaError(c.Connector.ProjectID, c.Connector.EnvironmentID, class)
	if full == nil {
		return nil
	}
	if key, wrong := requestKeyOf(c, r, nil); wrong == nil && key.name != "" {
		if known, err := h.isKnownKey(r.Context(), c.Connector.Key(), key); err != nil || known {
			return err
		}
	}
	return *full
}

// admittedRoute returns the route of a request that passed all checks except that of the body. A
// rejection by the cached route is checked again with a fresh one.
func (h *Handler) admittedRoute(ctx context.Context, key store.Key, f requestFacts) (*webhook, error) {
	if route, ok := h.routes.cachedRoute(key); ok && admitRequest(route, f) == nil {
		return route, nil
	}
	return h.admittedFreshRoute(ctx, key, f)
}

func (h *Handler) admittedFreshRoute(ctx context.Context, key store.Key, f requestFacts) (*webhook, error) {
	route, err := h.routes.loadRoute(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, notFound
	case err != nil:
		return nil, err
	}
	if p := admitRequest(route, f); p != nil {
		return nil, *p
	}
	return route, nil
}

// request is the data to commit for a request, independent of its route.
type request struct {
	run   uuid.UUID // of the connector run
	class store.Class
	facts requestFacts
	// signed is the verified body, if callers sign it.
	signed *signedBody
	input  input
	// headers has the headers that the runs see.
	headers map[string]string
}

// commitRequest stores a request. It retries with the current route if the route changed meanwhile. It
// returns the route that was committed.
func (h *Handler) commitRequest(ctx context.Context, route *webhook, req request) (*webhook, admission, error) {
	for until := h.opts.Now().Add(routeRetryTime); ; {
		event, err := newEvent(route, req)
		if err != nil {
			return route, admission{}, err
		}
		admitted, err := h.committer.commitEvent(ctx, event)
		if err != nil || admitted.Verdict != store.Outdated {
			return route, admission{Admission: admitted, files: event.Files, runs: event.Runs}, err
		}
		if !h.opts.Now().Before(until) {
			return route, admission{}, errors.New("the connector changes too often to record the request")
		}
		if route, err = h.admittedFreshRoute(ctx, route.Connector.Key(), req.facts); err != nil {
			return route, admission{}, err
		}
	}
}
