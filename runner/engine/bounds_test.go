// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
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
				in := input(project(t, "agents/main.yaml", agent, "models/main.yaml", script), h)
				in.SavedFiles = nil
				out := h.engine().Execute(t.Context(), in)
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
		bounds  int
		cut     bool
	}{
		"default":            {"", 64 << 10, map[string]any{"a": "BEGIN", "b": middle + middle + middle, "c": "END"}, "", 0, true},
		"within the default": {"", 64 << 10, map[string]any{"b": strings.Repeat("x", 65_000)}, "", 0, false},
		"own limit":          {"tool_options: {max_result: 2048}\n", 2048, map[string]any{"a": "BEGIN", "b": middle, "c": "END"}, "", 0, true},
		"smallest limit":     {"tool_options: {max_result: 1024}\n", 1024, map[string]any{"a": "BEGIN", "b": middle, "c": "END"}, "", 0, true},
		"largest limit":      {"tool_options: {max_result: 262144}\n", 256 << 10, map[string]any{"b": strings.Repeat("x", 200_000)}, "", 0, false},
		"error":              {"tool_options: {max_result: 1024}\n", 1024, nil, "BEGIN" + middle + "END", 0, true},
		"limit of tool":      {"tool_options: {max_result: 1024}\n", 1024, map[string]any{"b": strings.Repeat("x", 9_000)}, "", 10_000, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &house{says: []*model.Content{calls(1), says("done")}}
			tool := engine.Tool{Name: "huge", Idempotent: true, MaxResult: row.bounds, Run: func(context.Context, *engine.Call) (map[string]any, error) {
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
	in := input(project(t, "agents/main.yaml", agent, "models/main.yaml", script), h)
	in.SavedFiles = nil
	out := h.engine().Execute(t.Context(), in)
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
	unsaved := func(h *house) engine.Input {
		in := input(p, h)
		in.SavedFiles = nil
		return in
	}
	out := first.engine().Execute(t.Context(), unsaved(first))
	require.Equal(t, engine.Completed, out.Status, out.Error)
	journal := slices.Concat(first.appended, out.Trailing)
	cut := journal[:len(journal)-1] // without the last answer

	for name, prior := range map[string][]dispatchapi.JournalEntry{"one attempt": nil, "two attempts": cut} {
		t.Run(name, func(t *testing.T) {
			h := &house{says: []*model.Content{calls(70), says("done")}, huge: huge}
			if prior != nil {
				h.says = []*model.Content{renamed(calls(10)), says("done")}
			}
			in := unsaved(h)
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

// A result that is too large for the journal is saved as a file, which the model reads with read_file. The result is the same in
// each attempt, and its call is not repeated.
func TestLargeResult_IsSavedAsFile(t *testing.T) {
	t.Parallel()
	agent := strings.Replace(greeter, "broken", "huge", 1)
	long := "BEGIN" + strings.Repeat("é", 200_000) + "END"
	part := func(id string, args map[string]any) *model.Content {
		args["id"] = id
		return &model.Content{Role: model.RoleModel, Parts: []*model.Part{{Call: &model.Call{ID: "read", Name: bundle.ReadFile, Args: args}}}}
	}
	for name, row := range map[string]struct {
		result map[string]any
		args   map[string]any
		want   string // of read_file
	}{
		"text":      {map[string]any{"result": long}, map[string]any{"length": json.Number("6")}, `{"next_offset":5,"size":400008,"text":"BEGIN"}`},
		"end":       {map[string]any{"result": long}, map[string]any{"offset": json.Number("400004")}, `{"size":400008,"text":"END"}`},
		"beyond":    {map[string]any{"result": long}, map[string]any{"offset": json.Number("500000")}, `{"size":400008,"text":""}`},
		"object":    {map[string]any{"a": long}, map[string]any{"length": json.Number("10")}, `{"next_offset":10,"size":400016,"text":"{\"a\":\"BEGI"}`},
		"the limit": {map[string]any{"result": strings.Repeat("x", dispatchapi.MaxSavedFile)}, map[string]any{"offset": json.Number("10485759")}, `{"size":10485760,"text":"x"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &house{says: []*model.Content{calls(1), part("s1", maps.Clone(row.args)), says("done")}}
			h.huge = func(context.Context, *engine.Call) (map[string]any, error) { return row.result, nil }
			p := project(t, "agents/main.yaml", agent, "models/main.yaml", script)
			out := h.engine().Execute(t.Context(), input(p, h))
			require.Equal(t, "done", out.Output, "%s %v", out.Error, out.Cause)
			journal := slices.Concat(h.appended, out.Trailing)
			offered := func(i int) bool {
				return slices.ContainsFunc(h.requests[i].Tools, func(t model.ToolDeclaration) bool { return t.Name == bundle.ReadFile })
			}
			require.Equal(t, []bool{false, true, true}, []bool{offered(0), offered(1), offered(2)}, "while the run has files")
			response := func(h *house, i int) map[string]any {
				seen := h.requests[i].Contents
				return seen[len(seen)-1].Parts[0].Result.Response
			}
			shown := response(h, 1)
			require.Contains(t, shown["note"], "All of it is the file s1 of the run")
			require.Contains(t, shown["result"], "bytes left out")
			text, err := json.Marshal(response(h, 2))
			require.NoError(t, err)
			require.JSONEq(t, row.want, string(text))
			for cut := range len(journal) + 1 {
				if cut > 0 && journal[cut-1].Kind == dispatchapi.JournalFile {
					continue
				}
				again := &house{says: []*model.Content{says("done")}, saved: h.saved, huge: func(context.Context, *engine.Call) (map[string]any, error) {
					return row.result, nil
				}}
				again.says = h.says[count(journal[:cut]).answers:]
				in := input(p, again)
				in.Prior = journal[:cut]
				out := again.engine().Execute(t.Context(), in)
				require.Equal(t, "done", out.Output, "%s %v", out.Error, out.Cause)
				if last := len(again.requests) - 1; last >= 0 {
					require.Equal(t, response(h, 2), response(again, last), "after entry %d", cut)
				}
			}
		})
	}
}

// A result that is not saved as a file is shortened, with the reason. It is the same in each attempt.
func TestLargeResult_IsShortenedIfNotSaved(t *testing.T) {
	t.Parallel()
	p := project(t, "agents/main.yaml", strings.Replace(greeter, "broken", "huge", 1), "models/main.yaml", script)
	for name, row := range map[string]struct {
		size      int
		rejection httpserver.Code
		want      string
	}{
		"beyond the size of a file": {dispatchapi.MaxSavedFile + 1, "", "It is not saved as a file: the file has more than 10 MiB. Request less data"},
		"rejected by the platform":  {300_000, httpserver.CodeStorageFull, "It is not saved as a file: the project's storage is full. Request less data"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			house := func(done int) *house {
				return &house{
					rejectSaves: row.rejection, says: []*model.Content{calls(1), says("done")}[done:],
					huge: func(context.Context, *engine.Call) (map[string]any, error) {
						return map[string]any{"result": "BEGIN" + strings.Repeat("x", row.size-8) + "END"}, nil
					},
				}
			}
			h := house(0)
			out := h.engine().Execute(t.Context(), input(p, h))
			require.Equal(t, "done", out.Output, "%s %v", out.Error, out.Cause)
			require.Empty(t, h.saved)
			shown := lastResponse(h)
			require.Contains(t, shown["note"], row.want)
			require.Regexp(t, "(?s)^BEGINx.*bytes left out.*xEND$", shown["result"])
			require.False(t, slices.ContainsFunc(h.requests[1].Tools, func(t model.ToolDeclaration) bool { return t.Name == bundle.ReadFile }))
			journal := slices.Concat(h.appended, out.Trailing)
			for cut := range len(journal) {
				again := house(count(journal[:cut]).answers)
				in := input(p, again)
				in.Prior = journal[:cut]
				out := again.engine().Execute(t.Context(), in)
				require.Equal(t, "done", out.Output, "%s %v", out.Error, out.Cause)
				if len(again.requests) > 0 {
					require.Equal(t, shown, lastResponse(again), "after entry %d", cut)
				}
			}
		})
	}
}

// lastResponse returns the result that the last request to a model ends with.
func lastResponse(h *house) map[string]any {
	seen := h.requests[len(h.requests)-1].Contents
	return seen[len(seen)-1].Parts[0].Result.Response
}

// An agent keeps its own tool with the name read_file. With files of the run it has no second one.
func TestReadFile_KeepsOwnTool(t *testing.T) {
	t.Parallel()
	h := &house{says: []*model.Content{calls(1), says("done")}}
	own := engine.Tool{Name: bundle.ReadFile, Description: "own", Idempotent: true, Run: func(context.Context, *engine.Call) (map[string]any, error) { return nil, nil }}
	huge := engine.Tool{Name: "huge", Idempotent: true, Run: func(context.Context, *engine.Call) (map[string]any, error) {
		return map[string]any{"result": strings.Repeat("x", 300_000)}, nil
	}}
	p := project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [huge, read_file]\n", "models/main.yaml", script)
	out := engine.New(engine.Config{Models: h, Tools: []engine.Tool{huge, own}}).Execute(t.Context(), input(p, h))
	require.Equal(t, "done", out.Output, "%s %v", out.Error, out.Cause)
	require.Len(t, h.saved, 1)
	require.Len(t, h.requests[1].Tools, 2)
	require.Equal(t, "own", h.requests[1].Tools[1].Description)
}

// The model of an agent with hooks sees only what they return, so no large result is saved beside them.
func TestLargeResult_IsNotSavedBesideHooks(t *testing.T) {
	t.Parallel()
	agent := strings.Replace(greeter, "broken", "huge", 1)
	h := &house{says: []*model.Content{calls(1), says("done")}}
	h.huge = func(context.Context, *engine.Call) (map[string]any, error) {
		return map[string]any{"result": strings.Repeat("x", 300_000)}, nil
	}
	p := project(t, "agents/main.yaml", agent, "models/main.yaml", script,
		"hooks/main.star", "def after(tool, params, result, context):\n    return {\"left\": len(result)}\n")
	out := h.engine().Execute(t.Context(), input(p, h))
	require.Equal(t, "done", out.Output, "%s %v", out.Error, out.Cause)
	require.Empty(t, h.saved)
	require.False(t, slices.ContainsFunc(h.requests[1].Tools, func(t model.ToolDeclaration) bool { return t.Name == bundle.ReadFile }))
}

// A result that the model may see whole leaves room for what else its entry has, and names its file.
func TestLargeResult_FitsItsEntry(t *testing.T) {
	t.Parallel()
	agent := strings.Replace(greeter, "broken", "huge", 1) + "tool_options: {max_result: 262144}\n"
	h := &house{says: []*model.Content{calls(1), says("done")}}
	h.huge = func(context.Context, *engine.Call) (map[string]any, error) {
		return map[string]any{"result": "BEGIN" + strings.Repeat("x", 300_000) + "END"}, nil
	}
	out := h.engine().Execute(t.Context(), input(project(t, "agents/main.yaml", agent, "models/main.yaml", script), h))
	require.Equal(t, "done", out.Output, "%s %v", out.Error, out.Cause)
	seen := h.requests[1].Contents
	shown := seen[len(seen)-1].Parts[0].Result.Response
	text, _ := shown["result"].(string)
	require.Contains(t, shown["note"], "the file s1 of the run")
	require.True(t, strings.HasPrefix(text, "BEGINx") && strings.HasSuffix(text, "xEND"), "both ends of the result")
}
