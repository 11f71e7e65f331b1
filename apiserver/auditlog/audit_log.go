// SPDX-License-Identifier: Apache-2.0

// Package auditlog serves the audit log of a project.
package auditlog

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// API serves the audit log.
type API struct{ Service *rest.Service }

// Section has the endpoints of the audit log; API serves them.
var Section = rest.Section[*API]{
	Name: "audit log", Doc: "Changes and their actors.",
	Endpoints: []rest.EndpointOf[*API]{
		listAuditLog,
	},
}

// AuditEntry is the REST shape of an entry of the audit log.
type AuditEntry struct {
	ID            string      `json:"id" format:"uuid" doc:"The entry's ID."`
	At            time.Time   `json:"at" doc:"When the call started, by the database clock."`
	Actor         AuditActor  `json:"actor" doc:"The actor."`
	Operation     string      `json:"operation" doc:"The operationId; unknown for a path without an endpoint." example:"createConnector"`
	Method        *string     `json:"method" doc:"The HTTP method; null if the entry is not a call of this API." example:"POST"`
	Route         *string     `json:"route" doc:"The path with the names of its parameters; null if the entry is not a call of this API."`
	Object        AuditObject `json:"object" doc:"The object of the operation."`
	RequestID     *string     `json:"request_id" doc:"The X-Request-Id header of the response."`
	RemoteAddress *string     `json:"remote_address" doc:"The source address of the request."`
	EndedAt       *time.Time  `json:"ended_at" doc:"When the call ended; null if it is unknown whether the call took effect."`
	Status        *int        `json:"status" doc:"The HTTP status of the response."`
	Code          *string     `json:"code" doc:"The code of the problem; null for success."`
	Before        rest.Object `json:"before" doc:"The object before the call, without secrets; null if it did not exist."`
	After         rest.Object `json:"after" doc:"The object after the call, without secrets; null if it does not exist."`
}

func (AuditEntry) Doc() string {
	return "An entry of the audit log: the actor, the operation, the object, the source and the outcome."
}

// AuditActor is the actor of an entry.
type AuditActor struct {
	Kind      AuditActorKind `json:"kind" doc:"The way in which the actor acted."`
	Name      string         `json:"name" doc:"The name of the APIKey, the user or the field manager."`
	KeyID     *string        `json:"key_id" doc:"The ID that is part of the API key."`
	OwnerKind *string        `json:"owner_kind" doc:"The kind of the key's owner: User or ServiceAccount."`
	OwnerName *string        `json:"owner_name" doc:"The name of the key's owner."`
}

func (AuditActor) Doc() string { return "The actor of an audit log entry." }

// AuditObject is the object of an entry.
type AuditObject struct {
	Kind *string `json:"kind" doc:"The kind of the object in this API." example:"connector"`
	ID   *string `json:"id" doc:"The object's ID."`
	Name *string `json:"name" doc:"The object's name."`
}

func (AuditObject) Doc() string { return "The object of an audit log entry." }

// AuditLog is a page of the audit log, newest first.
type AuditLog struct {
	Items      []AuditEntry `json:"items" doc:"The entries of this page, newest first."`
	NextCursor *string      `json:"next_cursor" doc:"The cursor of the next page; null on the last page."`
}

func (AuditLog) Doc() string { return "A page of the audit log." }

// AuditLogQuery selects a page.
type AuditLogQuery struct {
	rest.ProjectPath
	rest.PageQuery
}

var listAuditLog = rest.Handle((*API).listAuditLog, rest.Endpoint{
	Method: rest.Get, Path: "/audit-log", ID: "listAuditLog",
	Permissions: rest.Requires("audit_logs.view"), Errors: rest.CommonErrors,
	Summary: "List the audit log",
	Doc: "Returns the newest entries first: calls of this API that can change something, accepted or rejected, except calls " +
		"over the rate limit; created and revoked API keys; and commands of the platform operator on the project. Returns 403 " +
		"for keys that are limited to some environments.",
	Example:      rest.Example{Path: "/audit-log"},
	ReadsHistory: true,
})

// listAuditLog returns 403 for keys that are limited to some environments, because the entries are of all environments.
func (s *API) listAuditLog(ctx context.Context, c *rest.Caller, in *AuditLogQuery) (rest.Response[AuditLog], error) {
	if c.Key.Spec.EnvironmentAccess == v1alpha1.AccessSelected {
		return rest.Response[AuditLog]{}, rest.NewProblem(http.StatusForbidden, httpserver.CodeForbidden,
			"the audit log covers the whole project, but the key is limited to some environments")
	}
	before, err := in.Before(rest.AuditCursor)
	if err != nil {
		return rest.Response[AuditLog]{}, err
	}
	entries, err := s.Service.Store.ListAudit(ctx, store.AuditQuery{ProjectID: c.ProjectID, Limit: in.ReadLimit(), Before: before})
	if err != nil {
		return rest.Response[AuditLog]{}, fmt.Errorf("listing the audit log: %w", err)
	}
	entries, cursor := rest.CutPage(in.PageQuery, rest.AuditCursor, entries, nil, func(e store.AuditEntry) uuid.UUID { return e.ID })
	return rest.NewResponse(AuditLog{Items: rest.ShowAll(entries, showAuditEntry), NextCursor: cursor}, nil)
}

func showAuditEntry(e store.AuditEntry) AuditEntry {
	out := AuditEntry{
		ID: e.ID.String(), At: e.At.UTC(), Operation: e.Operation, Method: rest.Optional(e.Method), Route: rest.Optional(e.Route),
		RequestID: rest.Optional(e.RequestID), RemoteAddress: rest.Optional(e.RemoteAddr),
		Actor: AuditActor{
			Kind: AuditActorKind(e.Actor.Kind), Name: e.Actor.Name, KeyID: rest.Optional(e.Actor.KeyID),
			OwnerKind: rest.Optional(e.Actor.OwnerKind), OwnerName: rest.Optional(e.Actor.OwnerName),
		},
	}
	object := e.Object
	if o := e.Outcome; o != nil {
		if o.Object != (store.AuditObject{}) {
			object = o.Object
		}
		out.EndedAt, out.Code, out.Before, out.After = rest.OptionalTime(&o.At), rest.Optional(o.Code), rest.Object(o.Before), rest.Object(o.After)
		if o.Status != 0 {
			out.Status = &o.Status
		}
	}
	out.Object = AuditObject{Kind: rest.Optional(object.Kind), ID: rest.Optional(object.ID), Name: rest.Optional(object.Name)}
	return out
}

// AuditActorKind is how an actor acted.
type AuditActorKind string

func (AuditActorKind) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "AuditActorKind", "The way in which an actor acted: through this API, with a command of the platform operator, or by writing "+
		"an object through the Kubernetes API.", "api_key", "command", "kubernetes")
}
