// SPDX-License-Identifier: Apache-2.0

// Package apiserver is the REST facade: /v1 as projects use it with their API
// keys. It reads and writes Kubernetes objects (the truth for what is
// configured) and reads the store (the truth for what happened). It keeps no
// state of its own but short caches of keys and of access decisions.
package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/keyring"
	"github.com/agentplatform/agentplatform/store"
)

// apiVersion is the version of the service contract.
const apiVersion = "1.0.0"

// readyTimeout is how long a create waits for the controllers.
const readyTimeout = 2 * time.Second

// Store is what the facade reads of the store.
type Store interface {
	store.Catalog
	store.History
	store.Deployments
	store.Builds
	store.Audit
}

// Claims is what the facade writes of the store.
type Claims interface {
	// ClaimID is store.Projector's.
	ClaimID(ctx context.Context, key store.Key, ref store.ObjectRef) error
	// DerivationKey is store.KeyLedger's.
	DerivationKey(ctx context.Context, connector store.Key, version int64) (string, error)
}

// Options are what a facade is made of.
type Options struct {
	// Client reads uncached and writes. Its scheme knows
	// SubjectAccessReviews and the kinds of agentplatform.dev.
	Client client.Client
	// KeyIndex finds API keys; whoever makes it runs it.
	KeyIndex *KeyIndex
	Store    Store
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
	keys     *expiring[askedKey, credential]
	reviews  *expiring[review, bool]
	index    *KeyIndex
	api      huma.API
	handler  http.Handler
}

// New makes a facade; an error says what is missing.
func New(opts Options) (*Server, error) {
	if opts.Client == nil || opts.KeyIndex == nil || opts.Store == nil || opts.Claims == nil || opts.Keys == nil || opts.PlatformID == uuid.Nil {
		return nil, errors.New("making the REST facade: client, index of keys, store, claims, platform id and keys are needed")
	}
	s := &Server{
		client: opts.Client, store: opts.Store, claims: opts.Claims, platformID: opts.PlatformID, platform: opts.Keys,
		gatewayURL: strings.TrimRight(opts.GatewayURL, "/"), proxies: opts.TrustedProxies, logger: opts.Logger, now: time.Now,
	}
	if s.logger == nil {
		s.logger = slog.Default()
	}
	s.refusals = httpserver.NewRefusals("requests without a valid API key were refused", s.logger, s.now)
	s.keys = newExpiring[askedKey, credential](keyCacheTime, s.now)
	s.reviews = newExpiring[review, bool](reviewCacheTime, s.now)
	s.index = opts.KeyIndex
	s.mount()
	return s, nil
}

// Handler serves /v1.
func (s *Server) Handler() http.Handler { return s.handler }

// OpenAPI is the description that is served at /v1/openapi.json.
func (s *Server) OpenAPI() *huma.OpenAPI { return s.api.OpenAPI() }

func (s *Server) mount() {
	replaceErrorModel()
	router := chi.NewRouter()
	router.Use(s.follow, s.recoverPanics)
	router.NotFound(s.notPublic)
	router.MethodNotAllowed(s.notPublic)
	config := huma.DefaultConfig("Agent Platform", apiVersion)
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "/v1/openapi", "", ""
	config.CreateHooks = nil // no $schema in answers
	config.Info.Description = "Observe and manage a project: environments, agents, deployments, connectors and runs."
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"apiKey": {Type: "http", Scheme: "bearer", Description: "an API key of the project, ap_…"},
	}
	s.api = humachi.New(router, config)
	for _, r := range s.routes() {
		r.mount(s.api, s.operation(r))
	}
	s.handler = router
}

// operation describes a route; its middleware answers 401 and 403 before
// anything else is read of the request.
func (s *Server) operation(r route) huma.Operation {
	op := huma.Operation{
		OperationID: r.id, Method: r.method, Path: projectPath + r.path, DefaultStatus: http.StatusOK,
		Tags:        []string{strings.SplitN(r.permission, ".", 2)[0]},
		Security:    []map[string][]string{{"apiKey": {}}},
		Extensions:  map[string]any{"x-permission": r.permission},
		Errors:      []int{401, 403, 404, 422, 500, 503},
		Middlewares: huma.Middlewares{s.authorize(r.permission)},
	}
	if r.method != http.MethodGet {
		op.Middlewares = append(op.Middlewares, s.refuseHeaders)
	}
	if r.method == http.MethodPost {
		op.DefaultStatus = http.StatusCreated
		op.Errors = append(op.Errors, http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	return op
}

// notPublic answers for every path that is no endpoint: below a project 403,
// for those who have a key of it.
func (s *Server) notPublic(w http.ResponseWriter, r *http.Request) {
	rest, below := strings.CutPrefix(r.URL.Path, "/v1/projects/")
	if !below {
		writeProblem(w, problem(http.StatusNotFound, "there is nothing at this path"))
		return
	}
	project, _, _ := strings.Cut(rest, "/")
	act := store.AuditEntry{Operation: "unknown", Method: r.Method, Route: r.URL.Path}
	if _, err := s.identify(r.Context(), r.Header.Get("Authorization"), project, act); err != nil {
		writeProblem(w, s.asProblem(r.Context(), err))
		return
	}
	writeProblem(w, problem(http.StatusForbidden, "this endpoint is not part of the public API"))
}

func (s *Server) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				s.logger.ErrorContext(r.Context(), "a request panicked", "method", r.Method, "path", r.URL.Path, "panic", p)
				writeProblem(w, problem(http.StatusInternalServerError, internalDetail))
			}
		}()
		w.Header().Set("Cache-Control", "no-store") // answers hold secrets
		next.ServeHTTP(w, r)
	})
}
