// SPDX-License-Identifier: Apache-2.0

// Package apiserver is the REST facade: /v1 as projects use it with their API
// keys. It reads and writes Kubernetes objects (the truth for what is
// configured) and reads the store (the truth for what happened). It keeps no
// state of its own but short caches of keys and of access decisions.
package apiserver

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/internal/seal"
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
}

// Options are what a facade is made of.
type Options struct {
	// Client reads uncached and writes. Its scheme knows Secrets,
	// SubjectAccessReviews and the kinds of agentplatform.dev.
	Client client.Client
	Store  Store
	// DerivationKey derives the generated secrets that are shown.
	DerivationKey seal.DerivationKey
	// Sealer seals credentials that come in.
	Sealer *seal.Sealer
	// GatewayURL is the public URL of the gateway, the start of webhook URLs.
	GatewayURL string
	// Logger takes what callers only see as 500; nil means slog's default.
	Logger *slog.Logger
	// Now is the clock of expiries and caches; nil means time.Now.
	Now func() time.Time
}

// Server is the facade.
type Server struct {
	client     client.Client
	store      Store
	derivation seal.DerivationKey
	sealer     *seal.Sealer
	gatewayURL string
	logger     *slog.Logger
	now        func() time.Time

	keys    *expiring[string, credential]
	reviews *expiring[review, bool]
	api     huma.API
	handler http.Handler
}

// New makes a facade; an error says what is missing.
func New(opts Options) (*Server, error) {
	if opts.Client == nil || opts.Store == nil || opts.Sealer == nil {
		return nil, errors.New("making the REST facade: client, store and sealer are needed")
	}
	s := &Server{
		client: opts.Client, store: opts.Store, derivation: opts.DerivationKey, sealer: opts.Sealer,
		gatewayURL: strings.TrimRight(opts.GatewayURL, "/"), logger: opts.Logger, now: opts.Now,
	}
	if s.logger == nil {
		s.logger = slog.Default()
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.keys = newExpiring[string, credential](keyCacheTime, s.now)
	s.reviews = newExpiring[review, bool](reviewCacheTime, s.now)
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
	router.Use(s.recoverPanics)
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
	if _, err := s.authenticate(r.Context(), r.Header.Get("Authorization"), project); err != nil {
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
