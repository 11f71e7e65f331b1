// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// AuditEntry is the REST shape of an entry of the audit log.
type AuditEntry struct {
	ID            string      `json:"id" format:"uuid" doc:"The entry's id."`
	At            time.Time   `json:"at" doc:"When the call began, by the database's clock."`
	Actor         AuditActor  `json:"actor" doc:"Who acted."`
	Operation     string      `json:"operation" doc:"The operationId; unknown for a path that is not an endpoint." example:"createConnector"`
	Method        *string     `json:"method" doc:"The HTTP method; null where it was no call of this API." example:"POST"`
	Route         *string     `json:"route" doc:"The path with its parameters' names; null where it was no call of this API."`
	Object        AuditObject `json:"object" doc:"What was acted on."`
	RequestID     *string     `json:"request_id" doc:"The answer's header X-Request-Id."`
	RemoteAddress *string     `json:"remote_address" doc:"Where the request came from."`
	EndedAt       *time.Time  `json:"ended_at" doc:"When it was over; null: it is not known whether the call had its effect."`
	Status        *int        `json:"status" doc:"The HTTP status of the answer."`
	Code          *string     `json:"code" doc:"The problem's code; null for success."`
	Before        Object      `json:"before" doc:"The object before, without secrets; null where there was none."`
	After         Object      `json:"after" doc:"The object after, without secrets; null where there is none."`
}

// AuditActor is who acted.
type AuditActor struct {
	Kind      AuditActorKind `json:"kind" doc:"How somebody acted."`
	Name      string         `json:"name" doc:"The APIKey's name, the user's, or that of the field manager."`
	KeyID     *string        `json:"key_id" doc:"The id that is part of the API key."`
	OwnerKind *string        `json:"owner_kind" doc:"What the key's owner is: User or ServiceAccount."`
	OwnerName *string        `json:"owner_name" doc:"Whose key it is."`
}

// AuditObject is what was acted on.
type AuditObject struct {
	Kind *string `json:"kind" doc:"The noun of this API." example:"connector"`
	ID   *string `json:"id" doc:"Its id."`
	Name *string `json:"name" doc:"Its name."`
}

// AuditLog is a page of the audit log, newest first.
type AuditLog struct {
	Items      []AuditEntry `json:"items" doc:"The entries of this page, newest first."`
	NextCursor *string      `json:"next_cursor" doc:"Asks for the next page; null on the last."`
}

// AuditLogQuery asks for a page.
type AuditLogQuery struct {
	ProjectPath
	Limit  int    `query:"limit" default:"25" minimum:"1" maximum:"100" doc:"The most items of a page."`
	Cursor string `query:"cursor" doc:"The next_cursor of the page before."`
}

// listAuditLog answers 403 to keys of some environments: entries are of all.
func (s *Server) listAuditLog(ctx context.Context, c *caller, in *AuditLogQuery) (answer[AuditLog], error) {
	if c.key.Spec.EnvironmentAccess == v1alpha1.AccessSelected {
		return answer[AuditLog]{}, problem(http.StatusForbidden, httpserver.CodeForbidden,
			"the audit log is of the whole project, and the key reaches some environments only")
	}
	q := store.AuditQuery{ProjectID: c.projectID, Limit: in.Limit + 1}
	if in.Cursor != "" {
		var err error
		if q.Before, err = readCursor(auditCursor, in.Cursor); err != nil {
			return answer[AuditLog]{}, err
		}
	}
	entries, err := s.store.ListAudit(ctx, q)
	if err != nil {
		return answer[AuditLog]{}, fmt.Errorf("listing the audit log: %w", err)
	}
	out := AuditLog{Items: []AuditEntry{}}
	for i, e := range entries {
		if i == in.Limit {
			out.NextCursor = cursorAfter(auditCursor, entries[i-1].ID)
			break
		}
		out.Items = append(out.Items, showAuditEntry(e))
	}
	return plainly(out, nil)
}

func showAuditEntry(e store.AuditEntry) AuditEntry {
	out := AuditEntry{
		ID: e.ID.String(), At: e.At.UTC(), Operation: e.Operation, Method: opt(e.Method), Route: opt(e.Route),
		RequestID: opt(e.RequestID), RemoteAddress: opt(e.RemoteAddr),
		Actor: AuditActor{
			Kind: AuditActorKind(e.Actor.Kind), Name: e.Actor.Name, KeyID: opt(e.Actor.KeyID),
			OwnerKind: opt(e.Actor.OwnerKind), OwnerName: opt(e.Actor.OwnerName),
		},
	}
	object := e.Object
	if o := e.Outcome; o != nil {
		if o.Object != (store.AuditObject{}) {
			object = o.Object
		}
		out.EndedAt, out.Code, out.Before, out.After = optTime(&o.At), opt(o.Code), Object(o.Before), Object(o.After)
		if o.Status != 0 {
			out.Status = &o.Status
		}
	}
	out.Object = AuditObject{Kind: opt(object.Kind), ID: opt(object.ID), Name: opt(object.Name)}
	return out
}
