// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// PathPrefix begins every path.
const PathPrefix = "/v1/projects/{project_id}"

// Methods of endpoints.
const Get, Post, Put, Patch, Delete = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete

// Sets of error statuses. Every endpoint can return the common errors.
var (
	CommonErrors = []int{401, 403, 422, 429, 500, 503}
	ReadErrors   = WithStatuses(CommonErrors, 404)
	CreateErrors = WithStatuses(ReadErrors, 400, 408, 409, 413, 415)
	UpdateErrors = WithStatuses(CreateErrors, 412)
	DeleteErrors = WithStatuses(ReadErrors, 409, 412)
	ActionErrors = WithStatuses(ReadErrors, 409)
)

// WithStatuses returns a set with more statuses.
func WithStatuses(set []int, more ...int) []int { return append(slices.Clone(set), more...) }

// Endpoint declares an operation of the REST API. Each endpoint stands beside its handler, which Handle binds to it. Without
// a handler the endpoint is not in this release and returns 501.
type Endpoint struct {
	// Path begins below PathPrefix.
	Method, Path string
	// ID is the operationId, which never changes.
	ID string
	// Tag is the name of the endpoint's section, which sets it.
	Tag string
	// Permissions are all required; the first one needs no parameter.
	Permissions []Requirement
	Effect      Effect
	// Status is the status of success, 200 by default. AlsoStatus is a second one with the same
	// body, or 0. Errors are the other statuses.
	Status, AlsoStatus int
	Errors             []int
	// ReadsHistory says that calls wait in the queue of lists and statistics.
	ReadsHistory bool
	// HasETag says that the response shows one object and its ETag.
	HasETag bool
	// File says that the response is a file of any type. Stream says that it is a stream of events.
	File, Stream bool
	// Upload is the body of a request that is not JSON, or nil.
	Upload *RawBody
	// Summary is a line. Doc is the description in Markdown.
	Summary, Doc string
	// Example is a call that succeeds.
	Example Example
	// Alternative is a remedy for callers of an endpoint that is not in this release.
	Alternative string

	// input is the type of the parameters of the handler, or nil if there is no handler.
	input reflect.Type
}

// IsSupported reports whether the endpoint is in this release.
func (e *Endpoint) IsSupported() bool { return e.input != nil }

// Requirement is a permission that an endpoint requires.
type Requirement struct {
	Permission v1alpha1.Permission
	// With is the query parameter that requires the permission, or the field of the body if InBody
	// is true; "" if every call requires it. The handler checks what fields of the body require.
	With   string
	InBody bool
}

// Requires lists permissions that every call of an endpoint requires.
func Requires(permissions ...v1alpha1.Permission) (out []Requirement) {
	for _, p := range permissions {
		out = append(out, Requirement{Permission: p})
	}
	return out
}

// Effect is the effect of a call on objects.
type Effect int

const (
	// EffectNone changes nothing.
	EffectNone Effect = iota
	// EffectCreate creates an object. An Idempotency-Key names it, and If-Match is not allowed.
	EffectCreate
	// EffectUpdate changes or deletes the object in the path, and respects If-Match.
	EffectUpdate
	// EffectAction changes something that has no ETag.
	EffectAction
)

// Example is a call that succeeds. The path begins below PathPrefix. A name in braces stands
// for the ID of an object with that role, and CRM in a body for a name that is free.
type Example struct{ Path, Body string }

// RawBody is a body that is not JSON.
type RawBody struct {
	Doc   string
	Types []string
	// TooLarge and unsupported describe the statuses 413 and 415.
	TooLarge, Unsupported string
}

func (b *RawBody) describe() *huma.RequestBody {
	out := &huma.RequestBody{Description: b.Doc, Required: true, Content: map[string]*huma.MediaType{}}
	for _, media := range b.Types {
		out.Content[media] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
	}
	return out
}

// Section groups the endpoints of a resource under a tag. Methods of H serve them. The description lists sections with a doc.
type Section[H any] struct {
	Name, Doc string
	Endpoints []EndpointOf[H]
	// Complete adds to the schemas of the description, or is nil.
	Complete func(schemas Node)
}

// BoundSection is a section with the receiver of its handlers.
type BoundSection struct {
	name, doc string
	endpoints []boundEndpoint
	complete  func(schemas Node)
}

// Bind gives a section the receiver of its handlers.
func Bind[H any](s Section[H], receiver H) BoundSection {
	bound := BoundSection{name: s.Name, doc: s.Doc, complete: s.Complete}
	for _, e := range s.Endpoints {
		e.Tag = s.Name
		if e.Status == 0 && e.IsSupported() {
			e.Status = http.StatusOK
		}
		bound.endpoints = append(bound.endpoints, boundEndpoint{Endpoint: e.Endpoint, mount: func(s *Service, op huma.Operation) {
			e.mount(receiver, s, &e.Endpoint, op)
		}})
	}
	return bound
}

// Endpoints returns the endpoints of the section.
func (s BoundSection) Endpoints() (out []Endpoint) {
	for _, e := range s.endpoints {
		out = append(out, e.Endpoint)
	}
	return out
}

// boundEndpoint is an endpoint with the receiver of its handler. mount must not be called without a handler.
type boundEndpoint struct {
	Endpoint
	mount func(s *Service, op huma.Operation)
}

// ProjectPath is the part of the path that all endpoints have.
type ProjectPath struct {
	ProjectID ID `path:"project_id" resource:"project" doc:"The key's project."`
}

// Response is the response of a handler.
type Response[T any] struct {
	// Status is the endpoint's status unless a handler sets another one.
	Status int
	// Location is the path of a created object below PathPrefix.
	Location string `header:"Location" hidden:"true"`
	ETag     string `header:"ETag" hidden:"true"`
	Body     T
}

// Done is the response of calls that return no object.
type Done struct {
	OK bool `json:"ok" doc:"Whether the call took effect." example:"true"`
}

func (Done) Doc() string { return "The response of a call that returns no object." }

// NewResponse responds with a body that has no ETag, such as a list.
func NewResponse[T any](body T, err error) (Response[T], error) { return Response[T]{Body: body}, err }

// CreatedResponse responds with a new object and records it for the audit log.
func CreatedResponse[T auditable](ctx context.Context, body T, o tagger, path string) Response[T] {
	RecordChange(ctx, body.Audited(), nil, body)
	return Response[T]{Location: path, ETag: ETag(o), Body: body}
}

// DeletedResponse responds for a deleted object and records it for the audit log.
func DeletedResponse(ctx context.Context, before auditable) Response[Done] {
	RecordChange(ctx, before.Audited(), before, nil)
	return Response[Done]{Body: Done{OK: true}}
}

// auditable is a response that names its object for the audit log.
type auditable interface{ Audited() store.AuditObject }

// RowKey is the primary key of a row in the caller's project.
func (c *Caller) RowKey(id ID) store.Key { return store.Key{ProjectID: c.ProjectID, ID: uuid.UUID(id)} }

// EndpointOf is an endpoint whose handler is a method of H.
type EndpointOf[H any] struct {
	Endpoint
	mount func(receiver H, s *Service, e *Endpoint, op huma.Operation)
}

// Unsupported returns an endpoint without a handler for a section whose handlers are methods of H.
func Unsupported[H any](e Endpoint) EndpointOf[H] { return EndpointOf[H]{Endpoint: e} }

// Handle returns an endpoint that a method serves.
func Handle[H, I, T any](method func(H, context.Context, *Caller, *I) (Response[T], error), e Endpoint) EndpointOf[H] {
	e.input = reflect.TypeFor[I]()
	return EndpointOf[H]{Endpoint: e, mount: func(receiver H, s *Service, e *Endpoint, op huma.Operation) {
		serve := func(ctx context.Context, c *Caller, in *I) (Response[T], error) {
			if e.ReadsHistory {
				end, err := s.waitForHistoryRead(ctx, c, in)
				if err != nil {
					return Response[T]{}, err
				}
				defer end()
			}
			return method(receiver, ctx, c, in)
		}
		huma.Register(boundedAPI{API: s.api, method: op.Method, path: op.Path}, op, func(ctx context.Context, in *I) (*Response[T], error) {
			c := callerOf(ctx)
			out, err := serve(ctx, c, in)
			if err != nil {
				return nil, s.namesFor(c).problem(ctx, s.ProblemOf(ctx, err))
			}
			s.NameObjects(ctx, c, &out.Body)
			if out.Status == 0 {
				out.Status = op.DefaultStatus
			}
			if out.Location != "" {
				out.Location = "/v1/projects/" + c.ProjectID.String() + out.Location
			}
			return &out, nil
		})
	}}
}

// resourceExtension says in the description which resource an ID in the path or the query belongs to.
const resourceExtension = "x-resource"

// resourcesOf returns the resources of the parameters of an input that take an ID, by the names
// of the parameters.
func resourcesOf(input reflect.Type) map[string]string {
	out := map[string]string{}
	for _, field := range reflect.VisibleFields(input) {
		resource := field.Tag.Get("resource")
		for _, in := range []string{"path", "query"} {
			if name, _, _ := strings.Cut(field.Tag.Get(in), ","); name != "" && resource != "" {
				out[name] = resource
			}
		}
	}
	return out
}
