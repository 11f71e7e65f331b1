// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// tracedClock is a clock that each reading moves by a second.
func tracedClock() func() time.Time {
	var mu sync.Mutex
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	}
}

// tracedTool has an effect that writes, and one that reads. The read logs more lines than a run may have.
func tracedTool() engine.Tool {
	return engine.Tool{Name: "script", Idempotent: true, Type: runtrace.TypeMCP, Run: func(ctx context.Context, call *engine.Call) (map[string]any, error) {
		effects := call.Effects()
		for _, effect := range []engine.Effect{{Name: "http.post", Idempotent: true}, {Name: "http.get", Read: true}} {
			effect.Run = func(context.Context, string) (map[string]any, error) { return map[string]any{}, nil }
			if _, err := effects.Do(ctx, effect); err != nil {
				return nil, err
			}
		}
		for i := range 502 {
			call.Log(engine.LogLine{Level: "warn", Text: fmt.Sprint(i), Position: "tools/a.star:3:2", Fields: json.RawMessage(`{"n":1}`)})
		}
		return map[string]any{"done": true}, nil
	}}
}

// attemptTraced executes a run from a journal and returns the whole journal.
func attemptTraced(t *testing.T, p *bundle.Project, prior []dispatchapi.JournalEntry) []dispatchapi.JournalEntry {
	t.Helper()
	h := &house{}
	in := input(p, h)
	in.Prior = prior
	prices := func() (runnerconfig.Prices, error) {
		return runnerconfig.Prices{Prices: map[string]runnerconfig.Price{"scripted/first": {Currency: "EUR", Input: 1000}}}, nil
	}
	out := engine.New(engine.Config{Models: h, Tools: []engine.Tool{tracedTool()}, Now: tracedClock(), Prices: prices}).Execute(t.Context(), in)
	require.Equal(t, engine.Completed, out.Status, out.Cause)
	return slices.Concat(prior, h.appended, out.Trailing)
}

func traceOf(t *testing.T, journal []dispatchapi.JournalEntry) runtrace.Trace {
	t.Helper()
	entries := make([]runtrace.Entry, len(journal))
	for i := range journal {
		entries[i] = runtrace.NewEntry(journal[i].Sequence, journal[i].Kind, journal[i].Data, time.Time{})
	}
	trace, err := runtrace.ComputeTrace(runtrace.Run{ID: "r1", AgentName: "main"}, entries)
	require.NoError(t, err)
	return trace
}

// The spans of a run have the begin and the duration of each request, call and effect, without the times of a store. A run
// that was killed at any entry has the same spans.
func TestTrace_OfJournal(t *testing.T) {
	t.Parallel()
	p := project(t,
		"agents/main.yaml", "name: main\ntype: sequential\nagents: [first]\n",
		"agents/first.yaml", "name: first\nmodel: scripted/first\ntools: [script]\n",
		"models/first.yaml", "steps: [{turn: 1, tool_calls: [{name: script}], tokens: {input: 3}}, {text: done}]")
	whole := attemptTraced(t, p, nil)
	trace := traceOf(t, whole)
	var outline strings.Builder
	for _, s := range trace.Spans[1:] {
		fmt.Fprintf(&outline, "%d %s %q %ds\n", s.Depth, s.Kind, s.Name, int(s.Duration().Seconds()))
	}
	require.Equal(t, `1 agent "invoke_workflow main" 11s
2 agent "invoke_agent first" 11s
3 model "chat first" 1s
3 tool "execute_tool script" 6s
4 mcp "tools/call script" 6s
4 effect "http.post" 1s
4 effect "http.get" 1s
3 model "chat first" 1s
`, outline.String())
	require.Equal(t, &dispatchapi.Cost{Currency: "EUR", Nanos: 3}, trace.Spans[3].Cost)
	require.Len(t, trace.Lines, 500)
	require.Equal(t, 2, trace.MoreLines)
	require.Equal(t, runtrace.Line{
		At: trace.Spans[4].End, Level: "warning", Text: "7", Fields: json.RawMessage(`{"n":1}`), Position: "tools/a.star:3:2",
		SpanID: trace.Spans[4].ID, Sequence: trace.Spans[4].Sequence,
	}, trace.Lines[7])

	for cut := range len(whole) {
		again := traceOf(t, attemptTraced(t, p, whole[:cut]))
		require.ElementsMatch(t, spanIDs(trace), spanIDs(again), "cut at %d", cut)
		require.Equal(t, trace.MoreLines, again.MoreLines)
	}
}

func spanIDs(trace runtrace.Trace) (ids []string) {
	for _, s := range trace.Spans {
		ids = append(ids, s.ID)
	}
	return ids
}

// The lines of a step beyond the limits of the run's log are counted, with the lines that the step itself has dropped.
func TestTrace_CountsDroppedLinesOfSteps(t *testing.T) {
	t.Parallel()
	h := &house{}
	feature := engine.Feature{Name: "logging", WrapAgent: func(at *engine.Scope, next engine.AgentFunc) engine.AgentFunc {
		return func(ctx context.Context, in engine.Message) (engine.Message, error) {
			_, err := at.Step(ctx, engine.MiddlewareOwner+at.Path()+":1", "before", func(context.Context) (engine.Step, error) {
				return engine.Step{Outcome: "ended", Log: slices.Repeat([]engine.LogLine{{Level: "info", Text: "x"}}, 501), MoreLog: 4}, nil
			})
			if err != nil {
				return engine.Message{}, err
			}
			return next(ctx, in)
		}
	}}
	p := project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\n", "models/main.yaml", "steps: [{text: done}]")
	out := engine.New(engine.Config{Models: h, Features: []engine.Feature{feature}}).Execute(t.Context(), input(p, h))
	require.Equal(t, engine.Completed, out.Status, out.Cause)
	trace := traceOf(t, slices.Concat(h.appended, out.Trailing))
	require.Len(t, trace.Lines, 500)
	require.Equal(t, 5, trace.MoreLines)
	require.Equal(t, runtrace.KindMiddleware, trace.Spans[2].Kind)
}

// The limits of the log count the lines of all attempts of a run.
func TestLog_CountsLinesOfEarlierAttempts(t *testing.T) {
	t.Parallel()
	feature := engine.Feature{Name: "logging", WrapAgent: func(at *engine.Scope, next engine.AgentFunc) engine.AgentFunc {
		return func(ctx context.Context, in engine.Message) (engine.Message, error) {
			for _, number := range []string{":1", ":2"} {
				_, err := at.Step(ctx, engine.MiddlewareOwner+at.Path()+number, "before", func(context.Context) (engine.Step, error) {
					return engine.Step{Outcome: "ended", Log: slices.Repeat([]engine.LogLine{{Level: "info", Text: "x"}}, 300)}, nil
				})
				if err != nil {
					return engine.Message{}, err
				}
			}
			return next(ctx, in)
		}
	}}
	p := project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\n", "models/main.yaml", "steps: [{text: done}]")
	attempt := func(prior []dispatchapi.JournalEntry) []dispatchapi.JournalEntry {
		h := &house{}
		in := input(p, h)
		in.Prior = prior
		out := engine.New(engine.Config{Models: h, Features: []engine.Feature{feature}}).Execute(t.Context(), in)
		require.Equal(t, engine.Completed, out.Status, out.Cause)
		return slices.Concat(prior, h.appended, out.Trailing)
	}
	whole := attempt(nil)
	for cut := range len(whole) {
		journal := attempt(whole[:cut])
		require.Equal(t, []int{300, 200}, []int{linesOf(t, journal[0]), linesOf(t, journal[1])}, "cut at %d", cut)
		require.Equal(t, 100, traceOf(t, journal).MoreLines)
	}
}

// linesOf returns the number of log lines in a journal entry.
func linesOf(t *testing.T, e dispatchapi.JournalEntry) int {
	t.Helper()
	var logged struct {
		Log []engine.LogLine `json:"log"`
	}
	require.NoError(t, json.Unmarshal(e.Data, &logged))
	return len(logged.Log)
}
