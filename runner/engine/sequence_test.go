// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

// pipeline returns a repository with steps and the agents that they run, each with a model of its own that gives one
// answer. An answer may contain ${input}, the last message.
func pipeline(t require.TestingT, steps string, answers map[string]string) *bundle.Project {
	pairs := []string{"agents/main.yaml", "name: main\ntype: sequential\n" + steps}
	for name, answer := range answers {
		text, err := json.Marshal(answer)
		require.NoError(t, err)
		pairs = append(pairs, "agents/"+name+".yaml", "name: "+name+"\nmodel: scripted/"+name+"\n",
			"models/"+name+".yaml", "steps: [{match: '(?s)(?P<input>.*)', text: "+string(text)+"}]\n")
	}
	return project(t, pairs...)
}

// texts returns the texts of the messages that a model saw at its first request.
func (h *house) texts(model string) (texts []string) {
	at := slices.Index(h.asked, model)
	if at < 0 {
		return nil
	}
	for _, content := range h.requests[at].Contents {
		texts = append(texts, content.Text())
	}
	return texts
}

func TestSteps_PassResults(t *testing.T) {
	t.Parallel()
	p := pipeline(t, `
steps:
  - {agent: classify, as: ticket}
  - {tool: charge, with: {amount: ticket.order, fixed: 5, text: '"a" + input.name'}, as: order}
  - {agent: refund, when: 'ticket.category == "billing"', input: 'order.charged'}
  - {agent: chat-bot, when: 'ticket.category == "question"'}
  - parallel:
      - {agent: summary, as: s, input: {ticket: ticket, refund: refund, chat: chat_bot}}
      - {agent: mood, when: context.tier == "gold"}
      - {tool: look, as: seen}
  - {agent: answer, input: {s: s, mood: mood, seen: seen.seen, event: 'headers["x-event"]'}}
output: '{"category": ticket.category, "order": order.charged, "answer": answer, "text": s}'
`, map[string]string{
		"classify": `{"category": "billing", "order": 9007199254740993}`, "refund": "refunded", "chat-bot": "hi",
		"summary": "sum", "mood": "glad", "answer": " [done",
	})
	h := &house{}
	in := input(p, h)
	in.Context = map[string]any{"tier": "silver", "headers": map[string]any{"x-event": "push"}}
	out := h.engine().Execute(t.Context(), in)
	require.Equal(t, engine.Completed, out.Status, out.Cause)
	require.JSONEq(t, `{"category":"billing","order":9007199254740993,"answer":" [done","text":"sum"}`, out.Output)
	require.Contains(t, out.Output, "9007199254740993", "numbers keep their digits")
	require.Equal(t, []string{`{"name":"Ada"}`}, h.texts("scripted/classify"), "the whole input")
	require.Equal(t, []string{"9007199254740993"}, h.texts("scripted/refund"))
	require.Equal(t, []string{`{"chat":null,"refund":"refunded","ticket":{"category":"billing","order":9007199254740993}}`}, h.texts("scripted/summary"))
	require.Equal(t, []string{`{"event":"push","mood":null,"s":"sum","seen":true}`}, h.texts("scripted/answer"))
	require.NotContains(t, h.asked, "scripted/chat-bot", "a skipped step")
	require.NotContains(t, h.asked, "scripted/mood")

	calls, err := engine.Calls(append(h.appended, out.Trailing...))
	require.NoError(t, err)
	require.Equal(t, engine.CallRecord{Tool: "charge", Arguments: map[string]any{
		"amount": json.Number("9007199254740993"), "fixed": json.Number("5"), "text": "aAda",
	}}, calls[0])
	require.Len(t, calls, 2)
}

// Without an output the output is that of the last step that ran.
func TestSteps_OutputOfLastStep(t *testing.T) {
	t.Parallel()
	answers := map[string]string{"a": "one", "b": "two"}
	for name, row := range map[string]struct{ steps, want string }{
		"agent":       {"steps: [{agent: a}, {agent: b}]\n", "two"},
		"skipped":     {"steps: [{agent: a}, {agent: b, when: false}]\n", "one"},
		"all skipped": {"steps: [{agent: a, when: false}]\n", ""},
		"tool":        {"steps: [{agent: a}, {tool: look}]\n", `{"seen":true}`},
		"text":        {"steps: [{agent: a}]\noutput: a + '!'\n", "one!"},
		"null":        {"steps: [{agent: a, when: false}]\noutput: a\n", "null"},
		"number":      {"steps: [{agent: a}]\noutput: 5\n", "5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &house{}
			out := h.engine().Execute(t.Context(), input(pipeline(t, row.steps, answers), h))
			require.Equal(t, engine.Completed, out.Status, out.Cause)
			require.Equal(t, row.want, out.Output)
		})
	}
}

// A step sees only its own input. Steps that share their history see each other as the agents of "agents" do.
func TestSteps_ShareHistory(t *testing.T) {
	t.Parallel()
	answers := map[string]string{"a": "one", "b": "two", "c": "three", "d": "four"}
	h := &house{}
	out := h.engine().Execute(t.Context(), input(pipeline(t, `
steps:
  - {agent: a, share_history: true}
  - {agent: b}
  - {agent: c, share_history: true}
  - {agent: d, share_history: true, input: '"go on: " + b'}
`, answers), h))
	require.Equal(t, "four", out.Output, out.Cause)
	const whole = `{"name":"Ada"}`
	require.Equal(t, []string{whole}, h.texts("scripted/a"))
	require.Equal(t, []string{whole}, h.texts("scripted/b"))
	require.Equal(t, []string{whole, "For context:[a] said: one"}, h.texts("scripted/c"))
	require.Equal(t, []string{whole, "For context:[a] said: one", "For context:[c] said: three", "go on: two"}, h.texts("scripted/d"))
}

// Agents with steps are steps of other agents, with a conversation of their own.
func TestSteps_Nest(t *testing.T) {
	t.Parallel()
	h := &house{}
	out := h.engine().Execute(t.Context(), input(project(t,
		"agents/main.yaml", "name: main\ntype: sequential\nagents: [first, inner, last]\n",
		"agents/inner.yaml", "name: inner\ntype: sequential\nsteps: [{agent: middle}]\noutput: middle + '!'\n",
		"agents/first.yaml", "name: first\nmodel: scripted/first\n", "models/first.yaml", "steps: [{text: one}]",
		"agents/middle.yaml", "name: middle\nmodel: scripted/middle\n", "models/middle.yaml", "steps: [{text: two}]",
		"agents/last.yaml", "name: last\nmodel: scripted/last\n", "models/last.yaml", "steps: [{text: three}]",
	), h))
	require.Equal(t, "three", out.Output, out.Cause)
	require.Equal(t, []string{"For context:[first] said: one"}, h.texts("scripted/middle"))
	require.Equal(t, []string{`{"name":"Ada"}`, "For context:[first] said: one", "For context:[inner] said: two!"}, h.texts("scripted/last"))
}

// A run fails for an expression or a tool that fails. The error names the key and contains no data of expressions.
func TestSteps_Fail(t *testing.T) {
	t.Parallel()
	var called []any
	answers := map[string]string{"a": `{"secret": "4711"}`}
	for name, row := range map[string]struct {
		steps   string
		code    runerror.Code
		message string
	}{
		"when":         {"steps: [{agent: a}, {agent: a, as: b, when: a.category == 'x'}]\n", runerror.ExpressionFailed, `"steps[1].when" of agent "main" cannot be evaluated: no such key: category`},
		"condition":    {"steps: [{agent: a}, {agent: a, as: b, when: a.secret}]\n", runerror.ExpressionFailed, `"steps[1].when" of agent "main" cannot be evaluated: it returns a string; write a condition that is true or false`},
		"with":         {"steps: [{agent: a}, {tool: look, with: {n: int(a.secret + 'x')}}]\n", runerror.ExpressionFailed, `"steps[1].with.n" of agent "main" cannot be evaluated: an operation of it is not possible with these values`},
		"input":        {"steps: [{agent: a}, {agent: a, as: b, input: 'a[a.secret]'}]\n", runerror.ExpressionFailed, `"steps[1].input" of agent "main" cannot be evaluated: no such key`},
		"key of input": {"steps: [{agent: a}, {parallel: [{agent: a, as: b, input: {x: a.y}}]}]\noutput: b\n", runerror.ExpressionFailed, `"steps[1].parallel[0].input.x" of agent "main" cannot be evaluated: no such key: y`},
		"output":       {"steps: [{agent: a}]\noutput: a.b\n", runerror.ExpressionFailed, `"output" of agent "main" cannot be evaluated: no such key: b`},
		"tool":         {"steps: [{agent: a}, {tool: refuses}]\n", runerror.ToolFailed, `"steps[1]" of agent "main": tool "refuses" failed: not today`},
		"arguments":    {"steps: [{agent: a}, {tool: strict, with: {n: a.secret}}]\n", runerror.ToolArgumentsInvalid, `"steps[1]" of agent "main": the arguments do not fit: n: must be of type integer, not string`},
		"limit":        {"steps: [{tool: look}, {tool: look}]\nlimits: {tool_calls: 1}\n", runerror.RunLimitExceeded, `agent "main" made more than 1 tool calls in this run, which is its limit (limits.tool_calls)`},
		"panic":        {"steps: [{parallel: [{tool: broken}, {tool: look}]}]\noutput: 'input'\n", runerror.Internal, "the agent could not be run"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &house{}
			e := engine.New(engine.Config{Models: h, Tools: append(h.tools(), strict(t, &called))})
			p := pipeline(t, row.steps, answers)
			require.Empty(t, e.Check(p))
			out := e.Execute(t.Context(), input(p, h))
			require.Equal(t, row.code, out.ErrorCode, out.Cause)
			require.Equal(t, row.message, out.Error)
			if row.code == runerror.Internal {
				return
			}
			resumed := input(p, &house{})
			resumed.Prior = append(h.appended, out.Trailing...)
			require.Equal(t, row.message, e.Execute(t.Context(), resumed).Error, "a later attempt fails too")
		})
	}
	require.Empty(t, called)
}

// The actions of a parallel step run at the same time, each with its own path.
func TestParallel_RunsAtTheSameTime(t *testing.T) {
	t.Parallel()
	h := &house{}
	arrived, together := make(chan struct{}, 3), make(chan struct{})
	meet := func() {
		arrived <- struct{}{}
		<-together
	}
	go func() {
		for range 3 {
			<-arrived
		}
		close(together)
	}()
	h.onLook = meet
	h.onAsk = meet
	p := pipeline(t, "steps: [{parallel: [{agent: a}, {tool: look, as: l}, {agent: b}]}]\noutput: '[a, l, b]'\n", map[string]string{"a": "one", "b": "two"})
	out := h.engine().Execute(t.Context(), input(p, h))
	require.JSONEq(t, `["one",{"seen":true},"two"]`, out.Output, out.Cause)
	var paths []string
	for _, e := range append(h.appended, out.Trailing...) {
		var data struct {
			Agent  string `json:"agent"`
			CallID string `json:"call_id"`
		}
		require.NoError(t, json.Unmarshal(e.Data, &data))
		if e.Kind == dispatchapi.JournalToolStarted {
			require.Equal(t, "step:"+data.Agent, data.CallID)
		}
		if e.Kind != dispatchapi.JournalToolResult {
			paths = append(paths, data.Agent)
		}
	}
	slices.Sort(paths)
	require.Equal(t, []string{"main/0.0:a", "main/0.1:look", "main/0.2:b"}, paths)
}

// The first failure cancels the other actions, and is the error of the run.
func TestParallel_FailureCancelsOthers(t *testing.T) {
	t.Parallel()
	h := &house{}
	begun := make(chan struct{})
	h.onTool = func(ctx context.Context) error {
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	}
	h.onLook = func() { <-begun }
	p := pipeline(t, "steps: [{parallel: [{tool: charge}, {agent: a}]}]\noutput: a\n", map[string]string{"a": "x"})
	p.Scripts["a"].Steps[0] = bundle.Step{Error: &bundle.StepError{Status: 400, Message: "no"}}
	h.onAsk = func() { <-begun }
	out := h.engine().Execute(t.Context(), input(p, h))
	require.Equal(t, engine.Failed, out.Status)
	require.Equal(t, runerror.ModelRequestRejected, out.ErrorCode, out.Cause)
}

// A stop awaits the actions in progress, so that no effect is interrupted, and begins no other.
func TestParallel_StopAwaitsActions(t *testing.T) {
	t.Parallel()
	h, stop, asked := &house{}, make(chan struct{}), make(chan struct{})
	charging := make(chan struct{})
	h.onTool = func(ctx context.Context) error {
		close(charging)
		<-asked
		return ctx.Err()
	}
	h.onLook = func() {
		<-charging
		close(stop)
	}
	p := project(t, "agents/main.yaml", "name: main\ntype: sequential\nsteps: [{parallel: [{tool: charge, as: c}, {agent: a}]}]\noutput: '[c, a]'\n",
		"agents/a.yaml", "name: a\nmodel: scripted/a\ntools: [look]\n", "models/a.yaml", "steps: [{turn: 1, tool_calls: [{name: look}]}, {text: done}]")
	in := input(p, h)
	in.Stop = stop
	in.Gate = func(ctx context.Context) error { return ctx.Err() }
	ended := make(chan engine.Outcome)
	go func() { ended <- h.engine().Execute(t.Context(), in) }()
	<-stop
	close(asked)
	out := <-ended
	require.Equal(t, engine.Unfinished, out.Status)
	require.ErrorIs(t, out.Cause, engine.ErrStopped)

	next := &house{}
	resumed := input(p, next)
	resumed.Prior = h.appended
	out = next.engine().Execute(t.Context(), resumed)
	require.JSONEq(t, `[{"charged":null},"done"]`, out.Output, out.Cause)
	require.Empty(t, next.called, "no tool is called twice")
	require.Len(t, next.asked, 1)
}

// marking is a feature that counts the agents that ran in the run's context.
func marking() engine.Feature {
	return engine.Feature{Name: "marking", WrapAgent: func(at *engine.Scope, next engine.AgentFunc) engine.AgentFunc {
		return func(ctx context.Context, in engine.Message) (engine.Message, error) {
			seen, _ := at.RunContext()["seen"].(string)
			_, err := at.Step(ctx, "middleware:"+at.Path()+":before", "before", func(context.Context) (engine.Step, error) {
				return engine.Step{Outcome: "ended", Context: map[string]any{"seen": seen + at.Agent().Name}}, nil
			})
			if err != nil {
				return engine.Message{}, err
			}
			return next(ctx, in)
		}
	}}
}

// Actions that run at the same time do not see each other's changes of the context. Later steps see the changes in the
// order of the actions.
func TestParallel_ContextDependsOnNoOrder(t *testing.T) {
	t.Parallel()
	p := pipeline(t, "steps: [{parallel: [{agent: a}, {agent: b}, {agent: c}]}, {agent: d}]\noutput: context.seen\n",
		map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"})
	for range 20 {
		h := &house{}
		in := input(p, h)
		in.Context = map[string]any{}
		out := engine.New(engine.Config{Models: h, Features: []engine.Feature{marking()}}).Execute(t.Context(), in)
		require.Equal(t, "maincd", out.Output, out.Cause)
		require.Equal(t, "maincd", in.Context["seen"])
	}
}

// The steps of a sequence inside of a parallel step see each other's changes of the context, and other actions do not.
func TestParallel_NestedSequenceKeepsContextApart(t *testing.T) {
	t.Parallel()
	const inner = "type: sequential\nsteps: [{agent: a, as: x}, {agent: b, as: y}]\noutput: context.seen\n"
	p := project(t, "agents/main.yaml", "name: main\ntype: sequential\nsteps: [{parallel: [{agent: one}, {agent: two}]}]\noutput: '[one, two, context.seen]'\n",
		"agents/one.yaml", "name: one\n"+inner, "agents/two.yaml", "name: two\n"+inner,
		"agents/a.yaml", "name: a\nmodel: scripted/a\n", "models/a.yaml", "steps: [{text: x}]",
		"agents/b.yaml", "name: b\nmodel: scripted/a\n")
	for range 20 {
		h := &house{}
		in := input(p, h)
		in.Context = map[string]any{}
		out := engine.New(engine.Config{Models: h, Features: []engine.Feature{marking()}}).Execute(t.Context(), in)
		require.JSONEq(t, `["mainoneab","maintwoab","maintwoab"]`, out.Output, out.Cause)
	}
}

// A model cannot choose the ID of a step's call.
func TestSteps_HaveReservedCallIDs(t *testing.T) {
	t.Parallel()
	call := callOf("look", nil)
	call.Parts[0].Call.ID = "step:main"
	h := &house{says: []*model.Content{call, model.TextContent(model.RoleModel, "done")}}
	p := project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [look]\n", "models/main.yaml", "steps: [{text: x}]")
	out := h.engine().Execute(t.Context(), input(p, h))
	require.Equal(t, "done", out.Output, out.Cause)
	for _, e := range append(h.appended, out.Trailing...) {
		require.NotContains(t, string(e.Data), "step:main")
	}
}

// A build reports a tool of a step that no engine has.
func TestCheck_ReportsToolsOfSteps(t *testing.T) {
	t.Parallel()
	p := project(t, "agents/main.yaml", "name: main\ntype: sequential\nsteps:\n  - {tool: magic}\n")
	problems := (&house{}).engine().Check(p).Error()
	require.True(t, strings.HasPrefix(problems, "agents/main.yaml:4:6: tool magic is unknown; use one of"), problems)
}
