// SPDX-License-Identifier: Apache-2.0

// Package rest is the framework of the endpoints of the REST facade. An endpoint is a value beside its handler. A Service
// authenticates and limits calls, records them for the audit log, checks input and preconditions, and turns errors into
// problems. It describes the endpoints in OpenAPI. Handlers use it to read and change the objects of the caller's project.
package rest

import (
	"cmp"
	"context"
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
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

// APIVersion is the version of the service contract.
const APIVersion = "1.0.0"

// Store is what the service reads and writes in the store.
type Store interface {
	store.Catalog
	store.Audit
	store.RateLimiter
	store.Notifier
	// ListsAtOnce is ListsAtOnce of store.Store.
	ListsAtOnce() int
}

// Claims claims the IDs of created objects.
type Claims interface {
	// ClaimID is ClaimID of store.Projector.
	ClaimID(ctx context.Context, key store.Key, ref store.ObjectRef) error
}

// Options configure a Service.
type Options struct {
	// Client reads uncached and writes. Its scheme has SubjectAccessReviews and the kinds of agentplatform.dev.
	Client client.Client
	// Index finds API keys and projects. The caller runs it.
	Index *Index
	// PlatformID is the namespace of the IDs of all projects.
	PlatformID uuid.UUID
	// TrustedProxies may set X-Forwarded-For.
	TrustedProxies httpserver.Proxies
	// RequestsPerMinute is the limit of a project whose plan is not in the store yet; 0 stands for the default of plans.
	RequestsPerMinute int
	// GitOpsManagers are field managers whose fields calls must not change; nil stands for DefaultGitOpsManagers.
	GitOpsManagers []string
	// Logger gets the causes of 500 responses; nil stands for slog's default.
	Logger *slog.Logger
	// Now is the clock; nil stands for time.Now.
	Now func() time.Time
	// ReadyTimeout limits how long a call waits for the controllers; 0 stands for 2 s.
	ReadyTimeout time.Duration
	// RequestTimeout limits how long a request takes; 0 stands for MaxRequestTime.
	RequestTimeout time.Duration
	// Stopping is closed when the facade stops. Open streams end then, and their readers reconnect to another replica. nil: never.
	Stopping <-chan struct{}
}

// withDefaults returns the options with the defaults of omitted options.
func (o Options) withDefaults() Options {
	o.RequestsPerMinute = cmp.Or(o.RequestsPerMinute, int(plan.Default().RequestsPerMinute))
	o.ReadyTimeout, o.RequestTimeout = cmp.Or(o.ReadyTimeout, readyTimeout), cmp.Or(o.RequestTimeout, MaxRequestTime)
	if o.GitOpsManagers == nil {
		o.GitOpsManagers = DefaultGitOpsManagers
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Service authenticates and limits calls, dispatches them to the handlers of endpoints, and gives
// the handlers access to the objects of the caller's project.
type Service struct {
	Options
	Store  Store
	Claims Claims
	// HistoryReads is the fair budget of history reads.
	HistoryReads *quota.Budget
	// Streams limits the open streams of events.
	Streams *quota.SlotSet

	refusals *httpserver.Refusals
	keys     *cache.Cache[askedKey, credential]
	reviews  *cache.Cache[review, bool]
	api      huma.API
	handler  http.Handler

	// document is the served description.
	document    []byte
	documentErr error
}

// New returns a service that serves nothing before Mount.
func New(opts Options, stored Store, claims Claims) *Service {
	s := &Service{Options: opts.withDefaults(), Store: stored, Claims: claims, HistoryReads: NewHistoryReads(stored.ListsAtOnce(), historyReadPatience), Streams: quota.NewSlotSet(MaxStreams, StreamShare)}
	clock := func() time.Time { return s.Now() } // tests change Now
	s.refusals = httpserver.NewRefusals("requests without a valid API key were rejected", s.Logger, clock)
	s.keys = cache.New[askedKey, credential](cacheSize, KeyCacheTime, clock)
	s.reviews = cache.New[review, bool](cacheSize, ReviewCacheTime, clock)
	return s
}

// Handler serves /v1.
func (s *Service) Handler() http.Handler { return s.handler }

// OpenAPI describes the mounted endpoints.
func (s *Service) OpenAPI() *huma.OpenAPI { return s.api.OpenAPI() }

// Mount serves the endpoints of sections, their description, and further descriptions by path.
func (s *Service) Mount(sections []BoundSection, descriptions map[string][]byte) error {
	ConfigureHuma()
	router := chi.NewRouter()
	router.Use(s.follow, s.recoverPanics)
	router.NotFound(s.notPublic)
	router.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) { s.methodNotAllowed(router, w, r) })
	s.api = humachi.New(router, describedConfig(sections))
	for _, section := range sections {
		for _, e := range section.endpoints {
			s.register(&e)
		}
	}
	s.serveDocument(router, sections, descriptions)
	s.handler = router
	return s.documentErr
}

// notPublic responds to a path without endpoints. Below a project it authenticates the caller and returns 403, so that
// only callers with a key of the project learn about paths.
func (s *Service) notPublic(w http.ResponseWriter, r *http.Request) {
	rest, below := strings.CutPrefix(r.URL.Path, "/v1/projects/")
	if !below {
		httpserver.WriteProblem(w, NewProblem(http.StatusNotFound, httpserver.CodeNotFound, "no endpoint has this path"))
		return
	}
	forbidden := func(*Caller) error {
		return NewProblem(http.StatusForbidden, httpserver.CodeNotPublic, "this endpoint is not part of the public API")
	}
	_, err := s.identifyUnknown(r, rest, forbidden)
	httpserver.WriteProblem(w, s.ProblemOf(r.Context(), err))
}

// identifyUnknown authenticates a request to a path of a project without an endpoint.
func (s *Service) identifyUnknown(r *http.Request, rest string, allowed func(*Caller) error) (*Caller, error) {
	project, _, _ := strings.Cut(rest, "/")
	act := store.AuditEntry{Operation: "unknown", Method: r.Method, Route: r.URL.Path}
	return s.identify(r.Context(), r.Header.Get("Authorization"), project, act, allowed)
}

// methods are the methods of endpoints.
var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// methodNotAllowed responds with 405 to a path that has endpoints with other methods. Below a project it authenticates
// the caller first.
func (s *Service) methodNotAllowed(router chi.Routes, w http.ResponseWriter, r *http.Request) {
	var allow []string
	for _, method := range methods {
		if router.Match(chi.NewRouteContext(), method, r.URL.Path) {
			allow = append(allow, method)
		}
	}
	err := error(NewProblem(http.StatusMethodNotAllowed, httpserver.CodeMethodNotAllowed, "this path supports "+listAnd(allow)))
	if rest, below := strings.CutPrefix(r.URL.Path, "/v1/projects/"); below {
		wrong := err
		_, err = s.identifyUnknown(r, rest, func(*Caller) error { return wrong })
	}
	if isStatus(err, http.StatusMethodNotAllowed) {
		w.Header().Set("Allow", strings.Join(allow, ", "))
	}
	httpserver.WriteProblem(w, s.ProblemOf(r.Context(), err))
}

func (s *Service) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				s.Logger.ErrorContext(r.Context(), "a request panicked", "method", r.Method, "path", r.URL.Path, "panic", p)
				httpserver.WriteProblem(w, NewProblem(http.StatusInternalServerError, httpserver.CodeInternal, internalDetail))
			}
		}()
		w.Header().Set("Cache-Control", "no-store") // responses contain secrets
		next.ServeHTTP(w, r)
	})
}
