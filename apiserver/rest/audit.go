// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/redact"
	"github.com/agentplatform/agentplatform/store"
)

// trail records a request for the audit log. Calls that change something are recorded twice: before the call, once the
// caller is known, and after it, with the outcome. If the first write fails, the call does nothing and returns 503. If
// only the second write fails, the response stands, the entry has no outcome, and the server logs the error.
type trail struct {
	address   netip.Addr
	requestID string
	// arrived is the arrival time of the request.
	arrived time.Time
	// changes reports that the method can change something.
	changes bool
	entry   store.AuditEntry // its ID is nil until the call is recorded
	outcome store.AuditOutcome

	// gone is closed if the client disconnects or the server ends the request.
	gone <-chan struct{}
	// header is the header of the response.
	header http.Header
	// path and query are the normalized path and query of the request. body is the digest of the body that was read.
	path, query string
	body        hash.Hash
}

type trailKey struct{}

// trailOf returns the trail that follow put into the context.
func trailOf(ctx context.Context) *trail { return ctx.Value(trailKey{}).(*trail) }

// ClientGone returns a channel that closes when the client disconnects or the server ends the request.
func ClientGone(ctx context.Context) <-chan struct{} { return trailOf(ctx).gone }

// RequestDigest identifies path, query and body of a request.
func RequestDigest(ctx context.Context) []byte { return []byte(trailOf(ctx).digest()) }

// RecordChange records the object before and after a call. before is nil for a created object, after for a deleted one.
func RecordChange(ctx context.Context, object store.AuditObject, before, after any) {
	t := trailOf(ctx)
	t.outcome.Object = object
	t.outcome.Before = redact.JSON(before, store.MaxAuditDocument)
	t.outcome.After = redact.JSON(after, store.MaxAuditDocument)
}

// follow handles all routes. It gives each request an ID, and withholds the response to a call that changes something
// until its outcome is recorded.
func (s *Service) follow(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := &trail{
			address: s.TrustedProxies.Client(r), requestID: uuid.NewString(), arrived: s.Now(), changes: changes(r.Method), header: w.Header(),
			path: strings.ToLower(r.URL.Path), query: r.URL.Query().Encode(), body: sha256.New(),
			gone: r.Context().Done(),
		}
		w.Header().Set("X-Request-Id", t.requestID)
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), trailKey{}, t), s.RequestTimeout)
		defer cancel()
		r = r.WithContext(ctx)
		if !t.changes {
			next.ServeHTTP(w, r)
			return
		}
		r.Body = digested{io.TeeReader(r.Body, t.body), r.Body}
		held := &heldAnswer{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(held, r)
		s.conclude(r.Context(), t, held)
		held.send()
	})
}

// digested is a body that computes its digest while it is read.
type digested struct {
	io.Reader
	io.Closer
}

// changes reports whether a method can change something.
func changes(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// identify authenticates a request and asks allowed. Once the caller is known, the request counts toward a rate limit of
// the project: requests with status 403 or 405 toward their own limit. Calls that change something are recorded then.
func (s *Service) identify(ctx context.Context, header, project string, act store.AuditEntry, allowed func(*Caller) error) (*Caller, error) {
	c, err := s.authenticate(ctx, header, project)
	t := trailOf(ctx)
	switch {
	case c == nil && isStatus(err, http.StatusUnauthorized):
		s.refusals.Add(t.address, string(httpserver.CodeUnauthorized))
	case c != nil:
		if err == nil {
			err = allowed(c)
		}
		if err := s.takeRequest(ctx, c, isStatus(err, http.StatusForbidden) || isStatus(err, http.StatusMethodNotAllowed)); err != nil {
			return nil, err
		}
		if t.changes {
			if err := s.recordCall(ctx, c, act); err != nil {
				return nil, err
			}
		}
	}
	return c, err
}

// isStatus reports whether the response to an error has a status.
func isStatus(err error, status int) bool {
	var p Problem
	return errors.As(err, &p) && p.Status == status
}

// recordCall records a call before it changes something.
func (s *Service) recordCall(ctx context.Context, c *Caller, act store.AuditEntry) error {
	t := trailOf(ctx)
	act.ProjectID, act.RequestID = c.ProjectID, t.requestID
	act.Actor = store.AuditActor{
		Kind: store.AuditAPIKey, Name: c.Key.Name, KeyID: c.Key.Spec.KeyID,
		OwnerKind: string(c.Key.Spec.Owner.Kind), OwnerName: c.Key.Spec.Owner.Name,
	}
	if t.address.IsValid() {
		act.RemoteAddr = t.address.String()
	}
	bounded, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	id, err := s.Store.RecordAudit(bounded, act)
	switch {
	case err != nil && ctx.Err() != nil: // the client has disconnected
		return NewProblem(http.StatusServiceUnavailable, httpserver.CodeGivenUp, "the client cancelled the request")
	case err != nil:
		s.Logger.ErrorContext(ctx, "rejecting a call because the audit log cannot be written", "request", t.requestID, "error", err)
		return NewProblem(http.StatusServiceUnavailable, httpserver.CodeNotRecorded, "the call could not be recorded in the audit log, and nothing was done; try again")
	}
	act.ID = id
	t.entry = act
	return nil
}

// conclude records the outcome of a recorded call.
func (s *Service) conclude(ctx context.Context, t *trail, answer *heldAnswer) {
	if t.entry.ID == uuid.Nil {
		return
	}
	o := t.outcome
	o.Status, o.Code = answer.status, answer.code()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	if err := s.Store.RecordAuditOutcome(ctx, t.entry.ProjectID, t.entry.ID, o); err != nil {
		s.Logger.ErrorContext(ctx, "recording the outcome of a call in the audit log failed",
			"entry", t.entry.ID, "request", t.requestID, "operation", t.entry.Operation, "status", o.Status, "error", err)
	}
}

// auditEntryOf returns the audit entry of a request, without its actor.
func auditEntryOf(ctx huma.Context) store.AuditEntry {
	op := ctx.Operation()
	out := store.AuditEntry{Operation: op.OperationID, Method: op.Method, Route: op.Path, IdempotencyKey: ctx.Header("Idempotency-Key")}
	out.Object.Kind, out.Object.ID = targetOf(op.Path, ctx.Param)
	return out
}

// targetOf returns kind and ID of the last object in a path: connector and its ID for …/connectors/{connector_id}/links.
// In a path without an object this is the project.
func targetOf(path string, param func(string) string) (kind, id string) {
	from := strings.LastIndexByte(path, '{') + 1
	name, _, _ := strings.Cut(path[from:], "}")
	kind, _, _ = strings.Cut(name, "_")
	return kind, param(name)
}

// heldAnswer buffers a response. Calls that change something have small responses.
type heldAnswer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (h *heldAnswer) WriteHeader(status int) { h.status = status }

func (h *heldAnswer) Write(p []byte) (int, error) { return h.body.Write(p) }

// Unwrap supports http.ResponseController.
func (h *heldAnswer) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// code returns the code of the problem in the response, or "" for a success.
func (h *heldAnswer) code() string {
	var p Problem
	if h.status < http.StatusBadRequest || json.Unmarshal(h.body.Bytes(), &p) != nil {
		return ""
	}
	return cmp.Or(string(p.Code), "unknown")
}

func (h *heldAnswer) send() {
	h.ResponseWriter.WriteHeader(h.status)
	_, _ = h.ResponseWriter.Write(h.body.Bytes()) // the client may have disconnected
}
