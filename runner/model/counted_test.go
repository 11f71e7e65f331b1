// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
)

// answering is a model that always returns the same response.
type answering struct {
	resp *Answer
	err  error
}

func (answering) Name() string { return "CANARY" }

func (answering) Server() *runtrace.Server { return nil }

func (a answering) Generate(context.Context, *Request) (*Answer, error) { return a.resp, a.err }

// Outcomes are codes of this package and never texts of a service.
func TestCounted_CountsRequestsByOutcome(t *testing.T) {
	t.Parallel()
	usage := &dispatchapi.TokenUsage{InputTokens: 3, OutputTokens: 2, ThinkingTokens: 1, CachedInputTokens: 1}
	for outcome, c := range map[string]struct {
		cancelled bool
		answer    answering
		tokens    int
	}{
		"ok":                 {false, answering{resp: &Answer{Usage: usage}}, 4},
		"model_rate_limited": {false, answering{err: &Error{Code: runerror.ModelRateLimited, Message: "CANARY"}}, 0},
		"cancelled":          {true, answering{err: &Error{Code: runerror.ModelUnavailable}}, 0},
		"other":              {false, answering{err: errors.New("CANARY")}, 0},
	} {
		t.Run(outcome, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			if c.cancelled {
				cancel()
			}
			registry := prometheus.NewRegistry()
			r := &Registry{Metrics: metrics.NewRunner(registry, ProviderTypes, Codes)}
			_, err := generateOnce(ctx, r.counted(runnerconfig.ProviderOpenAI, c.answer), nil)
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

// All models of Resolve are counted under one of ProviderTypes.
func TestRegistry_CountsAllProviders(t *testing.T) {
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

// A code that is not in Codes would be counted under another code.
func TestCodes_ListsAllCodes(t *testing.T) {
	t.Parallel()
	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	listed, used := map[string]bool{}, map[string]bool{}
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, 0)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			names := used
			if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.VAR && d.Specs[0].(*ast.ValueSpec).Names[0].Name == "Codes" {
				names = listed
			}
			addModelCodes(names, decl)
		}
	}
	require.NotEmpty(t, used)
	require.Equal(t, used, listed)
}

// addModelCodes adds the constants of runerror that a declaration uses.
func addModelCodes(names map[string]bool, decl ast.Decl) {
	ast.Inspect(decl, func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok && strings.HasPrefix(selector.Sel.Name, "Model") {
			if owner, ok := selector.X.(*ast.Ident); ok && owner.Name == "runerror" {
				names[selector.Sel.Name] = true
			}
		}
		return true
	})
}
