// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

// ledger is an in-memory journal and outbox.
type ledger struct {
	entries []dispatchapi.JournalEntry
	sent    []dispatchapi.SendRequest
	err     error
}

func (l *ledger) Append(_ context.Context, entries []dispatchapi.JournalEntry) error {
	l.entries = append(l.entries, entries...)
	return nil
}

func (l *ledger) Send(_ context.Context, req dispatchapi.SendRequest) (dispatchapi.SendResponse, error) {
	l.sent = append(l.sent, req)
	return dispatchapi.SendResponse{Status: dispatchapi.SendQueued}, l.err
}

// place returns the agent of a project in an attempt with a journal.
func (l *ledger) place(t *testing.T, prior []dispatchapi.JournalEntry) *Scope {
	t.Helper()
	p, err := bundle.Parse(bundle.Files{"agents/main.yaml": []byte("name: main\nmodel: scripted/main\n"), "models/main.yaml": []byte("steps: [{text: hi}]")})
	require.NoError(t, err)
	in := Input{AgentName: "main", Project: p, Outbound: l, Journal: l, Prior: prior}
	_, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	a := &attempt{engine: New(Config{}), in: in, cancel: cancel, end: runDeadline(in), journal: newRecorder(prior, l, nil), values: &runContext{values: map[string]any{}, changed: map[string]bool{}}}
	agent := p.Agent("main")
	return &Scope{attempt: a, agent: agent, path: agent.Name, stage: &stage{agent: agent}, values: a.values}
}

// Middleware sends by the connector's name. Each position of the journal sends once.
func TestMiddleware_Sends(t *testing.T) {
	t.Parallel()
	var l ledger
	s := l.place(t, nil)
	effects := &Effects{scope: s, owner: MiddlewareOwner + "main:1"}
	for number := 1; number <= 2; number++ {
		result, err := effects.SendConnector(t.Context(), "Ops", map[string]any{"n": number})
		require.NoError(t, err)
		require.Equal(t, "queued", result.Value["status"])
	}
	want := []dispatchapi.SendRequest{
		{Mode: dispatchapi.SendByMiddleware, Name: "Ops", Position: 1, Payload: json.RawMessage(`{"n":1}`)},
		{Mode: dispatchapi.SendByMiddleware, Name: "Ops", Position: 3, Payload: json.RawMessage(`{"n":2}`)},
	}
	require.Equal(t, want, l.sent)
	require.NoError(t, s.journal.flushPending(t.Context()))
	require.Len(t, l.entries, 4)

	for cut := range l.entries {
		again := ledger{}
		resumed := again.place(t, slices.Clone(l.entries[:cut]))
		effects := &Effects{scope: resumed, owner: MiddlewareOwner + "main:1"}
		for number := 1; number <= 2; number++ {
			result, err := effects.SendConnector(t.Context(), "Ops", map[string]any{"n": number})
			require.NoError(t, err)
			require.Equal(t, "queued", result.Value["status"])
		}
		require.Equal(t, want[cut/2:], again.sent, "cut at %d", cut)
	}
}

func TestMiddleware_GetsRejection(t *testing.T) {
	t.Parallel()
	l := ledger{err: &dispatchapi.RejectedError{Detail: "no link"}}
	refused, err := (&Effects{scope: l.place(t, nil), owner: MiddlewareOwner}).SendConnector(t.Context(), "Ops", 1)
	require.NoError(t, err)
	require.Equal(t, Result{Error: "no link"}, refused)

	l.err = errors.New("away")
	s := l.place(t, nil)
	_, err = (&Effects{scope: s, owner: MiddlewareOwner}).SendConnector(t.Context(), "Ops", 1)
	require.ErrorIs(t, err, ErrStopped, "another attempt asks again")
}

// A call ID of a model never equals a call ID of middleware, whatever its service returns.
func TestMiddleware_HasReservedCallIDs(t *testing.T) {
	t.Parallel()
	var l ledger
	s := l.place(t, nil)
	var a modelAnswer
	require.NoError(t, json.Unmarshal([]byte(`{"content":{"parts":[{"functionCall":{"id":"middleware:main:1","name":"tell"}}]}}`), &a))
	got, err := s.journal.recordAnswer(a)
	require.NoError(t, err)
	require.Equal(t, "call_1", got.Content.Parts[0].Call.ID)
}
