// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"iter"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	adkmodel "google.golang.org/adk/v2/model"
	"google.golang.org/genai"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
)

// answering is a model that always says the same.
type answering struct {
	resp *adkmodel.LLMResponse
	err  error
}

func (answering) Name() string { return "CANARY" }

func (a answering) GenerateContent(context.Context, *adkmodel.LLMRequest, bool) iter.Seq2[*adkmodel.LLMResponse, error] {
	return func(yield func(*adkmodel.LLMResponse, error) bool) { yield(a.resp, a.err) }
}

// TestRequestsAreCountedByTheirOutcome: a code of ours, and nothing that a service
// says.
func TestRequestsAreCountedByTheirOutcome(t *testing.T) {
	t.Parallel()
	usage := &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 3, CandidatesTokenCount: 2, ThoughtsTokenCount: 1, CachedContentTokenCount: 1}
	for outcome, c := range map[string]struct {
		cancelled bool
		answer    answering
		tokens    int
	}{
		"ok":                 {false, answering{resp: &adkmodel.LLMResponse{UsageMetadata: usage}}, 4},
		"model_rate_limited": {false, answering{err: &Error{Code: CodeRateLimited, Message: "CANARY"}}, 0},
		"cancelled":          {true, answering{err: &Error{Code: CodeUnavailable}}, 0},
		"other":              {false, answering{err: errors.New("CANARY")}, 0},
	} {
		t.Run(outcome, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			if c.cancelled {
				cancel()
			}
			registry := prometheus.NewRegistry()
			r := &Registry{Metrics: metrics.NewRunner(registry, ProviderTypes, Codes)}
			_, err := once(ctx, r.counted(runnerconfig.ProviderOpenAI, c.answer), nil)
			require.Equal(t, c.answer.err, err)
			s := metrictest.Of(t, registry)
			moved := s.Moved()
			require.InDelta(t, 1, moved[`agentplatform_runner_model_requests_total{outcome="`+outcome+`",provider="openai"}`], 0)
			require.Len(t, moved, 2+c.tokens)
			require.NotContains(t, s.Text(), "CANARY")
			cancel()
		})
	}
}

// TestEveryProviderOfARegistryIsCounted: what Resolve gives counts under one of
// ProviderTypes.
func TestEveryProviderOfARegistryIsCounted(t *testing.T) {
	t.Parallel()
	r := &Registry{Metrics: metrics.NewRunner(nil, ProviderTypes, Codes), Providers: func() (runnerconfig.Providers, error) {
		return runnerconfig.Providers{Providers: []runnerconfig.Provider{{Prefix: "corp", Type: runnerconfig.ProviderOpenAI}}}, nil
	}}
	project := &bundle.Project{Scripts: map[string]*bundle.Script{"hello": {}}}
	seen := map[string]bool{}
	for _, reference := range []string{"scripted/hello", "corp/gpt"} {
		llm, err := r.Resolve(reference, project, Settings{})
		require.NoError(t, err)
		require.IsType(t, counted{}, llm)
		seen[llm.(counted).provider] = true
	}
	for _, provider := range ProviderTypes {
		require.True(t, seen[provider], provider)
	}
}

// TestEveryCodeIsKnown: a code that is not in Codes would be counted as another.
func TestEveryCodeIsKnown(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "error.go", nil, 0)
	require.NoError(t, err)
	declared := 0
	ast.Inspect(file, func(node ast.Node) bool {
		if spec, ok := node.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Code") && spec.Names[0].Name != "Codes" {
			declared++
		}
		return true
	})
	require.Len(t, Codes, declared)
}
