// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

// house is an engine with scripted models that counts all effects.
type house struct {
	registry model.Registry

	mu       sync.Mutex
	requests []*model.Request
	asked    []string // models, in order
	called   []string // tools, in order
	appended []dispatchapi.JournalEntry
	appends  int

	// appendTime is the duration of each append.
	appendTime time.Duration
	// failAppend is the number of the append that fails, from 1; 0 for none.
	failAppend int
	// onTool is called in the tool charge, if set.
	onTool func(ctx context.Context) error
	// onLook is called in the tool look, if set.
	onLook func()
	// onAsk is called before the model answers, if set.
	onAsk func()
	// says replaces the model's answers in its turns, if set.
	says []*model.Content
	// huge is the tool huge, if set.
	huge func(ctx context.Context, call *engine.Call) (map[string]any, error)
	// largest is the size of the largest append, in bytes.
	largest int
	// saved has the bytes of saved files by their IDs.
	saved map[string][]byte
	// rejectSaves is the code of the rejection of each save; "" accepts them.
	rejectSaves httpserver.Code
}

var errFenced = errors.New("fenced")

func (h *house) Append(_ context.Context, entries []dispatchapi.JournalEntry) error {
	if h.appendTime > 0 {
		time.Sleep(h.appendTime) // in a bubble
	}
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

// Save implements engine.SavedFiles.
func (h *house) Save(ctx context.Context, entries []dispatchapi.JournalEntry, data []byte) error {
	if h.rejectSaves != "" {
		return &dispatchapi.RejectedError{Detail: "of the platform", Code: h.rejectSaves}
	}
	var file dispatchapi.SavedFile
	if err := json.Unmarshal(entries[0].Data, &file); err != nil {
		return err
	}
	if err := h.Append(ctx, entries); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.saved == nil {
		h.saved = map[string][]byte{}
	}
	h.saved[file.ID] = data
	return nil
}

// ReadPart implements engine.SavedFiles.
func (h *house) ReadPart(_ context.Context, id string, offset, length int64) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	data := h.saved[id][offset:]
	return data[:min(length, int64(len(data)))], nil
}

func (h *house) Resolve(reference string, p *bundle.Project, s model.Settings) (model.Model, error) {
	llm, err := h.registry.Resolve(reference, p, s)
	if err != nil {
		return nil, err
	}
	return &countingModel{Model: llm, house: h}, nil
}

type countingModel struct {
	model.Model
	house *house
}

func (m *countingModel) Generate(ctx context.Context, req *model.Request) (*model.Answer, error) {
	m.house.mu.Lock()
	m.house.requests = append(m.house.requests, req)
	m.house.asked = append(m.house.asked, m.Name())
	turn := len(m.house.asked)
	m.house.mu.Unlock()
	if m.house.onAsk != nil {
		m.house.onAsk()
	}
	if turn <= len(m.house.says) {
		return &model.Answer{Content: m.house.says[turn-1]}, nil
	}
	return m.Model.Generate(ctx, req)
}

// tools returns charge, which has an effect, look, which has none, and broken, which panics.
func (h *house) tools() []engine.Tool {
	count := func(name string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.called = append(h.called, name)
	}
	return []engine.Tool{
		{Name: "charge", Run: func(ctx context.Context, call *engine.Call) (map[string]any, error) {
			count("charge")
			if h.onTool != nil {
				if err := h.onTool(ctx); err != nil {
					return nil, err
				}
			}
			return map[string]any{"charged": call.Arguments["amount"]}, nil
		}},
		{Name: "look", Idempotent: true, Run: func(context.Context, *engine.Call) (map[string]any, error) {
			count("look")
			if h.onLook != nil {
				h.onLook()
			}
			return map[string]any{"seen": true}, nil
		}},
		{Name: "broken", Run: func(context.Context, *engine.Call) (map[string]any, error) { panic("boom") }},
		{Name: "huge", Idempotent: true, Run: h.huge},
		{Name: "refuses", Idempotent: true, Run: func(context.Context, *engine.Call) (map[string]any, error) {
			count("refuses")
			return nil, errors.New("not today")
		}},
	}
}

func (h *house) engine() *engine.Engine {
	now := func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	return engine.New(engine.Config{Models: h, Tools: h.tools(), Now: now, Sleep: func(context.Context, time.Duration) error { return nil }, Features: []engine.Feature{h.scripting()}})
}

// scripting is a feature whose scripts look, charge twice, save a file and count in the run's context. The arguments of the last
// charge are the files that the script sees, so that it diverges if these are others in another attempt.
func (h *house) scripting() engine.Feature {
	saved := func(owner string) engine.Effect {
		return engine.Effect{Name: "save", Read: true, Save: func(context.Context) (engine.NewFile, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.called = append(h.called, "save")
			return engine.NewFile{Name: "file", MIMEType: "text/plain", Data: []byte("of " + owner)}, nil
		}}
	}
	do := func(name string, isRead bool) engine.Effect {
		return engine.Effect{Name: name, Read: isRead, Run: func(ctx context.Context, _ string) (map[string]any, error) {
			h.mu.Lock()
			h.called = append(h.called, name)
			h.mu.Unlock()
			if h.onTool != nil && !isRead {
				return nil, h.onTool(ctx)
			}
			return nil, nil
		}}
	}
	return engine.Feature{Name: "scripting", RunStep: func(ctx context.Context, at *engine.Scope, step engine.StepScript) (json.RawMessage, error) {
		ended, err := at.RunScript(ctx, step.Owner, "script.run", nil, func(ctx context.Context, run *engine.ScriptRun) (engine.Step, error) {
			text := ""
			for _, effect := range []engine.Effect{do("look", true), do("charge", false), saved(step.Owner), do("charge", false)} {
				files, err := run.Effects.SavedFiles(ctx)
				if err != nil {
					return engine.Step{}, err
				}
				effect.Arguments = map[string]any{"files": files}
				done, err := run.Effects.Do(ctx, effect)
				if err != nil {
					return engine.Step{}, err
				}
				if id, isFile := done.Value["id"].(string); isFile {
					part, err := run.Effects.ReadSaved(ctx, id, 1<<10)
					if err != nil {
						return engine.Step{}, err
					}
					text = string(part)
				}
			}
			scripts, _ := at.RunContext()["scripts"].(json.Number)
			n, _ := scripts.Int64()
			result, err := json.Marshal([]any{step.Input, step.Results, n, run.Began, text})
			return engine.Step{Outcome: "ended", Result: result, Context: map[string]any{"scripts": json.Number(strconv.FormatInt(n+1, 10))}}, err
		})
		return ended.Result, err
	}}
}

// project creates a repository from alternating paths and contents.
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
	return engine.Input{RunID: "r1", AgentName: "main", Project: p, Message: `{"name":"Ada"}`, Journal: h, SavedFiles: h}
}

const greeter = "name: main\nmodel: scripted/main\ntools: [charge, look, broken, refuses]\nsystem_prompt: Greet {name}.\ntemperature: 0.25\n"

func TestJournal_NeedsNoAppendForOneTurn(t *testing.T) {
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
	require.Equal(t, "Greet Ada.", req.Instructions)
	require.InDelta(t, 0.25, *req.Temperature, 1e-9)
	require.Len(t, req.Tools, 4)
	require.Equal(t, []*model.Content{model.TextContent(model.RoleUser, `{"name":"Ada"}`)}, req.Contents)
}

// Header names contain hyphens. A missing header is not replaced.
func TestPrompt_ReplacesHeaders(t *testing.T) {
	t.Parallel()
	h := &house{}
	in := input(project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\nsystem_prompt: '{headers.x-github-event}: {headers.x-other} {a-b}'\n",
		"models/main.yaml", `steps: [{text: done}]`), h)
	in.Context = map[string]any{"headers": map[string]any{"x-github-event": "push"}, "a-b": "no variable"}
	require.Equal(t, engine.Completed, h.engine().Execute(t.Context(), in).Status)
	require.Equal(t, "push: {headers.x-other} {a-b}", h.requests[0].Instructions)
}

func TestTool_IsRecordedBeforeAndAfterCall(t *testing.T) {
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
	require.Equal(t, []string{"model_answer", "tool_started", "tool_result", "model_answer"}, kindsOf(t, append(slices.Clone(h.appended), out.Trailing...)))
}

func TestSequence_PassesAnswersOn(t *testing.T) {
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

func TestExecute_ReturnsFailures(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		agent, script string
		code          runerror.Code
	}{
		"model":       {greeter, "steps: [{error: {status: 400, message: nope}}]", runerror.ModelRequestRejected},
		"iterations":  {greeter + "max_iterations: 3\n", "steps: [{tool_calls: [{name: look}]}]", runerror.MaxIterationsExceeded},
		"timeout":     {greeter + "timeout: 0.001\n", "steps: [{text: x, delay: 1h}]", runerror.Timeout},
		"panic":       {greeter, "steps: [{tool_calls: [{name: broken}]}]", runerror.Internal},
		"no provider": {"name: main\nmodel: openai/x\n", "steps: [{text: x}]", runerror.ModelUnknownProvider},
		"tool":        {"name: main\nmodel: scripted/main\ntools: [unheard-of]\n", "steps: [{text: x}]", runerror.NotSupported},
		"type":        {"name: main\ntype: remote\nurl: https://example.com\n", "steps: [{text: x}]", runerror.NotSupported},
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
	require.Equal(t, runerror.AgentNotFound, h.engine().Execute(t.Context(), in).ErrorCode)
}

func TestTool_ErrorIsShownToModel(t *testing.T) {
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

func TestExecute_RetriesAndFallsBack(t *testing.T) {
	t.Parallel()
	h := &house{}
	out := h.engine().Execute(t.Context(), input(project(t,
		"agents/main.yaml", "name: main\nmodel: scripted/main\nfallback_model: scripted/spare\nretry_options: {attempts: 2}\n",
		"models/main.yaml", "steps: [{error: {status: 503}}]", "models/spare.yaml", "steps: [{text: spare}]"), h))
	require.Equal(t, "spare", out.Output, out.Cause)
	require.Equal(t, []string{"scripted/main", "scripted/main", "scripted/spare"}, h.asked)
}

func TestStop_AwaitsCurrentWork(t *testing.T) {
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

			// Another runner continues.
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

func TestExecute_ContextEndLeavesRunUnfinished(t *testing.T) {
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
	require.Equal(t, runerror.ToolInterrupted, out.ErrorCode)
	require.Contains(t, out.Error, `"charge"`)
	require.Empty(t, next.called)
	require.Empty(t, next.asked)
}

func TestGate_DelaysTools(t *testing.T) {
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

func TestJournal_UnreadableFailsRun(t *testing.T) {
	t.Parallel()
	h := &house{}
	in := input(project(t, "agents/main.yaml", greeter, "models/main.yaml", "steps: [{text: x}]"), h)
	in.Prior = []dispatchapi.JournalEntry{{Sequence: 1, Kind: dispatchapi.JournalModelAnswer, Data: []byte(`[]`)}}
	require.Equal(t, runerror.Internal, h.engine().Execute(t.Context(), in).ErrorCode)
}

func TestBuiltin_CurrentTime(t *testing.T) {
	t.Parallel()
	tool := engine.Builtin(func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) })[0]
	got, err := tool.Run(t.Context(), &engine.Call{Arguments: map[string]any{"timezone": "Asia/Tokyo"}})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"time": "2026-01-02T12:04:05+09:00", "timezone": "Asia/Tokyo", "weekday": "Friday"}, got)
	got, err = tool.Run(t.Context(), &engine.Call{})
	require.NoError(t, err)
	require.Equal(t, "UTC", got["timezone"])
	_, err = tool.Run(t.Context(), &engine.Call{Arguments: map[string]any{"timezone": "Local"}})
	require.Error(t, err)
}

func TestCheck_ReportsUnsupported(t *testing.T) {
	t.Parallel()
	p := project(t,
		"agents/a.yaml", "name: a\nmodel: openai/x\ntools: [current_time, magic]\nguardrails: {input: [{type: pii}]}\n",
		"agents/b.yaml", "name: b\ntype: remote\nurl: https://a.example\n",
		"agents/c-test-short.yaml", "name: brief\nurl: https://a.example\ntype: remote\n",
		"agents/e.yaml", "name: e\ntype: tool\ntool_name: magic\n",
		"agents/c.yaml", "name: long\nmodel: openai/x\nvariants: {short: 10}\n",
		"guardrails/a.star", "def check(text, context):\n  return None\n",
	)
	require.EqualError(t, engine.New(engine.Config{}).Check(p), fmt.Sprint(
		"agents/a.yaml:3:1: tool magic is unknown; use one of current_time\n",
		`agents/a.yaml:4:1: "guardrails" is not supported by this release; remove it`, "\n",
		`agents/b.yaml:2:7: "type": remote is not supported by this release; use llm or sequential or tool`, "\n",
		`agents/c-test-short.yaml:3:7: "type": remote is not supported by this release; use llm or sequential or tool`, "\n",
		"agents/e.yaml:3:1: tool magic is unknown; use one of current_time\n",
		"guardrails/a.star: the folder guardrails is not supported by this release; remove it"))
	require.Empty(t, engine.New(engine.Config{}).Check(project(t, "agents/a.yaml", "name: a\nmodel: openai/x\ntools: [current_time]\n")))
}
