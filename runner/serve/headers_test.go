// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"
	adkmodel "google.golang.org/adk/v2/model"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/serve"
)

// listening are models that tell their system prompts.
type listening struct {
	model.Registry
	prompts chan string
}

func (l *listening) Resolve(reference string, p *bundle.Project, s model.Settings) (adkmodel.LLM, error) {
	llm, err := l.Registry.Resolve(reference, p, s)
	return &listeningModel{llm, l.prompts}, err
}

type listeningModel struct {
	adkmodel.LLM
	prompts chan string
}

func (m *listeningModel) GenerateContent(ctx context.Context, req *adkmodel.LLMRequest, stream bool) iter.Seq2[*adkmodel.LLMResponse, error] {
	m.prompts <- req.Config.SystemInstruction.Parts[0].Text
	return m.LLM.GenerateContent(ctx, req, stream)
}

// TestARunSeesTheHeadersOfItsEvent: those that dispatch names, and never a field of the
// input that is called so.
func TestARunSeesTheHeadersOfItsEvent(t *testing.T) {
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
