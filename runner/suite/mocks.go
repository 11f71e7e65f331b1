// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/features"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/script"
)

// mocksOf returns the mocks of a case and its suite.
func mocksOf(s *bundle.Suite, c *bundle.Case) bundle.Mocks {
	return bundle.Mocks{
		Models: overlay(s.Mocks.Models, c.Mocks.Models), Tools: overlay(s.Mocks.Tools, c.Mocks.Tools),
		HTTP: slices.Concat(c.Mocks.HTTP, s.Mocks.HTTP), // the first one that fits answers
		MCP:  slices.Concat(c.Mocks.MCP, s.Mocks.MCP),
	}
}

// overlay returns base with the values of own taking precedence.
func overlay[T any](base, own map[string]T) map[string]T {
	out := make(map[string]T, len(base)+len(own))
	maps.Copy(out, base)
	maps.Copy(out, own)
	return out
}

// engineOf returns an engine with the mocks of a case.
func engineOf(opts Options, scripts *script.Pool, s *bundle.Suite, c *bundle.Case) *engine.Engine {
	mocks := mocksOf(s, c)
	config := engine.Config{
		Models: mockedModels{opts.Models, mocks.Models}, Variables: opts.Variables, Prices: unmocked(opts.Prices, mocks.Models),
		Features: append([]engine.Feature{watchNotes()}, append(features.New(features.Config{
			ToolHTTP: &http.Client{Transport: mockTransport(mocks.HTTP)}, Variables: opts.Variables, Scripts: scripts, Mocked: true,
		}), mockMCP(mocks.MCP))...),
		Tools: opts.Tools, ReplaceTool: func(t engine.Tool) engine.Tool { return mockTool(t, mocks.Tools) },
	}
	if !asksReal(opts.Project, s.Agent, mocks) {
		config.Sleep = func(ctx context.Context, _ time.Duration) error { return ctx.Err() } // no service needs time to recover
	}
	return engine.New(config)
}

// mockTool returns a tool that answers with its mock. A tool without a mock is unchanged.
func mockTool(t engine.Tool, mocks map[string]bundle.ToolMock) engine.Tool {
	mock, ok := mocks[t.Reference]
	if !ok {
		mock, ok = mocks[t.Name]
	}
	if ok {
		t.Run = func(context.Context, *engine.Call) (map[string]any, error) {
			if mock.Error != "" {
				return nil, errors.New(mock.Error)
			}
			return mock.Result, nil
		}
	}
	return t
}

// unmocked returns the prices of models without a mock. Mocks cost nothing.
func unmocked(prices func() (runnerconfig.Prices, error), mocks map[string]bundle.ModelMock) func() (runnerconfig.Prices, error) {
	if prices == nil {
		return nil
	}
	return func() (runnerconfig.Prices, error) {
		p, err := prices()
		maps.DeleteFunc(p.Prices, func(reference string, _ runnerconfig.Price) bool { _, mocked := mocks[reference]; return mocked })
		return p, err
	}
}

// asksReal reports whether an agent calls a model service.
func asksReal(project *bundle.Project, agent string, mocks bundle.Mocks) bool {
	for _, a := range project.Steps(agent) {
		for _, use := range a.Models() {
			if _, mocked := mocks.Models[use.Reference]; !mocked && !strings.HasPrefix(use.Reference, bundle.ScriptedPrefix) {
				return true
			}
		}
	}
	return false
}

// mockedModels are models with mocks.
type mockedModels struct {
	engine.Models
	mocks map[string]bundle.ModelMock
}

// Resolve implements engine.Models.
func (m mockedModels) Resolve(reference string, project *bundle.Project, settings model.Settings) (model.Model, error) {
	mock, mocked := m.mocks[reference]
	switch {
	case !mocked:
		return m.Models.Resolve(reference, project, settings)
	case mock.Script != nil:
		return model.Scripted(reference, mock.Script), nil
	}
	return model.Scripted(reference, project.Scripts[strings.TrimPrefix(mock.Reference, bundle.ScriptedPrefix)]), nil
}
