// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/tracecontext"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
)

// newEvent returns the rows of a request for a route, with one run for each link.
func newEvent(route *webhook, req request) (store.Event, error) {
	event := store.Event{
		ConnectorRunID: req.run, ProjectID: route.Connector.ProjectID, EnvironmentID: route.Connector.EnvironmentID,
		ConnectorID: route.Connector.ID, ConnectorVersion: route.Connector.Version, Trigger: store.TriggerWebhook, Class: req.class,
		ContentType: req.input.contentType, Idempotency: req.input.idempotency, Repeat: req.input.repeat, Input: req.input.inline, InputBlob: req.input.blob,
		Files: req.input.files, Headers: req.headers, Hops: webhookapi.Hops(req.facts.header),
		Traceparent: tracecontext.FromHeader(req.facts.header),
	}
	if s := req.facts.credential(route); s != nil {
		event.SecretNotAfter = s.NotAfter
	}
	err := route.AddRuns(&event, route.filesRequired, expr.On(req.input.inline))
	return event, err
}

// admission is the result of a request, with the files of its event.
type admission struct {
	store.Admission
	files []store.File
	// runs has the proposed runs. They are valid if the request was accepted.
	runs []store.EventRun
}

// knownStatus returns the status of a run right after its commit, or "" if it is unknown. Only the store
// knows whether runs with a concurrency key wait.
func (a admission) knownStatus(i int) store.RunStatus {
	switch {
	case a.Verdict != store.Accepted || i >= len(a.runs):
		return ""
	case a.Begun != nil && a.Begun.Run.ID == a.RunIDs[i]:
		return store.RunRunning
	case a.runs[i].ErrorCode == "" && a.runs[i].Concurrency == store.ConcurrencyKey{}:
		return store.RunQueued
	}
	return ""
}

// requestKey identifies duplicate requests. It is the caller's own key, which also compares bodies,
// or that of Standard Webhooks.
type requestKey struct {
	name     string // with its source; empty without a key
	compares bool
	ttl      time.Duration // 0 means idempotencyTTL
}

// keyOfRequest reads the key of a request from its headers.
func keyOfRequest(r *http.Request) (requestKey, error) {
	key, source := r.Header.Get("Idempotency-Key"), "Idempotency-Key"
	compares := key != ""
	if key == "" {
		key, source = r.Header.Get("Webhook-Id"), "webhook-id"
	}
	return keyNamed(source, key, compares)
}

// keyNamed returns a key with its source, or none for "".
func keyNamed(source, key string, compares bool) (requestKey, error) {
	switch {
	case key == "":
		return requestKey{}, nil
	case len(key) > maxIdempotencyKey:
		return requestKey{}, httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeKeyTooLong,
			fmt.Sprintf("The header %s has more than %d bytes.", source, maxIdempotencyKey))
	case strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' }):
		return requestKey{}, httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeKeyInvalid,
			fmt.Sprintf("The header %s must contain printable ASCII characters only.", source))
	}
	return requestKey{name: strings.ToLower(source) + ":" + key, compares: compares}, nil
}

// idempotency returns the key and the digest of the body for the store.
func (k requestKey) idempotency(body *bodyUpload) *store.Idempotency {
	if k.name == "" {
		return nil
	}
	i := &store.Idempotency{Key: k.name, TTL: cmp.Or(k.ttl, idempotencyTTL)}
	if k.compares {
		i.Fingerprint = body.sum.Sum(nil)
	}
	return i
}
