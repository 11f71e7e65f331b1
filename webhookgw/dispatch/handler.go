// SPDX-License-Identifier: Apache-2.0

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
	// maxBundle is the most bytes of a bundle.
	maxBundle = 25 << 20
	// maxWait is how long a claim may wait for a run.
	maxWait = 30 * time.Second
	// maxClaim is the most runs that one claim takes.
	maxClaim = store.MaxClaim
	// maxDelay is how long a run that is given back is handed to nobody at most.
	maxDelay = time.Minute
	// reportEvery is how often a runner that wants no runs is looked for at most.
	reportEvery = 500 * time.Millisecond
	// maxInline is how many bytes of inputs stand in the answer to a claim, and
	// maxInlineJournals of journals; journalPage is how many entries of another one are
	// read at once.
	maxInline         = 1 << 20
	maxInlineJournals = 256 << 10
	journalPage       = store.MaxEntries
	// runOverhead is more than a run takes beside its input and journal: it may have headers.
	runOverhead = 2<<10 + store.MaxContextHeaders*(store.MaxHeaderName+store.MaxHeaderValue)
	// releaseTimeout bounds giving back what nobody came to take.
	releaseTimeout = 5 * time.Second
)

// Store is what the internal port needs of the store.
type Store interface {
	store.Dispatch
	store.Sends
	store.Builds
	store.Bundles
	// OpenUpload is store.Uploads'.
	OpenUpload(ctx context.Context, deployment store.Key) (io.ReadCloser, error)
	store.Tokens
	store.Notifier
	Connections() int
	Environment(ctx context.Context, key store.Key) (store.Environment, error)
	Run(ctx context.Context, key store.Key) (store.Run, error)
	RunFiles(ctx context.Context, run store.Key) ([]store.File, error)
	OpenRunFile(ctx context.Context, run store.Key, number int) (store.File, io.ReadCloser, error)
	RunInput(ctx context.Context, key store.Key) (contentType string, body io.ReadCloser, err error)
	Journal(ctx context.Context, run store.Key) ([]store.JournalEntry, error)
	JournalAfter(ctx context.Context, run store.Key, sequence int64, limit int) ([]store.JournalEntry, error)
}

// Options configure a Handler.
type Options struct {
	Store  Store
	Logger *slog.Logger
	// Metrics count requests, claims and ends; nil counts nowhere.
	Metrics *metrics.Gateway
	// Runners are those that wait here, for the ingress of this process to know; nil
	// where there is none.
	Runners *handoff.Runners
}

// Bounds of what is remembered between calls.
const (
	// recentFor is how long an answer of the store is used again. For that long a
	// build's token may still work after it was replaced, and a busy runner may not
	// hear of a bundle to prefetch. A runner's token is trusted until a hint says
	// otherwise, or for tokenFor.
	recentFor = time.Second
	maxRecent = 10_000
	// maxOwners is more than runs can be under way.
	maxOwners = 100_000
	// absentFor is how long a run or a token is taken for absent.
	absentFor = time.Second
)

// Handler serves the internal port.
type Handler struct {
	http.Handler
	opts       Options
	wakeups    *wakeups
	attendance *attendance
	ends       *ends
	// inFlight is the memory of requests, claims of the answers to these, streams of
	// what streams.
	inFlight        *quota.Places
	claims, streams *quota.Budget
	// calls are those that ask the store, but for beats, which are heartbeats.
	calls, beats *quota.Budget
	// owners are the environments of runs, which never change, so that a call about
	// somebody else's run is refused without asking the store each time.
	owners *cache.Cache[store.Key, uuid.UUID]
	// absent are runs that were asked for and are not there.
	absent *cache.Cache[store.Key, struct{}]
	// ended are claims that their runner ended lately.
	ended *cache.Cache[store.Lease, struct{}]
	// tokens and environments are remembered for a while, so that a busy runner's calls
	// do not each ask the store who it is.
	tokens       *tokens
	actions      *actions
	environments *cache.Cache[store.Key, store.Environment]
}

// New returns a handler; long-polls are woken by hints while Run runs.
func New(opts Options) *Handler {
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewGateway(nil)
	}
	if opts.Runners == nil {
		opts.Runners = handoff.NewRunners()
	}
	wakeups := newWakeups()
	h := &Handler{
		opts: opts, wakeups: wakeups, attendance: newAttendance(), ends: newEnds(opts.Store),
		inFlight: quota.NewPlaces(maxInFlight, projectShare), claims: newBudget(maxClaimBytes), streams: newBudget(maxStreamBytes),
		calls: newCalls(opts.Store.Connections(), callsOf, patience), beats: newCalls(opts.Store.Connections(), beatsOf, beatPatience),
		tokens:       newTokens(opts.Store, wakeups),
		actions:      newActions(),
		ended:        cache.New[store.Lease, struct{}](maxOwners, time.Minute, nil),
		owners:       cache.New[store.Key, uuid.UUID](maxOwners, 0, nil),
		absent:       cache.New[store.Key, struct{}](maxRecent, absentFor, nil),
		environments: cache.New[store.Key, store.Environment](maxRecent, recentFor, nil),
	}
	router := chi.NewRouter()
	router.Use(opts.Metrics.Dispatch)
	router.Route("/v1", func(r chi.Router) {
		r.Post("/claim", h.as(store.TokenRunner, h.claim))
		r.Post("/heartbeat", h.as(store.TokenRunner, h.heartbeat))
		r.Post("/runs/{id}/journal", h.as(store.TokenRunner, h.journal))
		r.Get("/runs/{id}/journal", h.as(store.TokenRunner, h.streamed(journalStream, h.readJournal)))
		r.Post("/runs/{id}/complete", h.as(store.TokenRunner, h.complete))
		r.Post("/runs/{id}/release", h.as(store.TokenRunner, h.release))
		r.Post("/runs/{id}/sends", h.as(store.TokenRunner, h.send))
		r.Get("/runs/{id}/input", h.as(store.TokenRunner, h.streamed(blobStream, h.input)))
		r.Get("/runs/{id}/files", h.as(store.TokenRunner, h.files))
		r.Get("/runs/{id}/files/{number}", h.as(store.TokenRunner, h.streamed(blobStream, h.file)))
		r.Get("/bundles/{digest}", h.as(store.TokenRunner, h.streamed(blobStream, h.bundle)))
		r.Post("/build/report", h.as(store.TokenBuild, h.report))
		r.Post("/build/log", h.as(store.TokenBuild, h.log))
		r.Get("/build/upload", h.as(store.TokenBuild, h.streamed(blobStream, h.upload)))
		r.Put("/build/bundle/{digest}", h.as(store.TokenBuild, h.streamed(blobStream, h.putBundle)))
		r.Post("/build/result", h.as(store.TokenBuild, h.result))
	})
	h.Handler = router
	return h
}

// Run wakes long-polls by the store's hints, and ends runs, until ctx ends. It is to
// be stopped after the server.
func (h *Handler) Run(ctx context.Context) error {
	queued, stopQueued := h.opts.Store.Subscribe(store.TopicQueued)
	freed, stopFreed := h.opts.Store.Subscribe(store.TopicFreed)
	routes, stopRoutes := h.opts.Store.Subscribe(store.TopicRoute)
	var group sync.WaitGroup
	group.Go(func() { h.wakeups.follow(queued, freed) })
	group.Go(func() { h.actions.follow(routes) })
	group.Go(func() { h.attend(ctx) })
	h.ends.run(ctx)
	stopQueued()
	stopFreed()
	stopRoutes()
	group.Wait()
	return nil
}

// endpoint answers a request that spoke with a valid token. Its error is a
// Problem, one of the store's sentinels, or means that the store is away.
type endpoint func(w http.ResponseWriter, r *http.Request, token store.Token) error

// as lets requests in whose token is of a kind.
func (h *Handler) as(kind store.TokenKind, next endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token, err := h.tokens.of(r)
		if err == nil && token.Kind != kind {
			err = httpserver.NewProblem(http.StatusForbidden, httpserver.CodeWrongToken, "This is a "+string(token.Kind)+" token; the call wants a "+string(kind)+" token.")
		}
		var release func()
		if err == nil {
			release, err = h.hold(token.ProjectID, r)
		}
		if err == nil {
			defer release()
			err = next(w, r, token)
		}
		if err != nil {
			h.fail(w, r, err)
		}
	}
}

func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	var problem httpserver.Problem
	switch {
	case errors.As(err, &problem):
	case errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrConflict):
		problem = httpserver.NewProblem(http.StatusConflict, httpserver.CodeFenced, "This claim or build is no longer current; stop working on it.")
	case errors.Is(err, store.ErrTooLarge):
		problem = httpserver.NewProblem(http.StatusRequestEntityTooLarge, httpserver.CodeTooLarge, "Not stored: "+err.Error()+".")
	case errors.Is(err, store.ErrInvalid):
		problem = httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeInvalid, "Not stored: "+err.Error()+".")
	case errors.Is(err, store.ErrNotFound):
		problem = httpserver.NewProblem(http.StatusNotFound, httpserver.CodeNotFound, "There is no such thing for this token.")
	default:
		if r.Context().Err() == nil {
			h.opts.Logger.Error("answering the internal port", "path", r.URL.Path, "error", err)
		}
		problem = httpserver.NewProblem(http.StatusServiceUnavailable, httpserver.CodeStoreUnavailable, "The store does not answer; call again.")
		problem.RetryAfter = time.Second
	}
	httpserver.WriteProblem(w, problem)
}

// decode reads a request of at most limit bytes.
func decode(w http.ResponseWriter, r *http.Request, limit int64, into any) error {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit)).Decode(into)
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return httpserver.NewProblem(http.StatusRequestEntityTooLarge, httpserver.CodeRequestTooLarge, fmt.Sprintf("This request has at most %d KiB.", limit>>10))
	case errors.Is(err, dispatchapi.ErrTooMany):
		return httpserver.NewProblem(http.StatusRequestEntityTooLarge, httpserver.CodeTooLarge, "Not taken: "+err.Error()+".")
	case err != nil:
		return httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeInvalid, "The request is not of the form that this call takes: "+err.Error())
	}
	httpserver.BodyRead(w)
	return nil
}

func runID(r *http.Request) (uuid.UUID, error) {
	id, err := uuid.Parse(chi.URLParam(r, "id"))
	if err != nil {
		return uuid.Nil, store.ErrNotFound
	}
	return id, nil
}
