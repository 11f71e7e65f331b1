// SPDX-License-Identifier: Apache-2.0

// Package dispatch serves the internal port for runners and builds. Package internal/dispatchapi
// has its routes. The token of a request belongs to one environment or deployment. A request for
// anything else finds nothing.
package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/cache"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/handoff"
)

// Limits of the internal port.
const (
	// maxBundle is the size limit of a bundle in bytes.
	maxBundle = 25 << 20
	// maxWait is how long a claim can wait for a run.
	maxWait = 30 * time.Second
	// maxClaim limits the runs of one claim.
	maxClaim = store.MaxClaim
	// maxDelay limits how long a released run can be delayed.
	maxDelay = time.Minute
	// reportEvery is the minimum interval between queries for a runner without free slots.
	reportEvery = 500 * time.Millisecond
	// maxInline limits the bytes of inputs in the response to a claim, and maxInlineJournals the
	// bytes of journals. journalPage is the number of entries per page of another journal.
	maxInline         = 1 << 20
	maxInlineJournals = 256 << 10
	journalPage       = store.MaxEntries
	// runOverhead is an upper limit for the size of a run without input and journal. It includes
	// headers.
	runOverhead = 2<<10 + store.MaxContextHeaders*(store.MaxHeaderName+store.MaxHeaderValue)
	// releaseTimeout limits the release of runs after the runner disconnected.
	releaseTimeout = 5 * time.Second
)

// Store is the part of the store that the internal port needs.
type Store interface {
	store.Dispatch
	store.SavedFiles
	store.Sends
	store.Builds
	store.Bundles
	// OpenUpload is the method of store.Uploads.
	OpenUpload(ctx context.Context, deployment store.Key) (io.ReadCloser, error)
	store.Tokens
	store.Notifier
	// RecordDrift is the method of store.Drifts.
	RecordDrift(ctx context.Context, environment store.Key, reports []store.DriftReport) error
	Connections() int
	Environment(ctx context.Context, key store.Key) (store.Environment, error)
	RunEnvironments(ctx context.Context, project uuid.UUID, runs []uuid.UUID) (map[uuid.UUID]uuid.UUID, error)
	RunFiles(ctx context.Context, run store.Key) ([]store.File, error)
	OpenRunFile(ctx context.Context, run store.Key, number int) (store.File, io.ReadCloser, error)
	RunInput(ctx context.Context, key store.Key) (contentType string, body io.ReadCloser, err error)
	JournalAfter(ctx context.Context, run store.Key, sequence int64, limit int) ([]store.JournalEntry, error)
}

// Options configure a Handler.
type Options struct {
	Store  Store
	Logger *slog.Logger
	// Metrics counts requests, claims and ends; nil disables the metrics.
	Metrics *metrics.Gateway
	// Runners has the waiting runners, for the ingress of this process. It can be nil.
	Runners *handoff.Runners
}

// Limits of the caches.
const (
	// cacheTTL is how long a store response is cached. For this time a replaced build token still
	// works, and a busy runner may miss a new bundle. A runner's token is cached until a hint
	// reports a change, or for tokenFor.
	cacheTTL  = time.Second
	maxRecent = 10_000
	// maxOwners is more than the number of runs that can be in progress.
	maxOwners = 100_000
	// absentTTL is how long a missing run or token is cached.
	absentTTL = time.Second
)

// Handler serves the internal port.
type Handler struct {
	http.Handler
	opts        Options
	wakeups     *wakeups
	idleRunners *idleRunners
	ends        *endCommitter
	appends     *appendQueue
	drift       *driftRecorder
	// inFlight limits the memory of requests, claims that of claim responses, streams that of
	// streams, and saves that of files that runs save.
	inFlight               *quota.SlotSet
	claims, streams, saves *quota.Budget
	// calls is the queue for store calls, and beats that for heartbeats.
	calls, beats *quota.Budget
	// owners caches the environments of runs, which never change. So a call about another
	// environment's run is rejected without a store query.
	owners *cache.Cache[store.Key, uuid.UUID]
	// absent caches runs that do not exist.
	absent *cache.Cache[store.Key, struct{}]
	// ended has the claims that runners ended recently.
	ended *cache.Cache[store.Lease, struct{}]
	// tokens and environments are cached, so that not each call of a busy runner queries the store.
	tokens       *tokenCache
	actions      *toolCache
	environments *cache.Cache[store.Key, store.Environment]
}

// New returns a Handler. Hints wake long polls while Run runs.
func New(opts Options) *Handler {
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewGateway(nil, nil)
	}
	if opts.Runners == nil {
		opts.Runners = handoff.NewRunners()
	}
	wakeups := newWakeups()
	h := &Handler{
		opts: opts, wakeups: wakeups, idleRunners: newIdleRunners(), ends: newEndCommitter(opts.Store), drift: newDriftRecorder(),
		inFlight: quota.NewSlotSet(maxInFlight, projectShare), claims: newBudget(maxClaimBytes), streams: newBudget(maxStreamBytes), saves: newBudget(maxSaveBytes),
		calls: newCalls(opts.Store.Connections(), callParts, queueTimeout), beats: newCalls(opts.Store.Connections(), heartbeatParts, heartbeatQueueTimeout),
		tokens:       newTokenCache(opts.Store, wakeups),
		actions:      newToolCache(),
		ended:        cache.New[store.Lease, struct{}](maxOwners, time.Minute, nil),
		owners:       cache.New[store.Key, uuid.UUID](maxOwners, 0, nil),
		absent:       cache.New[store.Key, struct{}](maxRecent, absentTTL, nil),
		environments: cache.New[store.Key, store.Environment](maxRecent, cacheTTL, nil),
	}
	h.appends = newAppendQueue(h.writeAppends)
	router := chi.NewRouter()
	router.Use(opts.Metrics.Dispatch)
	router.Route("/v1", func(r chi.Router) {
		r.Post("/claim", h.requireToken(store.TokenRunner, h.claimRuns))
		r.Post("/heartbeat", h.requireToken(store.TokenRunner, h.heartbeat))
		r.Post("/journals", h.requireToken(store.TokenRunner, h.appendJournals))
		r.Post("/runs/{id}/journal", h.requireToken(store.TokenRunner, h.journal))
		r.Get("/runs/{id}/journal", h.requireToken(store.TokenRunner, h.withStream(journalStream, h.readJournal)))
		r.Post("/runs/{id}/complete", h.requireToken(store.TokenRunner, h.complete))
		r.Post("/runs/{id}/release", h.requireToken(store.TokenRunner, h.release))
		r.Post("/runs/{id}/sends", h.requireToken(store.TokenRunner, h.sendPayload))
		r.Get("/runs/{id}/input", h.requireToken(store.TokenRunner, h.withStream(blobStream, h.streamInput)))
		r.Get("/runs/{id}/files", h.requireToken(store.TokenRunner, h.listFiles))
		r.Get("/runs/{id}/files/{number}", h.requireToken(store.TokenRunner, h.withStream(blobStream, h.streamFile)))
		r.Put("/runs/{id}/saved", h.requireToken(store.TokenRunner, h.saveFile))
		r.Get("/runs/{id}/saved/{file}", h.requireToken(store.TokenRunner, h.withStream(blobStream, h.streamSaved)))
		r.Get("/bundles/{digest}", h.requireToken(store.TokenRunner, h.withStream(blobStream, h.streamBundle)))
		r.Post("/build/report", h.requireToken(store.TokenBuild, h.reportBuild))
		r.Post("/build/log", h.requireToken(store.TokenBuild, h.appendBuildLog))
		r.Get("/build/upload", h.requireToken(store.TokenBuild, h.withStream(blobStream, h.streamUpload)))
		r.Put("/build/bundle/{digest}", h.requireToken(store.TokenBuild, h.withStream(blobStream, h.putBundle)))
		r.Post("/build/result", h.requireToken(store.TokenBuild, h.finishBuild))
	})
	h.Handler = router
	return h
}

// Run wakes long polls by the store's hints and ends runs, until ctx ends. Stop it after the
// server.
func (h *Handler) Run(ctx context.Context) error {
	queued, stopQueued := h.opts.Store.Subscribe(store.TopicQueued)
	freed, stopFreed := h.opts.Store.Subscribe(store.TopicFreed)
	routes, stopRoutes := h.opts.Store.Subscribe(store.TopicRoute)
	var group sync.WaitGroup
	group.Go(func() { h.wakeups.followHints(queued, freed) })
	group.Go(func() { h.actions.followHints(routes) })
	group.Go(func() { h.recordWaitingRunners(ctx) })
	h.ends.runLoop(ctx)
	h.appends.writers.Wait()
	h.drift.records.Wait()
	stopQueued()
	stopFreed()
	stopRoutes()
	group.Wait()
	return nil
}

// endpoint serves a request with a valid token. Its error is a Problem, a sentinel error of the
// store, or means that the store is unavailable.
type endpoint func(w http.ResponseWriter, r *http.Request, token store.Token) error

// requireToken serves requests with a token of the given kind.
func (h *Handler) requireToken(kind store.TokenKind, next endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token, err := h.tokens.tokenOf(r)
		if err == nil && token.Kind != kind {
			err = httpserver.NewProblem(http.StatusForbidden, httpserver.CodeWrongToken, "This is a "+string(token.Kind)+" token; the call wants a "+string(kind)+" token.")
		}
		var release func()
		if err == nil {
			release, err = h.holdRequest(token.ProjectID, r)
		}
		if err == nil {
			defer release()
			err = next(w, r, token)
		}
		if err != nil {
			h.writeError(w, r, err)
		}
	}
}

// writeError writes the response to an error. A client that cut off its body gets none.
func (h *Handler) writeError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, httpserver.ErrCutOff) {
		panic(http.ErrAbortHandler)
	}
	httpserver.WriteProblem(w, h.problemOf(r, err))
}

// problemOf returns the problem that a caller gets for an error. It logs errors of the store.
func (h *Handler) problemOf(r *http.Request, err error) (problem httpserver.Problem) {
	switch {
	case errors.As(err, &problem):
	case errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrConflict):
		problem = httpserver.NewProblem(http.StatusConflict, httpserver.CodeFenced, "This claim or build is no longer current. Stop working on it.")
	case errors.Is(err, store.ErrTooLarge):
		problem = httpserver.NewProblem(http.StatusRequestEntityTooLarge, httpserver.CodeTooLarge, "Not stored: "+err.Error()+".")
	case errors.Is(err, store.ErrInvalid):
		problem = httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeInvalid, "Not stored: "+err.Error()+".")
	case errors.Is(err, store.ErrNotFound):
		problem = httpserver.NewProblem(http.StatusNotFound, httpserver.CodeNotFound, "Not found for this token.")
	default:
		if r.Context().Err() == nil {
			h.opts.Logger.Error("serving the internal port", "path", r.URL.Path, "error", err)
		}
		problem = httpserver.NewProblem(http.StatusServiceUnavailable, httpserver.CodeStoreUnavailable, "The store does not answer. Retry later.")
		problem.RetryAfter = time.Second
	}
	return problem
}

// decodeRequest decodes a request body of at most limit bytes.
func decodeRequest(w http.ResponseWriter, r *http.Request, limit int64, into any) error {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit)).Decode(into)
	if errors.As(err, new(*http.MaxBytesError)) {
		return httpserver.NewProblem(http.StatusRequestEntityTooLarge, httpserver.CodeRequestTooLarge, fmt.Sprintf("This request has at most %d KiB.", limit>>10))
	}
	if err != nil {
		return undecoded(err)
	}
	httpserver.BodyRead(w)
	return nil
}

// undecoded returns the problem of a request that cannot be decoded.
func undecoded(err error) error {
	if errors.Is(err, dispatchapi.ErrTooMany) {
		return httpserver.NewProblem(http.StatusRequestEntityTooLarge, httpserver.CodeTooLarge, "Rejected: "+err.Error()+".")
	}
	return httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeInvalid, "The request has an invalid format: "+err.Error())
}

func runIDParam(r *http.Request) (uuid.UUID, error) {
	id, err := uuid.Parse(chi.URLParam(r, "id"))
	if err != nil {
		return uuid.Nil, store.ErrNotFound
	}
	return id, nil
}
