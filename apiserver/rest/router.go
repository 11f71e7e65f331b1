// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/unsupported"
)

// anyMedia stands for all media types in the description of a response.
const anyMedia = "*/*"

// EventsType is the media type of a stream of events.
const EventsType = "text/event-stream"

// jsonMedia is the media type of requests and responses.
const jsonMedia = "application/json"

// register mounts an endpoint.
func (s *Service) register(e *boundEndpoint) {
	op := huma.Operation{
		OperationID: e.ID, Method: e.Method, Path: PathPrefix + e.Path, DefaultStatus: e.Status,
		Tags: []string{e.Tag}, Summary: e.Summary, Description: e.Doc, Errors: slices.Clone(e.Errors), // Huma appends to it
		Security:    []map[string][]string{{"apiKey": {}}},
		Parameters:  headerParameters(e.Effect),
		Middlewares: huma.Middlewares{s.admit(&e.Endpoint)},
		Extensions:  map[string]any{"x-permission": string(e.Permissions[0].Permission)},
	}
	for _, p := range e.Permissions[1:] {
		name := "x-permission-with-" + p.With
		others, _ := op.Extensions[name].([]string)
		op.Extensions[name] = append(others, string(p.Permission))
	}
	if e.Upload != nil {
		op.RequestBody = e.Upload.describe()
	}
	if e.File {
		op.Responses = map[string]*huma.Response{strconv.Itoa(e.Status): {
			Description: "The file, of the type in Content-Type.", Content: map[string]*huma.MediaType{anyMedia: {}},
		}}
	}
	if e.Stream {
		op.Responses = map[string]*huma.Response{strconv.Itoa(e.Status): {
			Description: "A stream of events.", Content: map[string]*huma.MediaType{EventsType: {Schema: &huma.Schema{Type: huma.TypeString}}},
		}}
	}
	if !e.IsSupported() {
		op.Hidden = true
		Handle((*Service).notImplemented, e.Endpoint).mount(s, s, &e.Endpoint, op)
		return
	}
	e.mount(s, op)
	e.complete(OperationOf(s.api.OpenAPI(), &e.Endpoint))
}

// complete adds to an operation what huma cannot derive from the input of a handler.
func (e *Endpoint) complete(op *huma.Operation) {
	resources := resourcesOf(e.input)
	for _, p := range op.Parameters {
		if resource := resources[p.Name]; resource != "" {
			p.Schema.Extensions = map[string]any{resourceExtension: resource}
		}
	}
	if e.Example.Body != "" {
		op.RequestBody.Content[jsonMedia].Example = json.RawMessage(e.Example.Body)
	}
}

// OperationOf returns the operation of an endpoint in the description.
func OperationOf(api *huma.OpenAPI, e *Endpoint) *huma.Operation {
	return operationAt(api, e.Method, PathPrefix+e.Path)
}

// operationAt returns an operation in the description, or nil.
func operationAt(api *huma.OpenAPI, method, path string) *huma.Operation {
	item := api.Paths[path]
	if item == nil {
		return nil
	}
	return map[string]*huma.Operation{Get: item.Get, Post: item.Post, Put: item.Put, Patch: item.Patch, Delete: item.Delete}[method]
}

// admit lets a request pass if its key belongs to the project in the path and has the permissions,
// if the project has requests left, and if the endpoint knows the query and the headers. It returns
// 401, 403, 429 and 501 before it reads anything else of the request.
func (s *Service) admit(e *Endpoint) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		c, err := s.identify(ctx.Context(), ctx.Header("Authorization"), ctx.Param("project_id"), auditEntryOf(ctx), func(c *Caller) error {
			for _, p := range e.Permissions {
				if p.InBody || p.With != "" && ctx.Query(p.With) == "" {
					continue
				}
				if err := s.Require(ctx.Context(), c, p.Permission); err != nil {
					return err
				}
			}
			return nil
		})
		switch {
		case err != nil:
		case !e.IsSupported():
			err = notInThisRelease(e)
		default:
			if err = checkQuery(ctx); err == nil {
				err = c.readHeaders(ctx, e)
			}
			if err == nil && e.Upload == nil && ctx.Operation().RequestBody != nil {
				err = checkCharset(ctx.Header("Content-Type"))
			}
		}
		if err != nil {
			s.refuse(ctx, s.ProblemOf(ctx.Context(), err))
			return
		}
		next(huma.WithValue(ctx, callerKey{}, c))
	}
}

// refuse responds with a problem.
func (s *Service) refuse(ctx huma.Context, p Problem) {
	for name, values := range p.GetHeaders() {
		ctx.SetHeader(name, values[0])
	}
	ctx.SetHeader("Content-Type", httpserver.ProblemType)
	ctx.SetStatus(p.Status)
	if err := s.api.Marshal(ctx.BodyWriter(), httpserver.ProblemType, p); err != nil {
		s.Logger.DebugContext(ctx.Context(), "the client left before the response", "error", err)
	}
}

// notImplemented is the handler of endpoints that are not in this release; admit responds before it.
func (s *Service) notImplemented(context.Context, *Caller, *ProjectPath) (Response[Done], error) {
	return Response[Done]{}, notInThisRelease(&Endpoint{})
}

func notInThisRelease(e *Endpoint) Problem {
	detail := "this endpoint is not in this release"
	if e.Alternative != "" {
		detail += "; " + e.Alternative
	}
	return NewProblem(http.StatusNotImplemented, httpserver.CodeNotImplemented, detail)
}

// notSupported is the error of a field that has no effect in this release.
func notSupported(location string) FieldError {
	return FieldError{Location: location, Message: "is not supported in this release"}
}

// isForLater reports whether a field has a value that this release does not support. Items of lists have locations such
// as list[0].
func isForLater(location string, value any) bool {
	text, _ := value.(string)
	location, _, _ = strings.Cut(location, "[")
	part, field, _ := strings.Cut(location, ".")
	return text != "" && unsupported.Has(unsupported.Location(part), field, text)
}
