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

	"github.com/stretchr/testify/require"
	"google.golang.org/genai"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// script is the model of a house that plays says.
const script = "steps:\n  - text: unused\n"

func says(text string) *genai.Content { return genai.NewContentFromText(text, genai.RoleModel) }

// calls is an answer that calls the tool huge so often.
func calls(times int) *genai.Content {
	content := &genai.Content{Role: genai.RoleModel}
	for i := range times {
		content.Parts = append(content.Parts, &genai.Part{FunctionCall: &genai.FunctionCall{ID: fmt.Sprint("c", i), Name: "huge"}})
	}
	return content
}

func TestAnAnswerBeyondTheLimitFailsTheRun(t *testing.T) {
	t.Parallel()
	h := &house{says: []*genai.Content{says(strings.Repeat("y", dispatchapi.MaxModelAnswer))}}
	out := h.engine().Execute(t.Context(), input(project(t, "agents/main.yaml", greeter, "models/main.yaml", script), h))
	require.Equal(t, engine.Failed, out.Status)
	require.Equal(t, engine.CodeAnswerTooLarge, out.ErrorCode)
	require.Contains(t, out.Error, "at most 1048576 are stored")
	require.Empty(t, out.Output)
	require.Empty(t, out.Trailing)

	h = &house{says: []*genai.Content{says(strings.Repeat("y", dispatchapi.MaxModelAnswer-1000))}}
	out = h.engine().Execute(t.Context(), input(project(t, "agents/main.yaml", greeter, "models/main.yaml", script), h))
	require.Equal(t, engine.Completed, out.Status, out.Error)
}

// TestToolResultsAreCutWithAMark: model and journal get the same, within the
// limit, however much escaping it takes.
func TestToolResultsAreCutWithAMark(t *testing.T) {
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
				h := &house{says: []*genai.Content{calls(1), says("done")}}
				h.huge = func(context.Context, map[string]any) (map[string]any, error) {
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
				shown, err := json.Marshal(seen[len(seen)-1].Parts[0].FunctionResponse.Response)
				require.NoError(t, err)
				require.Contains(t, string(shown), "(cut)", "the model is told")
				require.Less(t, len(shown), dispatchapi.MaxToolResult+1024)
			}
		})
	}
}

// TestLargeJournalsGoInSeveralRequests: no append is beyond what dispatch takes.
func TestLargeJournalsGoInSeveralRequests(t *testing.T) {
	t.Parallel()
	agent := strings.Replace(greeter, "broken", "huge", 1)
	h := &house{says: []*genai.Content{calls(40), says("done")}, huge: func(context.Context, map[string]any) (map[string]any, error) {
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

// TestAJournalBeyondTheLimitFailsTheRun: what earlier attempts recorded counts, and
// nothing beyond the limit is appended.
func TestAJournalBeyondTheLimitFailsTheRun(t *testing.T) {
	t.Parallel()
	agent := strings.Replace(greeter, "broken", "huge", 1)
	huge := func(context.Context, map[string]any) (map[string]any, error) {
		return map[string]any{"text": strings.Repeat("x", 1<<20)}, nil
	}
	p := project(t, "agents/main.yaml", agent, "models/main.yaml", script)
	first := &house{says: []*genai.Content{calls(60), says("done")}, huge: huge}
	out := first.engine().Execute(t.Context(), input(p, first))
	require.Equal(t, engine.Completed, out.Status, out.Error)

	for name, prior := range map[string][]dispatchapi.JournalEntry{"one attempt": nil, "two attempts": first.appended} {
		t.Run(name, func(t *testing.T) {
			h := &house{says: []*genai.Content{calls(70), says("done")}, huge: huge}
			if prior != nil {
				h.says = []*genai.Content{renamed(calls(10)), says("done")}
			}
			in := input(p, h)
			in.Prior = prior
			out := h.engine().Execute(t.Context(), in)
			require.Equal(t, engine.Failed, out.Status)
			require.Equal(t, engine.CodeJournalTooLarge, out.ErrorCode)
			require.Contains(t, out.Error, "16777216 bytes")
			total := 0
			for _, e := range append(append(slices.Clone(prior), h.appended...), out.Trailing...) {
				total += len(e.Data)
			}
			require.LessOrEqual(t, total, dispatchapi.MaxJournal)
		})
	}
}

// renamed are the calls of another answer.
func renamed(content *genai.Content) *genai.Content {
	for _, part := range content.Parts {
		part.FunctionCall.ID += "-later"
	}
	return content
}
