// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/tracecontext"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/serve"
)

// listening records the system prompts of models.
type listening struct {
	model.Registry
	prompts chan string
}

func (l *listening) Resolve(reference string, p *bundle.Project, s model.Settings) (model.Model, error) {
	llm, err := l.Registry.Resolve(reference, p, s)
	return &listeningModel{llm, l.prompts}, err
}

type listeningModel struct {
	model.Model
	prompts chan string
}

func (m *listeningModel) Generate(ctx context.Context, req *model.Request) (*model.Answer, error) {
	m.prompts <- req.Instructions
	return m.Model.Generate(ctx, req)
}

// The headers come from dispatch and never from an input field with the same name.
func TestHeaders_ReachRun(t *testing.T) {
	t.Parallel()
	p := newPort(t, bundle.Files{
		"agents/hello.yaml": []byte("name: hello\nmodel: scripted/hello\nsystem_prompt: 'A {headers.x-github-event} by {name}.'\n"),
		"models/hello.yaml": []byte("steps: [{text: done}]"),
	})
	models := &listening{prompts: make(chan string, 1)}
	r := started(t, p, "one", nil, func(o *serve.Options) { o.Engine = engine.New(engine.Config{Models: models}) })
	const input = `{"name":"Ada","headers":{"x-github-event":"made up"}}`
	for want, headers := range map[string]map[string]string{
		"A push by Ada.":                     {"x-github-event": "push"},
		"A {headers.x-github-event} by Ada.": nil,
	} {
		t.Run(want, func(t *testing.T) {
			run := p.queueRun(dispatchapi.Run{AgentName: "hello", ContentType: "application/json", Input: []byte(input), Headers: headers})
			require.Equal(t, dispatchapi.StatusCompleted, p.await(t, run).Status)
			require.Equal(t, want, <-models.prompts)
		})
	}
	require.NoError(t, r.end(t))
}

// The connector of the event reaches the context, and never an input field with the same name.
func TestConnectorID_ReachesRun(t *testing.T) {
	t.Parallel()
	p := newPort(t, bundle.Files{
		"agents/hello.yaml": []byte("name: hello\nmodel: scripted/hello\nsystem_prompt: 'Of {connector_id}.'\n"),
		"models/hello.yaml": []byte("steps: [{text: done}]"),
	})
	models := &listening{prompts: make(chan string, 1)}
	r := started(t, p, "one", nil, func(o *serve.Options) { o.Engine = engine.New(engine.Config{Models: models}) })
	connector := uuid.New()
	run := p.queueRun(dispatchapi.Run{
		AgentName: "hello", ContentType: "application/json", Input: []byte(`{"connector_id":"made up"}`), ConnectorID: connector,
	})
	require.Equal(t, dispatchapi.StatusCompleted, p.await(t, run).Status)
	require.Equal(t, "Of "+connector.String()+".", <-models.prompts)
	require.NoError(t, r.end(t))
}

// The traceparent of the event reaches the actions of its run.
func TestTraceparent_ReachesRun(t *testing.T) {
	t.Parallel()
	p := newPort(t, bundle.Files{
		"agents/hello.yaml": []byte("name: hello\nmodel: scripted/hello\ntools: [look]\n"),
		"models/hello.yaml": []byte("steps: [{turn: 1, tool_calls: [{name: look}]}, {text: done}]"),
	})
	seen := make(chan string, 1)
	look := engine.Tool{Name: "look", Run: func(ctx context.Context, _ *engine.Call) (map[string]any, error) {
		seen <- tracecontext.CurrentTraceparent(ctx)
		return map[string]any{}, nil
	}}
	r := started(t, p, "one", nil, func(o *serve.Options) {
		o.Engine = engine.New(engine.Config{Models: &model.Registry{}, Tools: []engine.Tool{look}})
	})
	const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	run := p.queueRun(dispatchapi.Run{AgentName: "hello", ContentType: "application/json", Input: []byte(`{}`), Traceparent: traceparent})
	require.Equal(t, dispatchapi.StatusCompleted, p.await(t, run).Status)
	require.Equal(t, tracecontext.TraceparentOf(traceparent, run.String(), "call_1_0"), <-seen)
	require.NoError(t, r.end(t))
}
