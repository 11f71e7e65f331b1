// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	adkmodel "google.golang.org/adk/v2/model"
	"google.golang.org/genai"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/model"
)

// scope is one place of the agent tree in one attempt.
type scope struct {
	*attempt
	agent *bundle.Agent
	path  string
	stage *stage
}

// limit bounds a step by what the run and the stage have left.
func (s *scope) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return s.end.sooner(s.stage.end()).bound(ctx)
}

// journaledModel answers from the journal what it holds, and records the rest.
type journaledModel struct {
	*scope
	llm    adkmodel.LLM
	prompt string
	turn   int // the framework asks one agent's model one thing at a time
}

// Name is the model's reference.
func (m *journaledModel) Name() string { return m.llm.Name() }

// GenerateContent implements model.LLM; it gives one answer or one error.
func (m *journaledModel) GenerateContent(ctx context.Context, req *adkmodel.LLMRequest, _ bool) iter.Seq2[*adkmodel.LLMResponse, error] {
	return func(yield func(*adkmodel.LLMResponse, error) bool) {
		answer, err := m.next(ctx, req)
		if err != nil {
			yield(nil, m.stop(err))
			return
		}
		yield(&adkmodel.LLMResponse{Content: answer.Content, FinishReason: answer.FinishReason, TurnComplete: true}, nil)
	}
}

func (m *journaledModel) next(ctx context.Context, req *adkmodel.LLMRequest) (modelAnswer, error) {
	m.turn++
	if m.turn > m.agent.MaxIterations {
		return modelAnswer{}, &failure{code: CodeMaxIterations, message: fmt.Sprintf("agent %q gave %d model answers without coming to an end (max_iterations)", m.agent.Name, m.agent.MaxIterations)}
	}
	if known, ok := m.journal.answer(m.path, m.turn); ok {
		return known, nil
	}
	if err := m.mayGoOn(ctx); err != nil {
		return modelAnswer{}, err
	}
	if err := m.journal.flush(ctx); err != nil {
		return modelAnswer{}, err
	}
	resp, err := m.ask(ctx, req)
	if err != nil {
		return modelAnswer{}, err
	}
	return m.journal.recordAnswer(modelAnswer{
		Agent: m.path, Turn: m.turn, Model: cmp.Or(resp.ModelVersion, m.llm.Name()), Content: resp.Content,
		FinishReason: resp.FinishReason, Usage: usageOf(resp.UsageMetadata),
	})
}

func (m *journaledModel) ask(ctx context.Context, req *adkmodel.LLMRequest) (*adkmodel.LLMResponse, error) {
	ctx, cancel := m.limit(ctx)
	defer cancel()
	if late := timedOut(ctx); late != nil {
		return nil, late
	}
	if err := attach(req.Contents, m.in.Files); err != nil {
		return nil, fmt.Errorf("attaching the run's files: %w", err)
	}
	// The prompt is exactly the repository's; the framework adds words of its own.
	req.Config.SystemInstruction = nil
	if m.prompt != "" {
		req.Config.SystemInstruction = genai.NewContentFromText(m.prompt, genai.RoleUser)
	}
	ctx = model.WithWaste(ctx, func(name string, f *model.Error) {
		m.journal.recordFailure(modelFailure{Agent: m.path, Turn: m.turn, Model: name, Error: f.Code, Usage: usageOf(f.Usage)})
	})
	for resp, err := range m.llm.GenerateContent(ctx, req, false) {
		if late := timedOut(ctx); err != nil && late != nil {
			return nil, late
		}
		if err != nil {
			return nil, err
		}
		if resp.Content == nil {
			resp.Content = &genai.Content{Role: genai.RoleModel}
		}
		return resp, nil
	}
	return nil, errors.New("the model gave no answer")
}

func usageOf(u *genai.GenerateContentResponseUsageMetadata) dispatchapi.TokenUsage {
	if u == nil {
		return dispatchapi.TokenUsage{}
	}
	return dispatchapi.TokenUsage{
		InputTokens: int64(u.PromptTokenCount), OutputTokens: int64(u.CandidatesTokenCount),
		ThinkingTokens: int64(u.ThoughtsTokenCount), CachedInputTokens: int64(u.CachedContentTokenCount),
		TotalTokens: int64(u.TotalTokenCount),
	}
}

// answerText is what an answer says, without thoughts.
func answerText(content *genai.Content) string {
	var text strings.Builder
	for _, part := range content.Parts {
		if !part.Thought {
			text.WriteString(part.Text)
		}
	}
	return text.String()
}
