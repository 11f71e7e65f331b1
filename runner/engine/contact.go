// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"net/url"
	"sync"

	"github.com/agentplatform/agentplatform/internal/redact"
	"github.com/agentplatform/agentplatform/internal/runtrace"
)

// contact is what an action has reached. It is part of journals, and only traces use it.
type contact struct {
	Server *runtrace.Server  `json:"server,omitempty"`
	MCP    *runtrace.MCPCall `json:"mcp,omitempty"`
}

// contactRecord is the contact of an action in progress. Requests in the background can outlive the action.
type contactRecord struct {
	mu sync.Mutex
	contact
}

type contactKey struct{}

// withContact returns a context for the requests of an action, and the record of its contact.
func withContact(ctx context.Context) (context.Context, *contactRecord) {
	record := &contactRecord{}
	return context.WithValue(ctx, contactKey{}, record), record
}

func (r *contactRecord) current() contact {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.contact
}

// RecordServer records the server that the current action sends its request to, unless its name or a part of it is secret.
func RecordServer(ctx context.Context, to *url.URL, hidden *redact.Secrets) {
	record, ok := ctx.Value(contactKey{}).(*contactRecord)
	server := runtrace.ServerOf(to)
	if !ok || server == nil || hidden.Overlaps(to.Hostname()) {
		return
	}
	record.mu.Lock()
	defer record.mu.Unlock()
	record.Server = server
}

// RecordMCPCall records the session and the tool of the current action.
func RecordMCPCall(ctx context.Context, call runtrace.MCPCall) {
	record, ok := ctx.Value(contactKey{}).(*contactRecord)
	if !ok {
		return
	}
	record.mu.Lock()
	defer record.mu.Unlock()
	record.MCP = &call
}
