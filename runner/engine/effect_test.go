// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// effectScript is a tool that performs effects like a script, and counts them.
type effectScript struct {
	effects []engine.Effect
	done    []string // effects that reached the world, by key
	// kill is the number of the effect that kills the runner: before it reaches the world, or after it if late is set.
	kill int
	late bool
}

// tool returns the tool with its runner's end.
func (s *effectScript) tool(end context.CancelFunc) engine.Tool {
	return engine.Tool{Name: "script", Idempotent: true, Run: func(ctx context.Context, call *engine.Call) (map[string]any, error) {
		effects := call.Effects()
		var texts []string
		for i, effect := range s.effects {
			effect.Run = func(ctx context.Context, key string) (map[string]any, error) {
				if i+1 == s.kill && !s.late {
					end()
					return nil, ctx.Err()
				}
				s.done = append(s.done, key)
				if i+1 == s.kill {
					end()
					return nil, ctx.Err()
				}
				return map[string]any{"n": i + 1}, nil
			}
			result, err := effects.Do(ctx, effect)
			if err != nil {
				return nil, err
			}
			texts = append(texts, fmt.Sprint(result.Value["n"], result.Error))
		}
		return map[string]any{"all": strings.Join(texts, " ")}, nil
	}}
}

// attempt runs an agent that calls the script once, from a journal. It returns the outcome and the whole journal.
func (s *effectScript) attempt(t *testing.T, prior []dispatchapi.JournalEntry) (engine.Outcome, []dispatchapi.JournalEntry) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h := &house{}
	in := input(project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [script]\n",
		"models/main.yaml", "steps: [{turn: 1, tool_calls: [{name: script}]}, {text: done}]"), h)
	in.Prior = prior
	out := engine.New(engine.Config{Models: h, Tools: []engine.Tool{s.tool(cancel)}}).Execute(ctx, in)
	return out, slices.Concat(prior, h.appended, out.Trailing)
}

func write(name string) engine.Effect {
	return engine.Effect{Name: "http.post", Arguments: map[string]any{"url": name}}
}

// A script whose runner is killed at any effect continues with the first effect that has no result. No effect happens
// twice.
func TestEffects_HappenOnce(t *testing.T) {
	t.Parallel()
	read := engine.Effect{Name: "http.get", Arguments: map[string]any{"url": "c"}, Read: true}
	put := engine.Effect{Name: "http.put", Arguments: map[string]any{"url": "d"}, Idempotent: true}
	effects := []engine.Effect{write("a"), write("b"), read, put, write("e")}
	for kill := range len(effects) + 1 {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprint("killed at effect ", kill, ", late ", late), func(t *testing.T) {
				t.Parallel()
				s := &effectScript{effects: effects, kill: kill, late: late}
				out, journal := s.attempt(t, nil)
				if kill > 0 {
					require.Equal(t, engine.Unfinished, out.Status)
					s.kill = 0
					out, _ = s.attempt(t, journal)
				}
				if kill > 0 && !effects[kill-1].Read && !effects[kill-1].Idempotent {
					require.Equal(t, runerror.ToolInterrupted, out.ErrorCode, "the effect itself may have happened")
					require.Contains(t, out.Error, `tool "http.post"`)
					return
				}
				require.Equal(t, "done", out.Output, out.Cause)
				repeated := kill > 0 && late
				for i := range effects {
					key := fmt.Sprintf("r1/call_1_0/%d", i+1)
					times := 1
					if repeated && i+1 == kill {
						times = 2
					}
					require.Len(t, slices.DeleteFunc(slices.Clone(s.done), func(k string) bool { return k != key }), times, key)
				}
			})
		}
	}
}

// A script that asks for another effect than before fails its run, and repeats nothing.
func TestEffects_FailOnDivergence(t *testing.T) {
	t.Parallel()
	s := &effectScript{effects: []engine.Effect{write("a"), {Name: "http.put", Arguments: map[string]any{"url": "b"}, Idempotent: true}}, kill: 2}
	_, journal := s.attempt(t, nil)
	for name, effects := range map[string][]engine.Effect{
		"other arguments of a recorded effect": {write("x"), write("b")},
		"other name of a recorded effect":      {{Name: "http.delete", Arguments: map[string]any{"url": "a"}}, write("b")},
		"other arguments of a started effect":  {write("a"), write("c")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			again := &effectScript{effects: effects}
			out, _ := again.attempt(t, journal)
			require.Equal(t, runerror.ScriptDiverged, out.ErrorCode, out.Cause)
			require.Empty(t, again.done)
		})
	}
}

// A read is recorded with its result alone, and effects are no calls of a model.
func TestEffects_AreNoCalls(t *testing.T) {
	t.Parallel()
	s := &effectScript{effects: []engine.Effect{{Name: "http.get", Read: true}, write("a")}}
	_, journal := s.attempt(t, nil)
	var kinds []string
	for _, e := range journal {
		kinds = append(kinds, e.Kind)
	}
	require.Equal(t, []string{"model_answer", "tool_started", "tool_result", "tool_started", "tool_result", "tool_result", "model_answer"}, kinds)
	calls, err := engine.Calls(journal)
	require.NoError(t, err)
	require.Len(t, calls, 1)
	require.Equal(t, "script", calls[0].Tool)
}

// doubling is a feature that appends a mark to each answer, in a step that runs once.
func doubling(runs *int) engine.Feature {
	return engine.Feature{Name: "doubling", WrapAgent: func(at *engine.Scope, next engine.AgentFunc) engine.AgentFunc {
		return func(ctx context.Context, in engine.Message) (engine.Message, error) {
			out, err := next(ctx, in)
			if err != nil {
				return out, err
			}
			step, err := at.Step(ctx, "middleware:"+at.Path()+":after", "after", func(context.Context) (engine.Step, error) {
				*runs++
				text, err := json.Marshal(out.Content.Text() + "!")
				return engine.Step{Outcome: "ended", Result: text, Context: map[string]any{"marked": true}}, err
			})
			if err != nil {
				return out, err
			}
			out.Content.Parts[0].Text = strings.Trim(string(step.Result), `"`)
			return out, nil
		}
	}}
}

// A feature wraps each agent of a tree, and its step runs once over all attempts.
func TestStep_RunsOnce(t *testing.T) {
	t.Parallel()
	p := project(t, "agents/main.yaml", "name: main\ntype: sequential\nagents: [one, two]\n",
		"agents/one.yaml", "name: one\nmodel: scripted/main\n", "agents/two.yaml", "name: two\nmodel: scripted/main\n",
		"models/main.yaml", "steps: [{match: '(?s).*said: (?P<text>.*)', text: 'again ${text}'}, {text: hi}]")
	runs, h := 0, &house{}
	execute := func(prior []dispatchapi.JournalEntry) (engine.Outcome, map[string]any) {
		in := input(p, h)
		in.Prior, in.Context = prior, map[string]any{}
		return engine.New(engine.Config{Models: h, Features: []engine.Feature{doubling(&runs)}}).Execute(t.Context(), in), in.Context
	}
	out, values := execute(nil)
	require.Equal(t, "again hi!!!", out.Output, out.Cause)
	require.Equal(t, map[string]any{"marked": true}, values)
	require.Equal(t, 3, runs)
	for cut := range out.Trailing {
		t.Run(fmt.Sprint("resumed after entry ", cut), func(t *testing.T) {
			again, values := execute(slices.Clone(out.Trailing[:cut]))
			require.Equal(t, out.Output, again.Output, again.Cause)
			require.Equal(t, map[string]any{"marked": true}, values)
		})
	}
	runs = 0
	again, _ := execute(out.Trailing)
	require.Equal(t, out.Output, again.Output)
	require.Zero(t, runs)
}

// A run that waits is left to a runner that knows what it waits for. After the wait its journal is read.
func TestResume_ReadsWaits(t *testing.T) {
	t.Parallel()
	p := project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\n", "models/main.yaml", "steps: [{text: hi}]")
	wait := dispatchapi.JournalEntry{Sequence: 1, Kind: dispatchapi.JournalWait, Data: []byte(`{"id":"w","kind":"timer","until":"2026-01-02T03:04:05Z"}`)}
	for name, row := range map[string]struct {
		prior []dispatchapi.JournalEntry
		want  engine.Status
	}{
		"open":    {[]dispatchapi.JournalEntry{wait}, engine.Unfinished},
		"resumed": {[]dispatchapi.JournalEntry{wait, {Sequence: 2, Kind: dispatchapi.JournalResumed, Data: []byte(`{}`)}}, engine.Completed},
		"expired": {[]dispatchapi.JournalEntry{wait, {Sequence: 2, Kind: dispatchapi.JournalExpired}}, engine.Completed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &house{}
			in := input(p, h)
			in.Prior = row.prior
			out := h.engine().Execute(t.Context(), in)
			require.Equal(t, row.want, out.Status, out.Cause)
			if row.want == engine.Unfinished {
				require.ErrorIs(t, out.Cause, engine.ErrLaterJournal)
				require.Empty(t, h.asked)
			}
		})
	}
}

// The runs of an engine save three files at a time, because each of them is in memory until it is stored.
func TestEffects_LimitFilesInMemory(t *testing.T) {
	t.Parallel()
	const runs, limit = 6, 3
	p := project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [script]\n",
		"models/main.yaml", "steps: [{turn: 1, tool_calls: [{name: script}]}, {text: done}]")
	synctest.Test(t, func(t *testing.T) {
		var active atomic.Int64
		gate := make(chan struct{})
		tool := engine.Tool{Name: "script", Idempotent: true, Run: func(ctx context.Context, call *engine.Call) (map[string]any, error) {
			result, err := call.Effects().Do(ctx, engine.Effect{Name: "http.save", Read: true, Save: func(context.Context) (engine.NewFile, error) {
				active.Add(1)
				defer active.Add(-1)
				<-gate
				return engine.NewFile{Name: "a", Data: []byte("a")}, nil
			}})
			return result.Value, err
		}}
		e := engine.New(engine.Config{Models: &house{}, Tools: []engine.Tool{tool}})
		var group sync.WaitGroup
		for range runs {
			group.Go(func() {
				h := &house{}
				in := input(p, h)
				in.SavedFiles = &engine.MemoryFiles{Journal: h}
				assert.Equal(t, engine.Completed, e.Execute(t.Context(), in).Status)
			})
		}
		for left := runs; left > 0; left-- {
			synctest.Wait()
			require.EqualValues(t, min(left, limit), active.Load())
			gate <- struct{}{}
		}
		group.Wait()
	})
}
