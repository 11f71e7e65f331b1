// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	adkmodel "google.golang.org/adk/v2/model"
	"google.golang.org/genai"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

// house is an engine on scripted models with everything it does counted.
type house struct {
	registry model.Registry

	mu       sync.Mutex
	requests []*adkmodel.LLMRequest
	asked    []string // models, in order
	called   []string // tools, in order
	appended []dispatchapi.JournalEntry
	appends  int

	// failAppend, when set, fails the append of that number, from 1.
	failAppend int
	// onTool, when set, is called in the tool charge.
	onTool func(ctx context.Context) error
	// onAsk, when set, is called before the model answers.
	onAsk func()
	// says, when set, is what the model answers instead, in its turns.
	says []*genai.Content
	// huge, when set, is the tool of that name.
	huge func(ctx context.Context, args map[string]any) (map[string]any, error)
	// largest is the most bytes of entries in one append.
	largest int
}

var errFenced = errors.New("fenced")

func (h *house) Append(_ context.Context, entries []dispatchapi.JournalEntry) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.appends++
	if h.appends == h.failAppend {
		return errFenced
	}
	h.appended = append(h.appended, entries...)
	size := 0
	for _, e := range entries {
		size += len(e.Data)
	}
	h.largest = max(h.largest, size)
	return nil
}

func (h *house) Resolve(reference string, p *bundle.Project, s model.Settings) (adkmodel.LLM, error) {
	llm, err := h.registry.Resolve(reference, p, s)
	if err != nil {
		return nil, err
	}
	return &countingModel{LLM: llm, house: h}, nil
}

type countingModel struct {
	adkmodel.LLM
	house *house
}

func (m *countingModel) GenerateContent(ctx context.Context, req *adkmodel.LLMRequest, stream bool) iter.Seq2[*adkmodel.LLMResponse, error] {
	m.house.mu.Lock()
	m.house.requests = append(m.house.requests, req)
	m.house.asked = append(m.house.asked, m.Name())
	m.house.mu.Unlock()
	if m.house.onAsk != nil {
		m.house.onAsk()
	}
	if turn := len(m.house.asked); turn <= len(m.house.says) {
		return func(yield func(*adkmodel.LLMResponse, error) bool) {
			yield(&adkmodel.LLMResponse{Content: m.house.says[turn-1], TurnComplete: true}, nil)
		}
	}
	return m.LLM.GenerateContent(ctx, req, stream)
}

// tools are charge, which has an effect, look, which has none, and broken,
// which panics.
func (h *house) tools() []engine.Tool {
	call := func(name string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.called = append(h.called, name)
	}
	return []engine.Tool{
		{Name: "charge", Run: func(ctx context.Context, args map[string]any) (map[string]any, error) {
			call("charge")
			if h.onTool != nil {
				if err := h.onTool(ctx); err != nil {
					return nil, err
				}
			}
			return map[string]any{"charged": args["amount"]}, nil
		}},
		{Name: "look", Idempotent: true, Run: func(context.Context, map[string]any) (map[string]any, error) {
			call("look")
			return map[string]any{"seen": true}, nil
		}},
		{Name: "broken", Run: func(context.Context, map[string]any) (map[string]any, error) { panic("boom") }},
		{Name: "huge", Idempotent: true, Run: h.huge},
		{Name: "refuses", Idempotent: true, Run: func(context.Context, map[string]any) (map[string]any, error) {
			call("refuses")
			return nil, errors.New("not today")
		}},
	}
}

func (h *house) engine() *engine.Engine {
	return engine.New(engine.Config{Models: h, Tools: h.tools(), Sleep: func(context.Context, time.Duration) error { return nil }})
}

// project makes a repository of alternating paths and contents.
func project(t require.TestingT, pairs ...string) *bundle.Project {
	files := bundle.Files{}
	for i := 0; i < len(pairs); i += 2 {
		files[pairs[i]] = []byte(pairs[i+1])
	}
	p, err := bundle.Parse(files)
	require.NoError(t, err)
	return p
}

func input(p *bundle.Project, h *house) engine.Input {
	return engine.Input{RunID: "r1", AgentName: "main", Project: p, Message: `{"name":"Ada"}`, Journal: h}
}

const greeter = "name: main\nmodel: scripted/main\ntools: [charge, look, broken, refuses]\nsystem_prompt: Greet {name}.\ntemperature: 0.25\n"

func TestOneTurnCostsNoAppend(t *testing.T) {
	t.Parallel()
	h := &house{}
	in := input(project(t, "agents/main.yaml", greeter, "models/main.yaml", `steps: [{match: '"name":"(\w+)"', text: 'Hello ${1}!', tokens: {input: 5, output: 2}}]`), h)
	in.Context = map[string]any{"name": "Ada"}
	out := h.engine().Execute(t.Context(), in)
	require.Equal(t, engine.Completed, out.Status, out.Cause)
	require.Equal(t, "Hello Ada!", out.Output)
	require.Equal(t, dispatchapi.TokenUsage{InputTokens: 5, OutputTokens: 2, TotalTokens: 7}, out.Usage)
	require.Zero(t, h.appends)
	require.Len(t, out.Trailing, 1)
	require.Equal(t, dispatchapi.JournalModelAnswer, out.Trailing[0].Kind)
	require.EqualValues(t, 1, out.Trailing[0].Sequence)

	req := h.requests[0]
	require.Equal(t, "Greet Ada.", req.Config.SystemInstruction.Parts[0].Text)
	require.InDelta(t, 0.25, *req.Config.Temperature, 1e-9)
	require.Len(t, req.Config.Tools[0].FunctionDeclarations, 4)
	require.Equal(t, []*genai.Content{genai.NewContentFromText(`{"name":"Ada"}`, genai.RoleUser)}, req.Contents)
}

// TestPromptsHaveHeaders: their names have hyphens, and what is not there stays as it is.
func TestPromptsHaveHeaders(t *testing.T) {
	t.Parallel()
	h := &house{}
	in := input(project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\nsystem_prompt: '{headers.x-github-event}: {headers.x-other} {a-b}'\n",
		"models/main.yaml", `steps: [{text: done}]`), h)
	in.Context = map[string]any{"headers": map[string]any{"x-github-event": "push"}, "a-b": "no variable"}
	require.Equal(t, engine.Completed, h.engine().Execute(t.Context(), in).Status)
	require.Equal(t, "push: {headers.x-other} {a-b}", h.requests[0].Config.SystemInstruction.Parts[0].Text)
}

func TestToolsAreJournaledAroundTheCall(t *testing.T) {
	t.Parallel()
	h := &house{}
	h.onTool = func(context.Context) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		require.Len(t, h.appended, 2, "the start is acknowledged before the call")
		require.Equal(t, dispatchapi.JournalToolStarted, h.appended[1].Kind)
		require.True(t, h.appended[1].Unsafe)
		return nil
	}
	out := h.engine().Execute(t.Context(), input(project(t, "agents/main.yaml", greeter, "models/main.yaml", `
steps:
  - turn: 1
    tool_calls: [{name: charge, arguments: {amount: 3}}]
  - match: 'tool charge: \{"charged":3\}'
    text: Charged.
`), h))
	require.Equal(t, engine.Completed, out.Status, out.Cause)
	require.Equal(t, "Charged.", out.Output)
	kinds := []string{}
	for i, e := range append(slices.Clone(h.appended), out.Trailing...) {
		require.EqualValues(t, i+1, e.Sequence)
		kinds = append(kinds, e.Kind)
	}
	require.Equal(t, []string{"model_answer", "tool_started", "tool_result", "model_answer"}, kinds)
	require.Equal(t, 2, h.appends)
}

func TestSequenceHandsAnswersOn(t *testing.T) {
	t.Parallel()
	h := &house{}
	out := h.engine().Execute(t.Context(), input(project(t,
		"agents/main.yaml", "name: main\ntype: sequential\nagents: [draft, inner, draft]\n",
		"agents/inner.yaml", "name: inner\ntype: sequential\nagents: [polish]\n",
		"agents/draft.yaml", "name: draft\nmodel: scripted/draft\n",
		"agents/polish.yaml", "name: polish\nmodel: scripted/polish\n",
		"models/draft.yaml", "steps: [{match: 'polished', text: final}, {text: rough}]",
		"models/polish.yaml", "steps: [{match: 'rough', text: polished}]",
	), h))
	require.Equal(t, engine.Completed, out.Status, out.Cause)
	require.Equal(t, "final", out.Output)
	require.Equal(t, []string{"scripted/draft", "scripted/polish", "scripted/draft"}, h.asked)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		agent, script string
		code          string
	}{
		"model":       {greeter, "steps: [{error: {status: 400, message: nope}}]", model.CodeRejected},
		"iterations":  {greeter + "max_iterations: 3\n", "steps: [{tool_calls: [{name: look}]}]", engine.CodeMaxIterations},
		"timeout":     {greeter + "timeout: 0.001\n", "steps: [{text: x, delay: 1h}]", engine.CodeTimeout},
		"panic":       {greeter, "steps: [{tool_calls: [{name: broken}]}]", engine.CodeInternal},
		"no provider": {"name: main\nmodel: openai/x\n", "steps: [{text: x}]", model.CodeUnknownProvider},
		"tool":        {"name: main\nmodel: scripted/main\ntools: [unheard-of]\n", "steps: [{text: x}]", engine.CodeUnsupported},
		"type":        {"name: main\ntype: remote\nurl: https://example.com\n", "steps: [{text: x}]", engine.CodeUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &house{}
			out := h.engine().Execute(t.Context(), input(project(t, "agents/main.yaml", tt.agent, "models/main.yaml", tt.script), h))
			require.Equal(t, engine.Failed, out.Status, out.Cause)
			require.Equal(t, tt.code, out.ErrorCode)
			require.NotEmpty(t, out.Error)
			require.Empty(t, out.Output)
		})
	}
	h := &house{}
	in := input(project(t, "agents/main.yaml", greeter, "models/main.yaml", "steps: [{text: x}]"), h)
	in.AgentName = "gone"
	require.Equal(t, engine.CodeAgentNotFound, h.engine().Execute(t.Context(), in).ErrorCode)
}

func TestModelMayGoOnAfterAToolsError(t *testing.T) {
	t.Parallel()
	h := &house{}
	out := h.engine().Execute(t.Context(), input(project(t, "agents/main.yaml", greeter, "models/main.yaml", `
steps:
  - turn: 1
    tool_calls: [{name: refuses}, {name: never-heard}]
  - match: '(?s)not today.*never-heard'
    text: Sorry.
`), h))
	require.Equal(t, "Sorry.", out.Output, out.Cause)
}

func TestFallbackAndRetries(t *testing.T) {
	t.Parallel()
	h := &house{}
	out := h.engine().Execute(t.Context(), input(project(t,
		"agents/main.yaml", "name: main\nmodel: scripted/main\nfallback_model: scripted/spare\nretry_options: {attempts: 2}\n",
		"models/main.yaml", "steps: [{error: {status: 503}}]", "models/spare.yaml", "steps: [{text: spare}]"), h))
	require.Equal(t, "spare", out.Output, out.Cause)
	require.Equal(t, []string{"scripted/main", "scripted/main", "scripted/spare"}, h.asked)
}

func TestStopAwaitsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	p := project(t, "agents/main.yaml", greeter, "models/main.yaml", "steps: [{turn: 1, tool_calls: [{name: charge}]}, {text: done}]")
	for name, arm := range map[string]func(h *house, stop chan struct{}){
		"model": func(h *house, stop chan struct{}) { h.onAsk = func() { close(stop); h.onAsk = nil } },
		"tool": func(h *house, stop chan struct{}) {
			h.onTool = func(context.Context) error { close(stop); return nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, stop := &house{}, make(chan struct{})
			arm(h, stop)
			in := input(p, h)
			in.Stop = stop
			out := h.engine().Execute(t.Context(), in)
			require.Equal(t, engine.Unfinished, out.Status)
			require.ErrorIs(t, out.Cause, engine.ErrStopped)
			require.Empty(t, out.Trailing)
			require.Len(t, h.asked, 1)

			// Someone else goes on where this one stopped.
			next := &house{}
			resumed := input(p, next)
			resumed.Prior = h.appended
			out = next.engine().Execute(t.Context(), resumed)
			require.Equal(t, "done", out.Output, out.Cause)
			require.Len(t, next.asked, 1)
			require.Len(t, append(h.called, next.called...), 1)
		})
	}
}

func TestEndOfContextLeavesTheRunUnfinished(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	h := &house{onTool: func(ctx context.Context) error { cancel(); return ctx.Err() }}
	p := project(t, "agents/main.yaml", greeter, "models/main.yaml", "steps: [{turn: 1, tool_calls: [{name: charge}]}, {text: done}]")
	out := h.engine().Execute(ctx, input(p, h))
	require.Equal(t, engine.Unfinished, out.Status)

	next := &house{}
	resumed := input(p, next)
	resumed.Prior = h.appended
	out = next.engine().Execute(t.Context(), resumed)
	require.Equal(t, engine.Failed, out.Status)
	require.Equal(t, engine.CodeToolInterrupted, out.ErrorCode)
	require.Contains(t, out.Error, `"charge"`)
	require.Empty(t, next.called)
	require.Empty(t, next.asked)
}

func TestGateHoldsToolsBack(t *testing.T) {
	t.Parallel()
	h := &house{}
	in := input(project(t, "agents/main.yaml", greeter, "models/main.yaml", "steps: [{turn: 1, tool_calls: [{name: charge}]}, {text: done}]"), h)
	in.Gate = func(context.Context) error { return errors.New("claim lost") }
	out := h.engine().Execute(t.Context(), in)
	require.Equal(t, engine.Unfinished, out.Status)
	require.Empty(t, h.called)
	for _, e := range h.appended {
		require.NotEqual(t, dispatchapi.JournalToolStarted, e.Kind)
	}
}

func TestUnreadableJournalFails(t *testing.T) {
	t.Parallel()
	h := &house{}
	in := input(project(t, "agents/main.yaml", greeter, "models/main.yaml", "steps: [{text: x}]"), h)
	in.Prior = []dispatchapi.JournalEntry{{Sequence: 1, Kind: dispatchapi.JournalModelAnswer, Data: []byte(`[]`)}}
	require.Equal(t, engine.CodeInternal, h.engine().Execute(t.Context(), in).ErrorCode)
}

func TestCurrentTime(t *testing.T) {
	t.Parallel()
	tool := engine.Builtin(func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) })[0]
	got, err := tool.Run(t.Context(), map[string]any{"timezone": "Asia/Tokyo"})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"time": "2026-01-02T12:04:05+09:00", "timezone": "Asia/Tokyo", "weekday": "Friday"}, got)
	got, err = tool.Run(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "UTC", got["timezone"])
	_, err = tool.Run(t.Context(), map[string]any{"timezone": "Local"})
	require.Error(t, err)
}

func TestCheckNamesWhatIsNotSupported(t *testing.T) {
	t.Parallel()
	p := project(t,
		"agents/a.yaml", "name: a\nmodel: openai/x\ntools: [current_time, magic, {current_time: x > 1}]\nguardrails: {input: [{type: pii}]}\n",
		"agents/b.yaml", "name: b\ntype: tool\ntool_name: current_time\n",
		"agents/c-test-short.yaml", "name: brief\ntool_name: current_time\ntype: tool\n",
		"agents/c.yaml", "name: long\nmodel: openai/x\nvariants: {short: 10}\n",
		"hooks/a.star", "x",
	)
	require.EqualError(t, engine.New(engine.Config{}).Check(p), fmt.Sprint(
		"agents/a.yaml:3:1: the condition of tool current_time is not supported by this release; remove it\n",
		"agents/a.yaml:3:1: tool magic is unknown; there is current_time\n",
		`agents/a.yaml:4:1: "guardrails" is not supported by this release; remove it`, "\n",
		"agents/b.yaml:2:1: type tool is not supported by this release; remove it\n",
		"agents/c-test-short.yaml:3:1: type tool is not supported by this release; remove it\n",
		"hooks/a.star: the folder hooks is not supported by this release; remove it"))
	require.Empty(t, engine.New(engine.Config{}).Check(project(t, "agents/a.yaml", "name: a\nmodel: openai/x\ntools: [current_time]\n")))
}
