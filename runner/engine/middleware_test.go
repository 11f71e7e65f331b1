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

// ledger is a journal and what was sent, in memory.
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

// place is the agent of a project in an attempt that has a journal.
func (l *ledger) place(t *testing.T, prior []dispatchapi.JournalEntry) *scope {
	t.Helper()
	p, err := bundle.Parse(bundle.Files{"agents/main.yaml": []byte("name: main\nmodel: scripted/main\n"), "models/main.yaml": []byte("steps: [{text: hi}]")})
	require.NoError(t, err)
	in := Input{AgentName: "main", Project: p, Outbound: l, Journal: l, Prior: prior}
	_, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	a := &attempt{engine: New(Config{}), in: in, cancel: cancel, end: endOf(in), journal: newRecorder(prior, l)}
	agent := p.Agent("main")
	return &scope{attempt: a, agent: agent, path: agent.Name, stage: &stage{agent: agent}}
}

// TestMiddlewareSends: by the connector's name, from a position of the journal of which it
// sends once.
func TestMiddlewareSends(t *testing.T) {
	t.Parallel()
	var l ledger
	s := l.place(t, nil)
	for number := 1; number <= 2; number++ {
		result, refused, err := s.sendConnector(t.Context(), number, "Ops", map[string]any{"n": number})
		require.NoError(t, err)
		require.NoError(t, refused)
		require.Equal(t, "queued", result["status"])
	}
	want := []dispatchapi.SendRequest{
		{Mode: dispatchapi.SendByMiddleware, Name: "Ops", Position: 1, Payload: json.RawMessage(`{"n":1}`)},
		{Mode: dispatchapi.SendByMiddleware, Name: "Ops", Position: 3, Payload: json.RawMessage(`{"n":2}`)},
	}
	require.Equal(t, want, l.sent)
	require.NoError(t, s.journal.flush(t.Context()))
	require.Len(t, l.entries, 4)

	for cut := range l.entries {
		again := ledger{}
		resumed := again.place(t, slices.Clone(l.entries[:cut]))
		for number := 1; number <= 2; number++ {
			result, refused, err := resumed.sendConnector(t.Context(), number, "Ops", map[string]any{"n": number})
			require.NoError(t, errors.Join(refused, err))
			require.Equal(t, "queued", result["status"])
		}
		require.Equal(t, want[cut/2:], again.sent, "cut at %d", cut)
	}
}

func TestMiddlewareHearsARefusal(t *testing.T) {
	t.Parallel()
	l := ledger{err: &dispatchapi.RejectedError{Detail: "no link"}}
	_, refused, err := l.place(t, nil).sendConnector(t.Context(), 1, "Ops", 1)
	require.NoError(t, err)
	require.EqualError(t, refused, "no link")

	l.err = errors.New("away")
	s := l.place(t, nil)
	_, refused, err = s.sendConnector(t.Context(), 1, "Ops", 1)
	require.NoError(t, refused)
	require.ErrorIs(t, err, ErrStopped, "another attempt asks again")
	require.ErrorIs(t, s.journal.failed(), ErrStopped)
}

// TestNoCallOfAModelIsMiddlewares: whatever its service calls it.
func TestNoCallOfAModelIsMiddlewares(t *testing.T) {
	t.Parallel()
	var l ledger
	s := l.place(t, nil)
	var a modelAnswer
	require.NoError(t, json.Unmarshal([]byte(`{"content":{"parts":[{"functionCall":{"id":"middleware:main:1","name":"tell"}}]}}`), &a))
	got, err := s.journal.recordAnswer(a)
	require.NoError(t, err)
	require.Equal(t, "call_1", got.Content.Parts[0].FunctionCall.ID)
}
