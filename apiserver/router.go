// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// projectPath begins every path.
const projectPath = "/v1/projects/{project_id}"

// route is an endpoint.
type route struct {
	method, path string
	// id is the operationId: it never changes.
	id, tag string
	// summary is a line, description all that a caller should know.
	summary, description string
	// needs are the permissions; all of them.
	needs []grant
	// does says what a call does to objects.
	does effect
	// status is that of success, errors are those that the route may answer.
	status int
	errors []int
	// also is another status of success with the same body, 0 without one.
	also int
	// tagged says that success answers the ETag of one object.
	tagged bool
	// file says that success answers the bytes of a file, of whatever type.
	file bool
	// takes is a body that is streamed, of whatever is no JSON; nil without one.
	takes *rawBody
	// stream says that success answers events, as they come.
	stream bool
	// mount registers the handler; nil: the route is not in this release.
	mount func(*Server, huma.Operation)
	// instead is what to do while it is not.
	instead string
}

// anyMedia stands for every type in the description of an answer.
const anyMedia = "*/*"

// rawBody is a body that is no JSON.
type rawBody struct {
	about string
	types []string
	// tooLarge and unsupported say what 413 and 415 mean.
	tooLarge, unsupported string
}

func (b *rawBody) describe() *huma.RequestBody {
	out := &huma.RequestBody{Description: b.about, Required: true, Content: map[string]*huma.MediaType{}}
	for _, media := range b.types {
		out.Content[media] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
	}
	return out
}

// grant is a permission that a route asks for.
type grant struct {
	permission string
	// with is the query parameter, or inBody the field of the body, without which it is
	// not needed; "" always. A handler asks for what a field of the body needs.
	with   string
	inBody bool
}

// effect is what a call does to objects.
type effect int

const (
	// reads changes nothing.
	reads effect = iota
	// creates makes an object: an Idempotency-Key names it, and there is nothing
	// yet that If-Match could name.
	creates
	// alters changes or deletes the object that the path names, and heeds If-Match.
	alters
	// acts changes what no object stands behind, so that it has no ETag.
	acts
)

// ProjectPath is the part of the path that all endpoints have.
type ProjectPath struct {
	ProjectID ID `path:"project_id" doc:"The project that the key belongs to."`
}

// answer is what a handler answers.
type answer[T any] struct {
	// Status is that of the route unless a handler says otherwise.
	Status int
	// Location is the path below the project of what was created.
	Location string `header:"Location" hidden:"true"`
	ETag     string `header:"ETag" hidden:"true"`
	Body     T
}

// Done is the answer of calls that leave nothing to show.
type Done struct {
	OK bool `json:"ok" doc:"Whether it was done." example:"true"`
}

// plainly answers with what has no ETag: lists, and what no object stands behind.
func plainly[T any](body T, err error) (answer[T], error) { return answer[T]{Body: body}, err }

// created answers with an object that was made, and notes it for the audit log.
func created[T auditable](ctx context.Context, body T, o tagger, path string) answer[T] {
	changed(ctx, body.audited(), nil, body)
	return answer[T]{Location: path, ETag: etag(o), Body: body}
}

// deleted answers for an object that is gone, and notes it for the audit log.
func deleted(ctx context.Context, before auditable) answer[Done] {
	changed(ctx, before.audited(), before, nil)
	return answer[Done]{Body: Done{OK: true}}
}

// handle makes an endpoint of a handler.
func handle[I, T any](f func(*Server, context.Context, *caller, *I) (answer[T], error)) func(*Server, huma.Operation) {
	return func(s *Server, op huma.Operation) {
		huma.Register(s.api, op, func(ctx context.Context, in *I) (*answer[T], error) {
			c := callerOf(ctx)
			out, err := f(s, ctx, c, in)
			if err != nil {
				return nil, s.namesFor(c).problem(ctx, s.asProblem(ctx, err))
			}
			s.namesFor(c).rename(ctx, &out.Body)
			if out.Status == 0 {
				out.Status = op.DefaultStatus
			}
			if out.Location != "" {
				out.Location = "/v1/projects/" + c.projectID.String() + out.Location
			}
			return &out, nil
		})
	}
}

// register mounts a route. Its one middleware answers 401, 403, 429 and 501 before
// anything else is read of the request.
func (s *Server) register(r *route) {
	op := huma.Operation{
		OperationID: r.id, Method: r.method, Path: projectPath + r.path, DefaultStatus: r.status,
		Tags: []string{r.tag}, Summary: r.summary, Description: r.description, Errors: r.errors,
		Security:    []map[string][]string{{"apiKey": {}}},
		Parameters:  headerParameters(r.does),
		Middlewares: huma.Middlewares{s.admit(r)},
		Extensions:  map[string]any{"x-permission": r.needs[0].permission},
	}
	for _, g := range r.needs[1:] {
		name := "x-permission-with-" + g.with
		so, _ := op.Extensions[name].([]string)
		op.Extensions[name] = append(so, g.permission)
	}
	if r.takes != nil {
		op.RequestBody = r.takes.describe()
	}
	if r.file {
		op.Responses = map[string]*huma.Response{strconv.Itoa(r.status): {
			Description: "The file, of the type in Content-Type.", Content: map[string]*huma.MediaType{anyMedia: {}},
		}}
	}
	if r.stream {
		op.Responses = map[string]*huma.Response{strconv.Itoa(r.status): {
			Description: "Events, as they come.", Content: map[string]*huma.MediaType{eventsType: {Schema: &huma.Schema{Type: huma.TypeString}}},
		}}
	}
	if r.mount == nil {
		op.Hidden = true
		handle((*Server).notImplemented)(s, op)
		return
	}
	r.mount(s, op)
}

// admit lets pass who has a key of the path's project and the permissions, while
// the project has requests left, with a query and headers that the route knows.
func (s *Server) admit(r *route) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		c, err := s.identify(ctx.Context(), ctx.Header("Authorization"), ctx.Param("project_id"), act(ctx), func(c *caller) error {
			for _, g := range r.needs {
				if g.inBody || g.with != "" && ctx.Query(g.with) == "" {
					continue
				}
				if err := s.require(ctx.Context(), c, g.permission); err != nil {
					return err
				}
			}
			return nil
		})
		switch {
		case err != nil:
		case r.mount == nil:
			err = notInThisRelease(r)
		default:
			if err = checkQuery(ctx); err == nil {
				err = c.readHeaders(ctx, r)
			}
			if err == nil && r.takes == nil && ctx.Operation().RequestBody != nil {
				err = checkCharset(ctx.Header("Content-Type"))
			}
		}
		if err != nil {
			s.refuse(ctx, s.asProblem(ctx.Context(), err))
			return
		}
		next(huma.WithValue(ctx, callerKey{}, c))
	}
}

// refuse answers with a problem.
func (s *Server) refuse(ctx huma.Context, p Problem) {
	for name, values := range p.GetHeaders() {
		ctx.SetHeader(name, values[0])
	}
	ctx.SetHeader("Content-Type", httpserver.ProblemType)
	ctx.SetStatus(p.Status)
	if err := s.api.Marshal(ctx.BodyWriter(), httpserver.ProblemType, p); err != nil {
		s.logger.DebugContext(ctx.Context(), "the client went before its answer", "error", err)
	}
}

// notImplemented is the handler of routes that are not in this release; admit
// answers before it.
func (s *Server) notImplemented(context.Context, *caller, *ProjectPath) (answer[Done], error) {
	return answer[Done]{}, notInThisRelease(&route{})
}

func notInThisRelease(r *route) Problem {
	detail := "this endpoint is not in this release"
	if r.instead != "" {
		detail += "; " + r.instead
	}
	return problem(http.StatusNotImplemented, httpserver.CodeNotImplemented, detail)
}

// auditable is what an answer tells the audit log: which object it shows.
type auditable interface{ audited() store.AuditObject }

// row is the primary key of a row of the caller's project.
func (c *caller) row(id ID) store.Key { return store.Key{ProjectID: c.projectID, ID: uuid.UUID(id)} }
