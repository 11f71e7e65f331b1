// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// AuditEntry is the REST shape of an entry of the audit log.
type AuditEntry struct {
	ID            string      `json:"id" format:"uuid"`
	At            time.Time   `json:"at" doc:"When the call began, by the database's clock."`
	Actor         AuditActor  `json:"actor"`
	Operation     string      `json:"operation" doc:"The operationId; unknown for a path that is no endpoint."`
	Method        *string     `json:"method" doc:"null where it was no call of this API."`
	Route         *string     `json:"route" doc:"null where it was no call of this API."`
	Object        AuditObject `json:"object"`
	RequestID     *string     `json:"request_id" doc:"The answer's header X-Request-Id."`
	RemoteAddress *string     `json:"remote_address"`
	EndedAt       *time.Time  `json:"ended_at" doc:"null: it is not known whether the call had its effect."`
	Status        *int        `json:"status" doc:"The HTTP status of the answer."`
	Code          *string     `json:"code" doc:"The problem's code; null for success."`
	Before        any         `json:"before" doc:"The object before, without secrets; null where there was none."`
	After         any         `json:"after" doc:"The object after, without secrets; null where there is none."`
}

// AuditActor is who acted.
type AuditActor struct {
	Kind      string  `json:"kind" enum:"api_key,command,kubernetes"`
	Name      string  `json:"name" doc:"The APIKey's name, the user's, or that of the field manager."`
	KeyID     *string `json:"key_id"`
	OwnerKind *string `json:"owner_kind"`
	OwnerName *string `json:"owner_name"`
}

// AuditObject is what was acted on.
type AuditObject struct {
	Kind *string `json:"kind"`
	ID   *string `json:"id"`
	Name *string `json:"name"`
}

// AuditLog is a page of the audit log, newest first.
type AuditLog struct {
	Items      []AuditEntry `json:"items" nullable:"false"`
	NextCursor *string      `json:"next_cursor" doc:"Asks for the next page; null on the last."`
}

// AuditLogQuery asks for a page.
type AuditLogQuery struct {
	ProjectPath
	Limit  int    `query:"limit" default:"25" minimum:"1" maximum:"100"`
	Cursor string `query:"cursor" format:"uuid" doc:"The next_cursor of the page before."`
}

// listAuditLog answers 403 to keys of some environments: entries are of all.
func (s *Server) listAuditLog(ctx context.Context, c *caller, in *AuditLogQuery) (AuditLog, error) {
	if c.key.Spec.EnvironmentAccess == v1alpha1.AccessSelected {
		return AuditLog{}, problem(http.StatusForbidden, "the audit log is of the whole project, and the key reaches some environments only")
	}
	q := store.AuditQuery{ProjectID: c.projectID, Limit: in.Limit + 1}
	if in.Cursor != "" {
		before, err := uuid.Parse(in.Cursor)
		if err != nil {
			return AuditLog{}, invalid(FieldError{Location: "query.cursor", Message: "is no cursor of this list"})
		}
		q.Before = &before
	}
	entries, err := s.store.ListAudit(ctx, q)
	if err != nil {
		return AuditLog{}, fmt.Errorf("listing the audit log: %w", err)
	}
	out := AuditLog{Items: []AuditEntry{}}
	for i, e := range entries {
		if i == in.Limit {
			out.NextCursor = opt(out.Items[i-1].ID)
			break
		}
		out.Items = append(out.Items, showAuditEntry(e))
	}
	return out, nil
}

func showAuditEntry(e store.AuditEntry) AuditEntry {
	out := AuditEntry{
		ID: e.ID.String(), At: e.At.UTC(), Operation: e.Operation, Method: opt(e.Method), Route: opt(e.Route),
		RequestID: opt(e.RequestID), RemoteAddress: opt(e.RemoteAddr),
		Actor: AuditActor{
			Kind: string(e.Actor.Kind), Name: e.Actor.Name, KeyID: opt(e.Actor.KeyID),
			OwnerKind: opt(e.Actor.OwnerKind), OwnerName: opt(e.Actor.OwnerName),
		},
	}
	object := e.Object
	if o := e.Outcome; o != nil {
		if o.Object != (store.AuditObject{}) {
			object = o.Object
		}
		out.EndedAt, out.Code, out.Before, out.After = optTime(&o.At), opt(o.Code), orNull(o.Before), orNull(o.After)
		if o.Status != 0 {
			out.Status = &o.Status
		}
	}
	out.Object = AuditObject{Kind: opt(object.Kind), ID: opt(object.ID), Name: opt(object.Name)}
	return out
}

// orNull is the document, or null.
func orNull(document json.RawMessage) any {
	if len(document) == 0 {
		return nil
	}
	return document
}
