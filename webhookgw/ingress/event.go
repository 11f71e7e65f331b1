// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// newEvent makes the rows of a request as the route has it: one run for each link.
func newEvent(route store.Route, req request) (store.Event, error) {
	event := store.Event{
		ConnectorRunID: req.run, ProjectID: route.Connector.ProjectID, EnvironmentID: route.Connector.EnvironmentID,
		ConnectorID: route.Connector.ID, ConnectorVersion: route.Connector.Version, Trigger: store.TriggerWebhook,
		ContentType: typeJSON, Idempotency: req.idempotency, InputBlob: req.blob,
	}
	if req.blob == nil {
		event.Input = req.body
	}
	if s := accepted(route.Connector.Secrets, req.facts.secrets); s != nil && route.Connector.RequireAuthentication {
		event.SecretNotAfter = s.NotAfter
	}
	for _, link := range route.Links {
		run, err := uuid.NewV7()
		if err != nil {
			return store.Event{}, fmt.Errorf("making an id: %w", err)
		}
		event.Runs = append(event.Runs, store.EventRun{ID: run, LinkID: link.ID, AgentName: link.AgentName})
	}
	return event, nil
}

// spool writes a body that is too large for a row into a blob.
func (h *Handler) spool(ctx context.Context, project uuid.UUID, body []byte) (*uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("making an id: %w", err)
	}
	if _, err := h.opts.Store.PutBlob(ctx, store.Key{ProjectID: project, ID: id}, bytes.NewReader(body)); err != nil {
		return nil, fmt.Errorf("storing the body: %w", err)
	}
	return &id, nil
}

// idempotencyOf reads the key that makes a repeated request the same one: the
// caller's own, which also compares bodies, or that of Standard Webhooks.
func idempotencyOf(r *http.Request, body []byte) (*store.Idempotency, error) {
	name, source := r.Header.Get("Idempotency-Key"), "Idempotency-Key"
	var fingerprint []byte
	if name != "" {
		sum := sha256.Sum256(body)
		fingerprint = sum[:]
	} else {
		name, source = r.Header.Get("Webhook-Id"), "webhook-id"
	}
	switch {
	case name == "":
		return nil, nil
	case len(name) > maxIdempotencyKey:
		return nil, httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeKeyTooLong,
			fmt.Sprintf("The header %s has more than %d bytes.", source, maxIdempotencyKey))
	case strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' }):
		return nil, httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeKeyInvalid,
			fmt.Sprintf("The header %s may hold printable ASCII only.", source))
	}
	return &store.Idempotency{Key: strings.ToLower(source) + ":" + name, Fingerprint: fingerprint, TTL: idempotencyTTL}, nil
}
