// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/store"
)

// ofUpload is a store with a deployment of an upload.
type ofUpload struct {
	hanging
	deployment store.Key
}

func (s *ofUpload) OpenUpload(_ context.Context, deployment store.Key) (io.ReadCloser, error) {
	if deployment != s.deployment {
		return nil, store.ErrNotFound
	}
	return io.NopCloser(strings.NewReader("an upload")), nil
}

// TestBuild_FetchesUpload: only with the token of its build.
func TestBuild_FetchesUpload(t *testing.T) {
	t.Parallel()
	st := &ofUpload{hanging: hanging{kind: store.TokenBuild}, deployment: store.Key{ProjectID: named("greedy"), ID: known}}
	h := New(Options{Store: st, Logger: slog.New(slog.DiscardHandler)})
	got := ask(t, h, "greedy", http.MethodGet, "/v1/build/upload", "")
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	require.Equal(t, "an upload", got.Body.String())
	require.Equal(t, http.StatusNotFound, ask(t, h, "modest", http.MethodGet, "/v1/build/upload", "").Code)
	st.kind = store.TokenRunner
	h = New(Options{Store: st, Logger: slog.New(slog.DiscardHandler)})
	require.Equal(t, http.StatusForbidden, ask(t, h, "greedy", http.MethodGet, "/v1/build/upload", "").Code)
}

// TestBuild_RecordsTestResults: in their REST shape, each with an ID that derives from the
// deployment.
func TestBuild_RecordsTestResults(t *testing.T) {
	t.Parallel()
	deployment := uuid.MustParse("7b0c7a52-6c1f-4c3e-9a55-0f6d1f1f8f10")
	none, err := storeTests(deployment, nil)
	require.NoError(t, err)
	require.Nil(t, none)

	reason := "expected a, got b"
	data, err := storeTests(deployment, dispatchapi.Tests{
		{AgentName: "a", TestName: "x", Successes: 1, Runs: 2, SuccessThreshold: 0.75, FailureReason: &reason, DurationMS: 12, TokenUsage: dispatchapi.TokenUsage{InputTokens: 3, TotalTokens: 3}, Costs: dispatchapi.DayCosts{
			{Day: 20_000, Calls: 2, Currency: "USD", Nanos: 7}, {Day: -1, Calls: -1, Currency: "GBP", Nanos: 7}, {Day: 20_001, Calls: 1, Currency: "EUR", Nanos: store.MaxCost + 1},
		}},
		{AgentName: "a", TestName: "y", Passed: true, Successes: 1, Runs: 1, SuccessThreshold: 1},
	})
	require.NoError(t, err)
	require.Equal(t, 1, store.FailedTests(data))
	var list []map[string]any
	require.NoError(t, json.Unmarshal(data, &list))
	require.Equal(t, map[string]any{
		"id": uuid.NewSHA1(deployment, []byte("a/x")).String(), "agent_name": "a", "test_name": "x", "passed": false, "successes": 1.0, "runs": 2.0,
		"success_threshold": 0.75, "failure_reason": reason, "agent_run_ids": []any{}, "duration_ms": 12.0,
		"costs": []any{
			map[string]any{"day": 20_000.0, "calls": 2.0, "currency": "USD", "nanos": 7.0}, map[string]any{"day": 0.0, "calls": 0.0, "currency": "", "nanos": 0.0},
			map[string]any{"day": 20_001.0, "calls": 1.0, "currency": "EUR", "nanos": float64(store.MaxCost)},
		},
		"token_usage": map[string]any{"input_tokens": 3.0, "output_tokens": 0.0, "thinking_tokens": 0.0, "cached_input_tokens": 0.0, "total_tokens": 3.0},
	}, list[0])
	require.Nil(t, list[1]["failure_reason"])
	require.NotEqual(t, list[0]["id"], list[1]["id"])
}

// A field that the gateway drops is lost: nothing else reads the result of a build.
func TestStoredAgent_KeepsEachField(t *testing.T) {
	t.Parallel()
	whole := `{"name":"a","description":"b","type":"llm","source_path":"c","variant_of":"d","test_name":"e","max_concurrent_runs":1,` +
		`"models":["openai/f","our/g"],"concurrency_key":"h","concurrency_drop":true,"sends_by_middleware":true,"config":{"i":1}}`
	var sent dispatchapi.Agent
	require.NoError(t, json.Unmarshal([]byte(whole), &sent))
	for _, agent := range []any{sent, storedAgent(sent)} {
		t.Run(reflect.TypeOf(agent).String(), func(t *testing.T) {
			t.Parallel()
			for field, value := range reflect.ValueOf(agent).Fields() {
				require.False(t, value.IsZero(), "%s is not in the test", field.Name)
			}
			data, err := json.Marshal(agent)
			require.NoError(t, err)
			require.JSONEq(t, whole, string(data))
		})
	}
}

// TestRecordedTests_AreBounded: client programs add the numbers and show the names.
func TestRecordedTests_AreBounded(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name      string
		got, want dispatchapi.TestResult
	}{
		{
			"too small", dispatchapi.TestResult{
				AgentName: "a", TestName: "x", Runs: -1, Successes: -1, SuccessThreshold: -1e308, DurationMS: math.MinInt64,
				TokenUsage: dispatchapi.TokenUsage{InputTokens: -1, OutputTokens: -1, ThinkingTokens: -1, CachedInputTokens: -1, TotalTokens: math.MinInt64},
			},
			dispatchapi.TestResult{AgentName: "a", TestName: "x"},
		},
		{
			"too large", dispatchapi.TestResult{
				AgentName: "a", TestName: "x", Runs: math.MaxInt, Successes: math.MaxInt, SuccessThreshold: 1e308, DurationMS: math.MaxInt64,
				TokenUsage: dispatchapi.TokenUsage{InputTokens: math.MaxInt64, TotalTokens: math.MaxInt64},
			},
			dispatchapi.TestResult{
				AgentName: "a", TestName: "x", Runs: maxTestRuns, Successes: maxTestRuns, SuccessThreshold: 1, DurationMS: maxDuration,
				TokenUsage: dispatchapi.TokenUsage{InputTokens: store.MaxTokens, TotalTokens: store.MaxTokens},
			},
		},
		{
			"more successes than runs", dispatchapi.TestResult{AgentName: "a", TestName: "x", Runs: 2, Successes: 3},
			dispatchapi.TestResult{AgentName: "a", TestName: "x", Runs: 2, Successes: 2},
		},
		{
			"names", dispatchapi.TestResult{AgentName: "a\x00\xff", TestName: "\x1b[1m" + strings.Repeat("ä", maxName)},
			dispatchapi.TestResult{AgentName: "a\uFFFD\uFFFD", TestName: store.Cut("\uFFFD[1m"+strings.Repeat("ä", maxName), maxName)},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			data, err := storeTests(uuid.UUID{}, dispatchapi.Tests{row.got})
			require.NoError(t, err)
			var list []dispatchapi.TestResult
			require.NoError(t, json.Unmarshal(data, &list))
			require.Equal(t, row.want, list[0])
			require.LessOrEqual(t, len(list[0].TestName), maxName)
		})
	}
}

// cutBundles is a store that fills a buffer with a bundle, and takes the error of io.ReadFull for the end of the bundle.
type cutBundles struct{ hanging }

func (*cutBundles) PutBundle(_ context.Context, _ store.Key, _ string, r io.Reader, _ int64) (int64, error) {
	n, err := io.ReadFull(r, make([]byte, 100))
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return int64(n), err
}

// TestPutBundle_AbortsWithItsBody: a body that is cut off is not the end of the bundle, and its client gets no response.
func TestPutBundle_AbortsWithItsBody(t *testing.T) {
	t.Parallel()
	h := New(Options{Store: &cutBundles{hanging{kind: store.TokenBuild}}})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/v1/build/bundle/sha256:1",
		io.MultiReader(strings.NewReader("the beginning"), iotest.ErrReader(io.ErrUnexpectedEOF)))
	r.Header.Set("Authorization", "Bearer a")
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { h.ServeHTTP(httptest.NewRecorder(), r) })
}
