// SPDX-License-Identifier: Apache-2.0

// Package apiserver is the REST facade: /v1 as projects use it with their API
// keys. It reads and writes Kubernetes objects (the truth for what is
// configured) and reads the store (the truth for what happened). It keeps no
// state of its own but short caches of keys and of access decisions, and what its
// informers know of keys and projects.
package apiserver

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/internal/cache"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/keyring"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
)

// apiVersion is the version of the service contract.
const apiVersion = "1.0.0"

// Store is what the facade reads of the store.
type Store interface {
	store.Catalog
	store.History
	store.Eraser
	store.Statistics
	// Rates is store.Rates'.
	Rates(ctx context.Context, currency store.Currency, from, to store.Day) ([]store.Rate, error)
	store.Files
	store.Deployments
	store.Builds
	// OpenBundle is store.Bundles'.
	OpenBundle(ctx context.Context, projectID uuid.UUID, digest string) (io.ReadCloser, error)
	// PutUpload and HasUpload are store.Uploads'.
	PutUpload(ctx context.Context, projectID uuid.UUID, r io.Reader, limit int64) (store.Upload, error)
	HasUpload(ctx context.Context, projectID uuid.UUID, digest string) error
	// Subscribe is store.Notifier's.
	Subscribe(topic store.Topic) (hints <-chan store.Hint, stop func())
	store.Audit
	store.RateLimiter
	// ListsAtOnce is store.Store's.
	ListsAtOnce() int
	// Rejections is store.Rejections'.
	Rejections(ctx context.Context, connector store.Key) (store.RejectionReport, error)
	// TickTimes is store.Ticks'.
	TickTimes(ctx context.Context, projectID uuid.UUID, connectors []uuid.UUID) (map[uuid.UUID]store.TickTimes, error)
	// Attempts, AttemptsOf, DestinationsOf and ResumeDestination are store.Deliveries'.
	Attempts(ctx context.Context, delivery store.Key) (past []store.PastAttempt, next *time.Time, err error)
	AttemptsOf(ctx context.Context, deliveries []store.Key) (map[store.Key]store.DeliveryAttempts, error)
	DestinationsOf(ctx context.Context, projectID uuid.UUID, connectors []uuid.UUID) (map[uuid.UUID]store.Destination, error)
	ResumeDestination(ctx context.Context, connector store.Key) error
	// Replays makes what happened happen again.
	replay.Store
	// MatchReplay and the others are store.ReplayJobs'.
	MatchReplay(ctx context.Context, connector store.Key, f store.ReplayFilter) (store.ReplayMatch, error)
	StartReplay(ctx context.Context, r store.NewReplay) (store.Replay, store.Verdict, error)
	Replay(ctx context.Context, replay store.Key) (store.Replay, error)
	ListReplays(ctx context.Context, connector store.Key) ([]store.Replay, error)
	CancelReplay(ctx context.Context, replay store.Key) error
	// Cancel is store.Dispatch's.
	Cancel(ctx context.Context, run store.Key, code store.RunErrorCode, reason string) error
}

// Claims is what the facade writes of the store.
type Claims interface {
	// ClaimID is store.Projector's.
	ClaimID(ctx context.Context, key store.Key, ref store.ObjectRef) error
	// DerivationKey is store.KeyLedger's.
	DerivationKey(ctx context.Context, connector store.Key, version int64) (string, error)
	// DerivationKeys is store.KeyLedger's.
	DerivationKeys(ctx context.Context, projectID uuid.UUID, connectors []uuid.UUID) (map[store.Derivation]string, error)
}

// Options are what a facade is made of.
type Options struct {
	// Client reads uncached and writes. Its scheme knows
	// SubjectAccessReviews and the kinds of agentplatform.dev.
	Client client.Client
	// Index finds API keys and projects; whoever makes it runs it.
	Index *Index
	Store Store
	// Claims claims the ids of what is created.
	Claims Claims
	// PlatformID is what the ids of all projects are made of.
	PlatformID uuid.UUID
	// Keys derive the generated secrets that are shown.
	Keys *keyring.Keys
	// GatewayURL is the public URL of the gateway, the start of webhook URLs.
	GatewayURL string
	// TrustedProxies may say in X-Forwarded-For where a request came from.
	TrustedProxies httpserver.Proxies
	// RequestsPerMinute is how many requests a project may make in any 60 seconds of
	// which no controller has told the store yet what its plan allows; 0 means the plan's
	// default.
	RequestsPerMinute int
	// GitOpsManagers are field managers over whose fields nothing is written; nil means
	// DefaultGitOpsManagers.
	GitOpsManagers []string
	// Stopping is closed when the facade is to stop: streams end then, whose readers come
	// again elsewhere. nil: never.
	Stopping <-chan struct{}
	// Logger takes what callers only see as 500; nil means slog's default.
	Logger *slog.Logger
}

// Server is the facade.
type Server struct {
	client     client.Client
	store      Store
	claims     Claims
	platformID uuid.UUID
	platform   *keyring.Keys
	gatewayURL string
	proxies    httpserver.Proxies
	logger     *slog.Logger
	now        func() time.Time

	refusals *httpserver.Refusals
	keys     *cache.Cache[askedKey, credential]
	reviews  *cache.Cache[review, bool]
	index    *Index
	files    *quota.Places // for those that are being sent
	uploads  *quota.Places // for those that come in
	streams  *quota.Places // for those that are open
	searches *quota.Places // for those that go on
	readings *quota.Budget // of history
	stopping <-chan struct{}
	api      huma.API
	handler  http.Handler

	requestsPerMinute int
	gitOpsManagers    []string
	// patience is readyTimeout, and deadline requestTime, but in tests.
	patience, deadline time.Duration

	// document is the description that is served.
	document    []byte
	documentErr error
}

// New makes a facade; an error says what is missing.
func New(opts Options) (*Server, error) {
	if opts.Client == nil || opts.Index == nil || opts.Store == nil || opts.Claims == nil || opts.Keys == nil || opts.PlatformID == uuid.Nil {
		return nil, errors.New("making the REST facade: client, index, store, claims, platform id and keys are needed")
	}
	s := &Server{
		client: opts.Client, store: opts.Store, claims: opts.Claims, platformID: opts.PlatformID, platform: opts.Keys,
		gatewayURL: opts.GatewayURL, proxies: opts.TrustedProxies, logger: opts.Logger, now: time.Now,
		patience: readyTimeout, deadline: requestTime, requestsPerMinute: cmp.Or(opts.RequestsPerMinute, int(plan.Default().RequestsPerMinute)),
		gitOpsManagers: opts.GitOpsManagers,
	}
	if s.gitOpsManagers == nil {
		s.gitOpsManagers = DefaultGitOpsManagers
	}
	if s.logger == nil {
		s.logger = slog.Default()
	}
	s.refusals = httpserver.NewRefusals("requests without a valid API key were refused", s.logger, s.now)
	clock := func() time.Time { return s.now() } // which tests set
	s.keys = cache.New[askedKey, credential](cacheSize, keyCacheTime, clock)
	s.reviews = cache.New[review, bool](cacheSize, reviewCacheTime, clock)
	s.index, s.files = opts.Index, quota.NewPlaces(maxFileStreams, fileShare)
	s.uploads = quota.NewPlaces(maxUploads, uploadShare)
	s.searches = quota.NewPlaces(maxSearches, searchShare)
	s.readings = newReadings(opts.Store.ListsAtOnce(), readingPatience)
	s.streams, s.stopping = quota.NewPlaces(maxStreams, streamShare), opts.Stopping
	s.mount()
	return s, s.documentErr
}

// Handler serves /v1.
func (s *Server) Handler() http.Handler { return s.handler }

// OpenAPI describes the routes that are mounted.
func (s *Server) OpenAPI() *huma.OpenAPI { return s.api.OpenAPI() }

func (s *Server) mount() {
	replaceErrorModel()
	router := chi.NewRouter()
	router.Use(s.follow, s.recoverPanics)
	router.NotFound(s.notPublic)
	router.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) { s.methodNotAllowed(router, w, r) })
	s.api = humachi.New(router, describedConfig())
	for i := range routes {
		s.register(&routes[i])
	}
	s.serveDocument(router)
	s.handler = router
}

// notPublic answers for every path that is not an endpoint: below a project 403,
// for those who have a key of it.
func (s *Server) notPublic(w http.ResponseWriter, r *http.Request) {
	rest, below := strings.CutPrefix(r.URL.Path, "/v1/projects/")
	if !below {
		httpserver.WriteProblem(w, problem(http.StatusNotFound, httpserver.CodeNotFound, "there is nothing at this path"))
		return
	}
	forbidden := func(*caller) error {
		return problem(http.StatusForbidden, httpserver.CodeNotPublic, "this endpoint is not part of the public API")
	}
	_, err := s.identifyUnknown(r, rest, forbidden)
	httpserver.WriteProblem(w, s.asProblem(r.Context(), err))
}

// identifyUnknown authenticates a request to a path below that of projects that has no route.
func (s *Server) identifyUnknown(r *http.Request, rest string, allowed func(*caller) error) (*caller, error) {
	project, _, _ := strings.Cut(rest, "/")
	act := store.AuditEntry{Operation: "unknown", Method: r.Method, Route: r.URL.Path}
	return s.identify(r.Context(), r.Header.Get("Authorization"), project, act, allowed)
}

// methods are those that an endpoint may have.
var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// methodNotAllowed answers for a path that has endpoints with other methods: 405, below a project
// for those who have a key of it.
func (s *Server) methodNotAllowed(router chi.Routes, w http.ResponseWriter, r *http.Request) {
	var allow []string
	for _, method := range methods {
		if router.Match(chi.NewRouteContext(), method, r.URL.Path) {
			allow = append(allow, method)
		}
	}
	err := error(problem(http.StatusMethodNotAllowed, httpserver.CodeMethodNotAllowed, "this path takes "+strings.Join(allow, " and ")))
	if rest, below := strings.CutPrefix(r.URL.Path, "/v1/projects/"); below {
		wrong := err
		_, err = s.identifyUnknown(r, rest, func(*caller) error { return wrong })
	}
	if isStatus(err, http.StatusMethodNotAllowed) {
		w.Header().Set("Allow", strings.Join(allow, ", "))
	}
	httpserver.WriteProblem(w, s.asProblem(r.Context(), err))
}

func (s *Server) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				s.logger.ErrorContext(r.Context(), "a request panicked", "method", r.Method, "path", r.URL.Path, "panic", p)
				httpserver.WriteProblem(w, problem(http.StatusInternalServerError, httpserver.CodeInternal, internalDetail))
			}
		}()
		w.Header().Set("Cache-Control", "no-store") // answers hold secrets
		next.ServeHTTP(w, r)
	})
}
