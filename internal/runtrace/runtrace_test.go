// SPDX-License-Identifier: Apache-2.0

package runtrace

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/store"
)

var begin = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

// journalOf returns entries of alternating kinds and data. The store got each a second after the one before it.
func journalOf(pairs ...string) (out []Entry) {
	for i := 0; i < len(pairs); i += 2 {
		n := int64(i/2 + 1)
		out = append(out, Entry{
			Sequence: n, Kind: pairs[i], Data: json.RawMessage(pairs[i+1]), At: begin.Add(time.Duration(n) * time.Second),
		})
	}
	return out
}

// outlineOf returns a line per span: depth, kind, name, and begin and end in milliseconds since the begin of the run.
func outlineOf(trace Trace) string {
	var out strings.Builder
	for _, s := range trace.Spans {
		fmt.Fprintf(&out, "%s%s %q %d", strings.Repeat("  ", s.Depth), s.Kind, s.Name, s.Start.Sub(begin).Milliseconds())
		if s.HasEnded() {
			fmt.Fprintf(&out, "-%d", s.End.Sub(begin).Milliseconds())
		}
		if s.ErrorType != "" {
			fmt.Fprintf(&out, " %s: %s", s.ErrorType, s.Error)
		}
		out.WriteByte('\n')
	}
	return out.String()
}

func endedRun(after time.Duration) Run {
	return Run{ID: "r1", AgentName: "support", Status: "completed", Attempt: 1, Queued: begin, Started: begin, Ended: begin.Add(after)}
}

var spanCases = map[string]struct {
	run     Run
	journal []Entry
	want    string
}{
	"model and tool": {endedRun(9 * time.Second), journalOf(
		"model_answer", `{"agent":"support","turn":1,"model":"openai/gpt-5","at":"2026-03-02T10:00:00.100Z","ms":400}`,
		"tool_started", `{"agent":"support","call_id":"c1","tool":"orders_lookup","at":"2026-03-02T10:00:00.600Z"}`,
		"tool_result", `{"call_id":"c1","tool":"orders_lookup","digest":"d","ms":50}`,
		"model_answer", `{"agent":"support","turn":2,"model":"openai/gpt-5","at":"2026-03-02T10:00:00.700Z","ms":100}`,
	), `run "run support" 0-9000
  agent "invoke_agent support" 100-800
    model "chat gpt-5" 100-500
    tool "execute_tool orders_lookup" 600-650
    model "chat gpt-5" 700-800
`},
	"entries without a time of their own": {endedRun(9 * time.Second), journalOf(
		"model_answer", `{"agent":"support","turn":1,"model":"gpt"}`,
		"tool_started", `{"agent":"support","call_id":"c1","tool":"pay"}`,
		"tool_result", `{"call_id":"c1","tool":"pay","error":"declined"}`,
	), `run "run support" 0-9000
  agent "invoke_agent support" 1000-3000
    model "chat gpt" 1000-1000
    tool "execute_tool pay" 2000-3000 tool_error: declined
`},
	"sequence with parallel steps and a tool": {endedRun(9 * time.Second), journalOf(
		"model_answer", `{"agent":"support/0:classify","turn":1,"model":"a/b","ms":1000}`,
		"model_answer", `{"agent":"support/1.1:mood","turn":1,"model":"a/b","ms":1000}`,
		"model_answer", `{"agent":"support/1.0:sum","turn":1,"model":"a/b","ms":3000}`,
		"tool_started", `{"agent":"support/2","call_id":"step:support/2","tool":"enrich"}`,
		"tool_result", `{"call_id":"step:support/2","tool":"enrich","ms":500}`,
	), `run "run support" 0-9000
  agent "invoke_workflow support" 0-4500
    agent "invoke_agent classify" 0-1000
      model "chat b" 0-1000
    agent "invoke_agent sum" 0-3000
      model "chat b" 0-3000
    agent "invoke_agent mood" 1000-2000
      model "chat b" 1000-2000
    tool "execute_tool enrich" 4000-4500
`},
	"effects of a script, a read without a start, and MCP": {endedRun(9 * time.Second), journalOf(
		"tool_started", `{"agent":"support","call_id":"c1","tool":"refund"}`,
		"tool_started", `{"agent":"support","call_id":"c1/1","tool":"http.post","digest":"d"}`,
		"tool_result", `{"call_id":"c1/1","tool":"http.post","digest":"d","ms":10}`,
		"tool_result", `{"agent":"support","call_id":"c1/2","tool":"http.get","digest":"d","ms":20}`,
		"tool_result", `{"call_id":"c1","tool":"refund","code":"script_error","error":"line 3"}`,
		"tool_started", `{"agent":"support","call_id":"c2","tool":"search","type":"mcp"}`,
		"tool_result", `{"call_id":"c2","tool":"search"}`,
	), `run "run support" 0-9000
  agent "invoke_agent support" 1000-7000
    tool "execute_tool refund" 1000-5000 script_error: line 3
      effect "http.post" 2000-2010
      effect "http.get" 3980-4000
    tool "execute_tool search" 6000-7000
      mcp "tools/call search" 6000-7000
`},
	"steps of agents and of calls": {endedRun(9 * time.Second), journalOf(
		"step", `{"id":"middleware:support/0:classify:1","kind":"before","at":"2026-03-02T10:00:00Z","outcome":"started"}`,
		"tool_result", `{"agent":"support/0:classify","call_id":"middleware:support/0:classify:1/1","tool":"http.get","digest":"d","ms":20}`,
		"step", `{"id":"middleware:support/0:classify:1","kind":"before","at":"2026-03-02T10:00:00Z","ms":7,"outcome":"ended"}`,
		"tool_started", `{"agent":"support/0:classify","call_id":"c1","tool":"pay"}`,
		"step", `{"id":"hook:c1:1","kind":"before_tool","at":"2026-03-02T10:00:04Z","ms":7,"outcome":"ended"}`,
		"tool_result", `{"call_id":"c1","tool":"pay"}`,
		"step", `{"id":"check","kind":"schema","at":"2026-03-02T10:00:06Z","ms":7,"outcome":"ended"}`,
	), `run "run support" 0-9000
  agent "invoke_workflow support" 0-6000
    agent "invoke_agent classify" 0-6000
      middleware "before" 0-7
        effect "http.get" 1980-2000
      tool "execute_tool pay" 4000-6000
        hook "before_tool" 4000-4007
  step "schema" 6000-6007
`},
	"waits and unusable answers": {endedRun(9 * time.Second), journalOf(
		"model_failure", `{"agent":"support","turn":1,"model":"a/b","error":"invalid_answer","usage":{"input_tokens":3}}`,
		"wait", `{"id":"w","kind":"approval"}`,
		"resumed", `{}`,
		"later_kind", `{}`,
	), `run "run support" 0-9000
  agent "invoke_agent support" 1000-1000
    model "chat b" 1000-1000 invalid_answer: the answer of the model was not usable
  wait "wait approval" 2000-3000
`},
	"request without an answer": {endedRun(9 * time.Second), journalOf(
		"model_failure", `{"agent":"support","turn":1,"model":"a/b","error":"model_unavailable"}`,
	), `run "run support" 0-9000
  agent "invoke_agent support" 1000-1000
    model "chat b" 1000-1000 model_unavailable: the request to the model failed
`},
	"open": {Run{ID: "r1", AgentName: "support", Queued: begin}, journalOf(
		"tool_started", `{"agent":"support","call_id":"c1","tool":"pay"}`,
	), `run "run support" 0
  agent "invoke_agent support" 1000
    tool "execute_tool pay" 1000
`},
	"ended within a call": {Run{ID: "r1", AgentName: "support", Queued: begin, Ended: begin.Add(2 * time.Second), ErrorCode: "tool_interrupted"}, journalOf(
		"tool_started", `{"agent":"support","call_id":"c1","tool":"pay"}`,
	), `run "run support" 0-2000 tool_interrupted: tool_interrupted
  agent "invoke_agent support" 1000-2000
    tool "execute_tool pay" 1000-2000 interrupted: the run ended first
`},
	"nothing": {Run{ID: "r1", AgentName: "support", Queued: begin}, nil, "run \"run support\" 0\n"},
}

// The spans of a run form a tree of agents, model requests, calls, effects of scripts and steps.
func TestCompute_Spans(t *testing.T) {
	t.Parallel()
	for name, c := range spanCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trace, err := ComputeTrace(c.run, c.journal)
			require.NoError(t, err)
			require.Equal(t, c.want, outlineOf(trace))
			ids := map[string]bool{}
			for _, s := range trace.Spans {
				require.False(t, ids[s.ID], "the ID of %s is unique", s.Name)
				require.True(t, s.Parent == "" == (s.Kind == KindRun) && (s.Parent == "" || ids[s.Parent]), "%s follows the span around it", s.Name)
				ids[s.ID] = true
			}
			again, err := ComputeTrace(c.run, c.journal)
			require.NoError(t, err)
			require.Equal(t, trace, again)
		})
	}
}

// A model request has the usage, the cost and the answer; reasoning is counted but not shown.
func TestCompute_ModelRequest(t *testing.T) {
	t.Parallel()
	trace, err := ComputeTrace(endedRun(time.Minute), journalOf("model_answer", `{"agent":"support","turn":3,"model":"gemini/pro","finish_reason":"stop",
		"content":{"parts":[{"text":"hidden","thought":true},{"text":"Hi"},{"functionCall":{"id":"c1","name":"pay","args":{"n":9007199254740993}}}]},
		"usage":{"input_tokens":100,"output_tokens":20,"thinking_tokens":5,"cached_input_tokens":40,"total_tokens":125},"cost":{"currency":"EUR","nanos":7}}`))
	require.NoError(t, err)
	s := trace.Spans[2]
	require.Equal(t, map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.request.model": "pro", "gen_ai.provider.name": "gcp.gemini",
		"gen_ai.response.finish_reasons": []string{"stop"}, "agentplatform.turn": 3,
		"gen_ai.usage.input_tokens": int64(100), "gen_ai.usage.output_tokens": int64(25),
		"gen_ai.usage.cache_read.input_tokens": int64(40), "gen_ai.usage.reasoning.output_tokens": int64(5),
	}, s.Attributes)
	require.Equal(t, int64(20), s.Usage.OutputTokens)
	require.Equal(t, &dispatchapi.Cost{Currency: "EUR", Nanos: 7}, s.Cost)
	require.Equal(t, `[{"role":"assistant","parts":[{"type":"text","content":"Hi"},`+
		`{"type":"tool_call","id":"c1","name":"pay","arguments":{"n":9007199254740993}}],"finish_reason":"stop"}]`, string(s.Output))
}

// Log lines have the time, the position and the span of the call that wrote them.
func TestCompute_Lines(t *testing.T) {
	t.Parallel()
	trace, err := ComputeTrace(endedRun(time.Minute), journalOf(
		"tool_started", `{"agent":"support","call_id":"c1","tool":"pay"}`,
		"tool_result", `{"call_id":"c1","more_log":4,"log":[
			{"level":"warn","text":"slow","fields":{"ms":9007199254740993},"position":"tools/a.star:3:2"},{"level":"odd","text":"x"}]}`,
		"step", `{"id":"middleware:support:1","kind":"before","at":"2026-03-02T10:00:04Z","outcome":"ended","log":[{"level":"debug","text":"y"}]}`,
	))
	require.NoError(t, err)
	call, step := SpanID("r1", "c1"), SpanID("r1", "middleware:support:1")
	require.Equal(t, []Line{
		{At: begin.Add(2 * time.Second), Level: "warning", Text: "slow", Fields: json.RawMessage(`{"ms":9007199254740993}`), Position: "tools/a.star:3:2", SpanID: call, Sequence: 2},
		{At: begin.Add(2 * time.Second), Level: "info", Text: "x", SpanID: call, Sequence: 2},
		{At: begin.Add(4 * time.Second), Level: "debug", Text: "y", SpanID: step, Sequence: 3},
	}, trace.Lines)
	require.Equal(t, 4, trace.MoreLines)
}

// Spans, lines and contents are limited. Spans and lines beyond the limits are counted.
func TestCompute_Limits(t *testing.T) {
	t.Parallel()
	large := `"` + strings.Repeat("x", MaxContent) + `"`
	pairs := []string{"tool_started", `{"agent":"support","call_id":"large","tool":"pay","arguments":` + large + `}`}
	fitting := `"` + strings.Repeat("x", MaxContent-2) + `"`
	for i := range MaxSpans {
		arguments := "1"
		if i <= MaxContents/MaxContent {
			arguments = fitting
		}
		pairs = append(pairs,
			"tool_started", fmt.Sprintf(`{"agent":"support","call_id":"c%d","tool":"pay","arguments":%s}`, i, arguments),
			"tool_result", fmt.Sprintf(`{"call_id":"c%d","log":[{"text":"x"}]}`, i))
	}
	trace, err := ComputeTrace(endedRun(time.Hour), journalOf(pairs...))
	require.NoError(t, err)
	require.Len(t, trace.Spans, MaxSpans)
	require.Equal(t, 3, trace.MoreSpans) // one each for the run, the agent and the large call
	require.Len(t, trace.Lines, MaxLines)
	require.Equal(t, MaxSpans-MaxLines, trace.MoreLines)
	require.JSONEq(t, fmt.Sprintf(`{"omitted_bytes":%d}`, len(large)), string(trace.Spans[2].Input))
	shown := 0
	for _, s := range trace.Spans[3:] {
		if string(s.Input) == fitting {
			shown++
		}
	}
	require.Equal(t, MaxContents/MaxContent, shown)
}

// The lines of a run have a limited size.
func TestCompute_LimitsSizeOfLines(t *testing.T) {
	t.Parallel()
	var pairs []string
	for i := range 100 {
		pairs = append(pairs, "tool_result", fmt.Sprintf(`{"call_id":"c%d","tool":"t","log":[{"text":%q}]}`, i, strings.Repeat("x", maxLineText)))
	}
	trace, err := ComputeTrace(endedRun(time.Hour), journalOf(pairs...))
	require.NoError(t, err)
	require.Len(t, trace.Lines, maxLinesSize/maxLineText)
	require.Equal(t, 100-maxLinesSize/maxLineText, trace.MoreLines)
}

// A span keeps its ID and its parent if its position is too long to be kept.
func TestCompute_LongPositions(t *testing.T) {
	t.Parallel()
	call := strings.Repeat("c", 2*maxPosition)
	trace, err := ComputeTrace(endedRun(time.Minute), journalOf(
		"tool_started", `{"agent":"support","call_id":"`+call+`","tool":"pay"}`,
		"tool_started", `{"agent":"support","call_id":"`+call+`/1","tool":"http.post","digest":"d"}`,
		"tool_result", `{"call_id":"`+call+`","ms":5}`,
	))
	require.NoError(t, err)
	require.Len(t, trace.Spans, 4)
	require.Equal(t, SpanID("r1", call), trace.Spans[2].ID)
	require.Equal(t, 5*time.Millisecond, trace.Spans[2].Duration())
	require.Equal(t, SpanID("r1", call+"/1"), trace.Spans[3].ID)
	require.Equal(t, trace.Spans[2].ID, trace.Spans[3].Parent)
}

// A foreign runner may write numbers that no trace can show.
func TestCompute_BoundsNumbers(t *testing.T) {
	t.Parallel()
	trace, err := ComputeTrace(endedRun(time.Minute), journalOf(
		"step", `{"id":"middleware:support:1","kind":"before","at":"9999-12-31T23:59:59Z","ms":9223372036854775807,"more_log":-5}`,
		"step", `{"id":"middleware:support:2","kind":"before","at":"2026-03-02T10:00:04Z","ms":9223372036854775807,"more_log":9223372036854775807}`,
	))
	require.NoError(t, err)
	for _, s := range trace.Spans {
		_, err := json.Marshal([]time.Time{s.Start, s.End})
		require.NoError(t, err)
		require.Less(t, s.Duration(), 100*24*time.Hour)
	}
	require.Equal(t, maxMoreLog, trace.MoreLines)
}

// Spans show tokens and costs within the limits of the store, whatever a foreign runner wrote.
func TestCompute_BoundsUsage(t *testing.T) {
	t.Parallel()
	const most = `9223372036854775807`
	for name, row := range map[string]struct {
		entry      string
		usage      dispatchapi.TokenUsage
		cost       *dispatchapi.Cost
		attributes map[string]any
	}{
		"negative": {
			`"usage":{"input_tokens":-1,"output_tokens":-2,"thinking_tokens":-3,"cached_input_tokens":-4,"total_tokens":-5},"cost":{"currency":"USD","nanos":-6}`,
			dispatchapi.TokenUsage{}, &dispatchapi.Cost{Currency: "USD"}, map[string]any{},
		},
		"too large": {
			`"usage":{"input_tokens":` + most + `,"output_tokens":` + most + `,"thinking_tokens":` + most + `,"cached_input_tokens":` + most +
				`,"total_tokens":` + most + `},"cost":{"currency":"EUR","nanos":` + most + `}`,
			dispatchapi.TokenUsage{
				InputTokens: store.MaxTokens, OutputTokens: store.MaxTokens, ThinkingTokens: store.MaxTokens,
				CachedInputTokens: store.MaxTokens, TotalTokens: store.MaxTokens,
			},
			&dispatchapi.Cost{Currency: "EUR", Nanos: store.MaxCost},
			map[string]any{
				"gen_ai.usage.input_tokens": int64(store.MaxTokens), "gen_ai.usage.output_tokens": int64(2 * store.MaxTokens),
				"gen_ai.usage.cache_read.input_tokens": int64(store.MaxTokens), "gen_ai.usage.reasoning.output_tokens": int64(store.MaxTokens),
			},
		},
		"other currency": {`"cost":{"currency":"GBP","nanos":6}`, dispatchapi.TokenUsage{}, nil, map[string]any{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trace, err := ComputeTrace(endedRun(time.Minute), journalOf("model_answer", `{"agent":"support","turn":1,"model":"a/b",`+row.entry+`}`))
			require.NoError(t, err)
			s := trace.Spans[2]
			require.Equal(t, &row.usage, s.Usage)
			require.Equal(t, row.cost, s.Cost)
			for attribute := range s.Attributes {
				if !strings.HasPrefix(attribute, "gen_ai.usage.") {
					delete(s.Attributes, attribute)
				}
			}
			require.Equal(t, row.attributes, s.Attributes)
		})
	}
	for _, currency := range store.Currencies {
		require.Contains(t, currencies, string(currency))
	}
	require.Len(t, currencies, len(store.Currencies))
}

// An entry that cannot be read is named.
func TestCompute_UnreadableEntry(t *testing.T) {
	t.Parallel()
	_, err := ComputeTrace(endedRun(time.Minute), journalOf("model_answer", `{}`, "step", `[`))
	require.ErrorContains(t, err, "reading journal entry 2")
}

// No journal makes a circle of spans or a panic.
func FuzzComputeTrace(f *testing.F) {
	f.Add("step", "middleware:a:1", "hook:b:1")
	f.Add("tool_started", "a/1", "a/1/1")
	f.Add("tool_started", "agent:a", "x/y:z/")
	f.Fuzz(func(t *testing.T, kind, first, second string) {
		encode := func(id, agent string) string {
			data, err := json.Marshal(map[string]any{"id": id, "call_id": id, "agent": agent, "digest": "d", "turn": 1})
			require.NoError(t, err)
			return string(data)
		}
		trace, err := ComputeTrace(endedRun(time.Minute), journalOf(kind, encode(first, second), kind, encode(second, first), "tool_result", encode(first, first)))
		require.NoError(t, err)
		seen := map[string]bool{"": true}
		for _, s := range trace.Spans {
			require.True(t, seen[s.Parent])
			seen[s.ID] = true
		}
	})
}

// The entries of a foreign runner can have any IDs and paths. Each position has one span, so the tree stays small and has no circle.
func TestComputeTrace_IsBoundedForForgedJournals(t *testing.T) {
	t.Parallel()
	answer := func(agent string) []string {
		return []string{"model_answer", `{"agent":"` + agent + `","turn":1,"model":"m"}`}
	}
	started := func(id, agent, more string) []string {
		return []string{"tool_started", `{"call_id":"` + id + `","agent":"` + agent + `","tool":"t"` + more + `}`}
	}
	var levels, paths [][]string
	for depth := range 40 {
		entry := started("a"+strings.Repeat("/1", depth), "", `,"digest":"d"`)
		levels = append(levels, entry, entry)
		paths = append(paths, answer(strconv.Itoa(depth)+strings.Repeat(":/", 2000)))
	}
	for name, entries := range map[string][][]string{
		"a call at the position of an agent": {answer("pipe/0:first"), started("agent:pipe", "pipe/0:first", ""), answer("pipe/1:second")},
		"a call around its own agent":        {started("agent:pipe", "pipe/0:a", ""), started("agent:pipe", "other", ""), answer("pipe/0:a")},
		"agents around each other":           {answer("pipe/0:a"), started("agent:pipe", "pipe/0:a", ""), started("agent:pipe", "other", "")},
		"two calls at each position":         levels,
		"a call at the position of the run":  {started("", "pipe", ""), started("", "pipe", "")},
		"long paths":                         paths,
		"long texts":                         {started(strings.Repeat("i", 1<<20), "", ""), answer("a/1:" + strings.Repeat("n", 3000))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trace, err := ComputeTrace(endedRun(time.Minute), journalOf(slices.Concat(entries...)...))
			require.NoError(t, err)
			require.LessOrEqual(t, len(trace.Spans), len(entries)+3)
			seen := map[string]bool{"": true}
			for _, s := range trace.Spans {
				require.True(t, seen[s.Parent])
				require.False(t, seen[s.ID], "an ID appears once")
				seen[s.ID] = true
				text, err := json.Marshal(s.Attributes)
				require.NoError(t, err)
				require.Less(t, len(s.Name)+len(s.Position)+len(text), 9*maxName)
			}
		})
	}
}
