// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// TestSend_StatusLineDecides: the status line decides about an attempt, however the body ends.
func TestSend_StatusLineDecides(t *testing.T) {
	t.Parallel()
	body := io.MultiReader(strings.NewReader("drop"), iotest.ErrReader(errors.New("drips until the time is over")))
	saw := resultOfResponse(&http.Response{StatusCode: http.StatusAccepted, Body: io.NopCloser(body)})
	require.Empty(t, saw.class)
	require.Equal(t, "drop", saw.response)
	saw = resultOfResponse(&http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(strings.Repeat("x", 2*store.MaxExcerpt)))})
	require.Len(t, saw.response, store.MaxExcerpt)
}

// TestEnvelope_Fields: the envelope has exactly nine fields, with the values of the run.
func TestEnvelope_Fields(t *testing.T) {
	t.Parallel()
	started := time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)
	ended := started.Add(time.Minute)
	run := store.Run{
		ID: uuid.MustParse("00000000-0000-7000-8000-000000000001"), AgentName: "hello", Status: store.RunCompleted, Output: "Hi", FinishReason: "stop",
		Usage:     store.TokenUsage{InputTokens: 1, OutputTokens: 2, ThinkingTokens: 3, CachedInputTokens: 4, TotalTokens: 5},
		StartedAt: &started, EndedAt: &ended,
	}
	failed := run
	failed.Status, failed.Output, failed.Error, failed.StartedAt, failed.FinishReason = store.RunFailed, "", "why", nil, ""
	const id, usage = `{"run_id":"00000000-0000-7000-8000-000000000001","agent_name":"hello",`,
		`"ended_at":"2026-01-02T03:05:05.6Z","token_usage":{"input_tokens":1,"output_tokens":2,"thinking_tokens":3,"cached_input_tokens":4,"total_tokens":5}}`
	for want, of := range map[string]store.Run{
		id + `"status":"completed","output":"Hi","finish_reason":"stop","error":null,"started_at":"2026-01-02T03:04:05.6Z",` + usage: run,
		id + `"status":"failed","output":"","finish_reason":null,"error":"why","started_at":null,` + usage:                           failed,
	} {
		t.Run(want, func(t *testing.T) {
			got, err := envelopeOf(of)
			require.NoError(t, err)
			require.JSONEq(t, want, string(got))
		})
	}
}
