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

// trail is what is known of a request for the audit log. A call that changes
// something is recorded in two steps: who wants what, once the key is known and
// before anything else is done, and then what became of it. Where the first
// cannot be written nothing is done, and the answer is 503. Where only the second
// cannot be, the answer stands, the entry stays without an outcome, and the
// server's own log says so.
type trail struct {
	address   netip.Addr
	requestID string
	// arrived is when the request came.
	arrived time.Time
	// changes says whether the method is one that changes something.
	changes bool
	entry   store.AuditEntry // its id is nil until the first step
	outcome store.AuditOutcome

	// gone is closed when the client has gone, or the server breaks the request off.
	gone <-chan struct{}
	// header is that of the answer.
	header http.Header
	// path and query are the request's, in one form, and body is the digest of what
	// was read of its body.
	path, query string
	body        hash.Hash
}

type trailKey struct{}

// trailOf is the trail that follow put into the context.
func trailOf(ctx context.Context) *trail { return ctx.Value(trailKey{}).(*trail) }

// ClientGone returns a channel that closes when the client disconnects or the server ends the request.
func ClientGone(ctx context.Context) <-chan struct{} { return trailOf(ctx).gone }

// RequestDigest identifies path, query and body of a request.
func RequestDigest(ctx context.Context) []byte { return []byte(trailOf(ctx).digest()) }

// RecordChange notes what a call has changed: the object as it is shown, before (nil
// when it was created) and after (nil when it was deleted).
func RecordChange(ctx context.Context, object store.AuditObject, before, after any) {
	t := trailOf(ctx)
	t.outcome.Object = object
	t.outcome.Before = redact.JSON(before, store.MaxAuditDocument)
	t.outcome.After = redact.JSON(after, store.MaxAuditDocument)
}

// follow is around all routes: it gives each request an id, and holds back the
// answer to one that changes something until its outcome is recorded.
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

// digested is a body whose digest is taken while it is read.
type digested struct {
	io.Reader
	io.Closer
}

// changes says whether a method may change something.
func changes(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// identify authenticates a request and asks whether the caller is allowed to send it. Once the key is
// known the request counts against the limit of the key's project, or against that of its refused
// requests where it is answered 403 or 405. Where the limit lets it through its entry in the audit log
// begins.
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
		if err := s.take(ctx, c, isStatus(err, http.StatusForbidden) || isStatus(err, http.StatusMethodNotAllowed)); err != nil {
			return nil, err
		}
		if t.changes {
			if err := s.begin(ctx, c, act); err != nil {
				return nil, err
			}
		}
	}
	return c, err
}

// isStatus says whether an error is answered with a status.
func isStatus(err error, status int) bool {
	var p Problem
	return errors.As(err, &p) && p.Status == status
}

// begin records that a caller wants to change something.
func (s *Service) begin(ctx context.Context, c *Caller, act store.AuditEntry) error {
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
	case err != nil && ctx.Err() != nil: // the client has gone
		return NewProblem(http.StatusServiceUnavailable, httpserver.CodeGivenUp, "the request was given up")
	case err != nil:
		s.Logger.ErrorContext(ctx, "a call is refused because the audit log cannot be written", "request", t.requestID, "error", err)
		return NewProblem(http.StatusServiceUnavailable, httpserver.CodeNotRecorded, "the call could not be recorded in the audit log, and nothing was done; try again")
	}
	act.ID = id
	t.entry = act
	return nil
}

// conclude records the outcome of a call that was begun.
func (s *Service) conclude(ctx context.Context, t *trail, answer *heldAnswer) {
	if t.entry.ID == uuid.Nil {
		return
	}
	o := t.outcome
	o.Status, o.Code = answer.status, answer.code()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	if err := s.Store.RecordAuditOutcome(ctx, t.entry.ProjectID, t.entry.ID, o); err != nil {
		s.Logger.ErrorContext(ctx, "a call stays without an outcome in the audit log",
			"entry", t.entry.ID, "request", t.requestID, "operation", t.entry.Operation, "status", o.Status, "error", err)
	}
}

// act is what the audit log is told of a request to a route.
func act(ctx huma.Context) store.AuditEntry {
	op := ctx.Operation()
	out := store.AuditEntry{Operation: op.OperationID, Method: op.Method, Route: op.Path, IdempotencyKey: ctx.Header("Idempotency-Key")}
	out.Object.Kind, out.Object.ID = named(op.Path, ctx.Param)
	return out
}

// named is the object that a path names last: connector and its id for
// …/connectors/{connector_id}/links. Where it names none, that is the project.
func named(path string, param func(string) string) (kind, id string) {
	from := strings.LastIndexByte(path, '{') + 1
	name, _, _ := strings.Cut(path[from:], "}")
	kind, _, _ = strings.Cut(name, "_")
	return kind, param(name)
}

// heldAnswer keeps an answer until it is sent. Answers of calls that change
// something are small, and ours.
type heldAnswer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (h *heldAnswer) WriteHeader(status int) { h.status = status }

// Write implements http.ResponseWriter.
func (h *heldAnswer) Write(p []byte) (int, error) { return h.body.Write(p) }

// Unwrap is for http.ResponseController.
func (h *heldAnswer) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// code is that of the problem that is answered; "" for success.
func (h *heldAnswer) code() string {
	var p Problem
	if h.status < http.StatusBadRequest || json.Unmarshal(h.body.Bytes(), &p) != nil {
		return ""
	}
	return cmp.Or(string(p.Code), "unknown")
}

func (h *heldAnswer) send() {
	h.ResponseWriter.WriteHeader(h.status)
	_, _ = h.ResponseWriter.Write(h.body.Bytes()) // the client may be gone
}
