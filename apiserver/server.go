// SPDX-License-Identifier: Apache-2.0

// Package apiserver is the REST facade, which serves /v1 to projects with API keys. It reads and writes Kubernetes
// objects (the source of truth for configuration) and reads the store (the source of truth for history). Its only state
// is short caches of keys and access reviews, and informers of keys and projects.
package apiserver

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/agents"
	"github.com/agentplatform/agentplatform/apiserver/auditlog"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/apiserver/costs"
	"github.com/agentplatform/agentplatform/apiserver/deployments"
	"github.com/agentplatform/agentplatform/apiserver/environments"
	"github.com/agentplatform/agentplatform/apiserver/history"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/apiserver/runs"
	"github.com/agentplatform/agentplatform/apiserver/webhooks"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/internal/secrets"
)

// Store has the methods of the store that the facade uses.
type Store interface {
	rest.Store
	agents.Store
	runs.Store
	costs.Store
	deployments.Store
	connectors.Store
	runs.ConnectorRunStore
	runs.ReplayStore
	connectors.RejectionStore
}

// Claims has the writes of the facade to the store.
type Claims interface {
	rest.Claims
	connectors.Derivations
}

// Options configure a facade.
type Options struct {
	rest.Options
	Store Store
	// Claims claims the IDs of created objects.
	Claims Claims
	// Keys derive the generated secrets in responses.
	Keys *secrets.Keys
	// GatewayURL is the public URL of the gateway, the start of webhook URLs.
	GatewayURL string
}

// Server is the facade. Its fields are the service and the resources that it serves.
type Server struct {
	Service       *rest.Service
	Environments  *environments.API
	Variables     *environments.Variables
	Agents        *agents.API
	Deployments   *deployments.API
	Connectors    *connectors.API
	Links         *connectors.Links
	ConnectorRuns *runs.ConnectorRuns
	Replays       *runs.Replays
	Rejections    *connectors.Rejections
	Runs          *runs.API
	Costs         *costs.Reader
	Searches      *history.Searches
	AuditLog      *auditlog.API
}

// New returns a facade. Its error names the missing options.
func New(opts Options) (*Server, error) {
	if missing := opts.missing(); len(missing) > 0 {
		return nil, fmt.Errorf("creating the REST facade: set the options %s", strings.Join(missing, ", "))
	}
	webhooks, err := webhooks.Document(opts.GatewayURL)
	if err != nil {
		return nil, err
	}
	s := newServer(rest.New(opts.Options, opts.Store, opts.Claims), opts)
	return s, s.Service.Mount(s.Sections(), map[string][]byte{"/v1/webhooks.json": webhooks})
}

// missing returns the names of the required options that are not set.
func (o *Options) missing() []string {
	var names []string
	for _, option := range []struct {
		name  string
		isSet bool
	}{
		{"Client", o.Client != nil}, {"Index", o.Index != nil}, {"PlatformID", o.PlatformID != uuid.Nil},
		{"Store", o.Store != nil}, {"Claims", o.Claims != nil}, {"Keys", o.Keys != nil},
	} {
		if !option.isSet {
			names = append(names, option.name)
		}
	}
	return names
}

// Handler serves /v1.
func (s *Server) Handler() http.Handler { return s.Service.Handler() }

// OpenAPI describes the endpoints.
func (s *Server) OpenAPI() *huma.OpenAPI { return s.Service.OpenAPI() }

// newServer connects the resources with the options and with the resources that they read.
func newServer(base *rest.Service, opts Options) *Server {
	s := &Server{
		Service:       base,
		Costs:         &costs.Reader{Store: opts.Store},
		Searches:      history.NewSearches(base),
		Variables:     &environments.Variables{Service: base, Keys: opts.Keys},
		Connectors:    &connectors.API{Service: base, Store: opts.Store, Keys: opts.Keys, Derivations: opts.Claims, GatewayURL: opts.GatewayURL},
		ConnectorRuns: &runs.ConnectorRuns{Service: base, Store: opts.Store},
		Rejections:    &connectors.Rejections{Service: base, Store: opts.Store},
		AuditLog:      &auditlog.API{Service: base},
	}
	s.Environments = &environments.API{Service: base, Variables: s.Variables}
	s.Links = &connectors.Links{Service: base, Connectors: s.Connectors}
	s.Connectors.Links = s.Links
	s.Deployments = &deployments.API{
		Service: base, Store: opts.Store, Costs: s.Costs,
		Uploads: quota.NewSlotSet(deployments.MaxUploads, deployments.UploadShare),
	}
	s.Runs = &runs.API{
		Service: base, Store: opts.Store, Deployments: s.Deployments, ConnectorRuns: s.ConnectorRuns, Costs: s.Costs,
		Files: quota.NewSlotSet(runs.MaxFileStreams, runs.FileShare), Searches: s.Searches,
	}
	s.ConnectorRuns.Runs = s.Runs
	s.Replays = &runs.Replays{Service: base, Store: opts.Store, ConnectorRuns: s.ConnectorRuns}
	s.Agents = &agents.API{Service: base, Store: opts.Store, Links: s.Links, Deployments: s.Deployments, Searches: s.Searches, Costs: s.Costs}
	return s
}

// Sections returns all sections of the contract with the receivers of their handlers. Paths in no
// section return 403.
func (s *Server) Sections() []rest.BoundSection {
	return []rest.BoundSection{
		rest.Bind(environments.Section, s.Environments), rest.Bind(environments.VariableSection, s.Variables),
		rest.Bind(agents.Section, s.Agents),
		rest.Bind(deployments.Section, s.Deployments),
		rest.Bind(connectors.Section, s.Connectors), rest.Bind(connectors.LinkSection, s.Links), rest.Bind(runs.ConnectorRunSection, s.ConnectorRuns),
		rest.Bind(runs.ReplaySection, s.Replays), rest.Bind(connectors.RejectionSection, s.Rejections),
		rest.Bind(runs.Section, s.Runs),
		rest.Bind(auditlog.Section, s.AuditLog),
		rest.Bind(unsupportedSection, s),
	}
}

// Document returns the OpenAPI description of the facade as JSON.
func Document() ([]byte, error) { return rest.Document((&Server{}).Sections()) }

// unsupportedSection has the endpoints of the contract that belong to no section of this release.
var unsupportedSection = rest.Section[*Server]{
	Name: "others",
	Endpoints: []rest.EndpointOf[*Server]{
		unsupported(rest.Post, "/retrieval/text", "addRetrievalText", "retrieval.create"),
		unsupported(rest.Post, "/retrieval/query", "queryRetrieval", "retrieval.view"),
		unsupported(rest.Get, "/approvals", "listApprovals", "approvals.view"),
		unsupported(rest.Post, "/approvals/{approval_id}/decide", "decideApproval", "approvals.decide"),
		unsupported(rest.Get, "/judges", "listJudges", "judges.view"),
		unsupported(rest.Get, "/budgets", "listBudgets", "budgets.view"),
	},
}

// unsupported returns an endpoint that is not in this release.
func unsupported(method, path, id string, permission v1alpha1.Permission) rest.EndpointOf[*Server] {
	return rest.Unsupported[*Server](rest.Endpoint{Method: method, Path: path, ID: id, Permissions: rest.Requires(permission)})
}
