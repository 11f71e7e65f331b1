// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

// script is the model of a house that uses says.
const script = "steps:\n  - text: unused\n"

func says(text string) *model.Content { return model.TextContent(model.RoleModel, text) }

// calls returns an answer with this number of calls of the tool huge.
func calls(times int) *model.Content {
	content := &model.Content{Role: model.RoleModel}
	for i := range times {
		content.Parts = append(content.Parts, &model.Part{Call: &model.Call{ID: fmt.Sprint("c", i), Name: "huge"}})
	}
	return content
}

func TestOutput_BeyondLimitFailsRun(t *testing.T) {
	t.Parallel()
	h := &house{says: []*model.Content{says(strings.Repeat("y", dispatchapi.MaxModelAnswer))}}
	out := h.engine().Execute(t.Context(), input(project(t, "agents/main.yaml", greeter, "models/main.yaml", script), h))
	require.Equal(t, engine.Failed, out.Status)
	require.Equal(t, runerror.ModelAnswerTooLarge, out.ErrorCode)
	require.Contains(t, out.Error, "the limit is 1048576")
	require.Empty(t, out.Output)
	require.Len(t, out.Trailing, 1)
	require.Equal(t, dispatchapi.JournalModelFailure, out.Trailing[0].Kind)
	require.Less(t, len(out.Trailing[0].Data), 1000, "the answer is left out")

	h = &house{says: []*model.Content{says(strings.Repeat("y", dispatchapi.MaxModelAnswer-1000))}}
	out = h.engine().Execute(t.Context(), input(project(t, "agents/main.yaml", greeter, "models/main.yaml", script), h))
	require.Equal(t, engine.Completed, out.Status, out.Error)
}

// The model and the journal get the same result within the limit, regardless of escaping.
func TestToolResult_IsCutWithMark(t *testing.T) {
	t.Parallel()
	agent := strings.Replace(greeter, "broken", "huge", 1)
	for name, result := range map[string]map[string]any{
		"text":    {"text": strings.Repeat("x", 1<<20)},
		"escapes": {"text": strings.Repeat("\"\\\x01<\u2028é", 1<<17)},
		"invalid": {"text": strings.Repeat("\xff ", 1<<19)},
		"nested":  {"list": strings.Split(strings.Repeat("a,", 1<<19), ",")},
	} {
		t.Run(name, func(t *testing.T) {
			for _, failing := range []bool{false, true} {
				h := &house{says: []*model.Content{calls(1), says("done")}}
				h.huge = func(context.Context, *engine.Call) (map[string]any, error) {
					if failing {
						encoded, err := json.Marshal(result)
						require.NoError(t, err)
						return nil, errors.New(string(encoded))
					}
					return result, nil
				}
				out := h.engine().Execute(t.Context(), input(project(t, "agents/main.yaml", agent, "models/main.yaml", script), h))
				require.Equal(t, engine.Completed, out.Status, "%s", out.Error)
				require.Equal(t, "done", out.Output)
				var recorded dispatchapi.JournalEntry
				for _, e := range append(h.appended, out.Trailing...) {
					if e.Kind == dispatchapi.JournalToolResult {
						recorded = e
					}
				}
				require.LessOrEqual(t, len(recorded.Data), dispatchapi.MaxToolResult)
				require.Greater(t, len(recorded.Data), dispatchapi.MaxToolResult*9/10)
				require.Contains(t, string(recorded.Data), "(cut)")
				seen := h.requests[1].Contents
				shown, err := json.Marshal(seen[len(seen)-1].Parts[0].Result.Response)
				require.NoError(t, err)
				require.Contains(t, string(shown), "(cut)", "the model sees the mark of the cut")
				require.Less(t, len(shown), dispatchapi.MaxToolResult+1024)
			}
		})
	}
}

// The model sees the beginning and the end of a long result, within the limit of the agent. The journal has all of it.
func TestToolOptions_LimitShownResult(t *testing.T) {
	t.Parallel()
	middle := strings.Repeat("é\"\\\n", 5_000)
	for name, row := range map[string]struct {
		options string
		limit   int
		result  map[string]any
		failure string
		bounds  bool
		cut     bool
	}{
		"default":            {"", 64 << 10, map[string]any{"a": "BEGIN", "b": middle + middle + middle, "c": "END"}, "", false, true},
		"within the default": {"", 64 << 10, map[string]any{"b": strings.Repeat("x", 65_000)}, "", false, false},
		"own limit":          {"tool_options: {max_result: 2048}\n", 2048, map[string]any{"a": "BEGIN", "b": middle, "c": "END"}, "", false, true},
		"smallest limit":     {"tool_options: {max_result: 1024}\n", 1024, map[string]any{"a": "BEGIN", "b": middle, "c": "END"}, "", false, true},
		"largest limit":      {"tool_options: {max_result: 262144}\n", 256 << 10, map[string]any{"b": strings.Repeat("x", 200_000)}, "", false, false},
		"error":              {"tool_options: {max_result: 1024}\n", 1024, nil, "BEGIN" + middle + "END", false, true},
		"limited by itself":  {"tool_options: {max_result: 1024}\n", 1024, map[string]any{"b": strings.Repeat("x", 9_000)}, "", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &house{says: []*model.Content{calls(1), says("done")}}
			tool := engine.Tool{Name: "huge", Idempotent: true, BoundsResult: row.bounds, Run: func(context.Context, *engine.Call) (map[string]any, error) {
				if row.failure != "" {
					return nil, errors.New(row.failure)
				}
				return row.result, nil
			}}
			p := project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [huge]\n"+row.options, "models/main.yaml", script)
			out := engine.New(engine.Config{Models: h, Tools: []engine.Tool{tool}}).Execute(t.Context(), input(p, h))
			require.Equal(t, "done", out.Output, out.Error)
			seen := h.requests[1].Contents
			response := seen[len(seen)-1].Parts[0].Result.Response
			shown, err := json.Marshal(response)
			require.NoError(t, err)
			whole := row.result
			if row.failure != "" {
				whole = map[string]any{"error": row.failure}
			}
			if !row.cut {
				require.Equal(t, whole, response)
				return
			}
			require.LessOrEqual(t, len(shown), row.limit)
			require.Greater(t, len(shown), row.limit/2)
			text := fmt.Sprint(response["result"], response["error"])
			before, after, found := strings.Cut(text, "bytes left out")
			require.True(t, found)
			require.Contains(t, before, "BEGIN")
			require.Contains(t, after, "END")
			require.InDelta(t, 2, float64(len(after))/float64(len(before)), 0.7, "a third and two thirds")
			require.True(t, utf8.ValidString(text))
			journal, err := json.Marshal(slices.Concat(h.appended, out.Trailing))
			require.NoError(t, err)
			require.NotContains(t, string(journal), "bytes left out")
			require.Greater(t, len(journal), len(middle))
		})
	}
}

// No append exceeds the limit of dispatch.
func TestBatch_SplitsLargeJournals(t *testing.T) {
	t.Parallel()
	agent := strings.Replace(greeter, "broken", "huge", 1)
	h := &house{says: []*model.Content{calls(40), says("done")}, huge: func(context.Context, *engine.Call) (map[string]any, error) {
		return map[string]any{"text": strings.Repeat("x", 1<<20)}, nil
	}}
	out := h.engine().Execute(t.Context(), input(project(t, "agents/main.yaml", agent, "models/main.yaml", script), h))
	require.Equal(t, engine.Completed, out.Status, out.Error)
	require.Less(t, h.largest, dispatchapi.MaxRequest/2)
	next := int64(1)
	for _, e := range append(h.appended, out.Trailing...) {
		require.Equal(t, next, e.Sequence)
		next++
	}
}

// Entries of earlier attempts count, and nothing beyond the limit is appended.
func TestJournal_BeyondLimitFailsRun(t *testing.T) {
	t.Parallel()
	agent := strings.Replace(greeter, "broken", "huge", 1)
	huge := func(context.Context, *engine.Call) (map[string]any, error) {
		return map[string]any{"text": strings.Repeat("x", 1<<20)}, nil
	}
	p := project(t, "agents/main.yaml", agent, "models/main.yaml", script)
	first := &house{says: []*model.Content{calls(60), says("done")}, huge: huge}
	out := first.engine().Execute(t.Context(), input(p, first))
	require.Equal(t, engine.Completed, out.Status, out.Error)
	journal := slices.Concat(first.appended, out.Trailing)
	cut := journal[:len(journal)-1] // without the last answer

	for name, prior := range map[string][]dispatchapi.JournalEntry{"one attempt": nil, "two attempts": cut} {
		t.Run(name, func(t *testing.T) {
			h := &house{says: []*model.Content{calls(70), says("done")}, huge: huge}
			if prior != nil {
				h.says = []*model.Content{renamed(calls(10)), says("done")}
			}
			in := input(p, h)
			in.Prior = prior
			out := h.engine().Execute(t.Context(), in)
			require.Equal(t, engine.Failed, out.Status)
			require.Equal(t, runerror.JournalTooLarge, out.ErrorCode)
			require.Contains(t, out.Error, "16777216 bytes")
			total := 0
			for _, e := range append(append(slices.Clone(prior), h.appended...), out.Trailing...) {
				total += len(e.Data)
			}
			require.LessOrEqual(t, total, dispatchapi.MaxJournal)
		})
	}
}

// renamed changes the call IDs of an answer.
func renamed(content *model.Content) *model.Content {
	for _, part := range content.Parts {
		part.Call.ID += "-later"
	}
	return content
}
