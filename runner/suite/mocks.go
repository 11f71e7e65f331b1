// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	adkmodel "google.golang.org/adk/v2/model"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

const scriptedPrefix = "scripted/"

// mocksOf are the mocks of a case with those of its suite.
func mocksOf(s *bundle.Suite, c *bundle.Case) bundle.Mocks {
	return bundle.Mocks{Models: over(s.Mocks.Models, c.Mocks.Models), Tools: over(s.Mocks.Tools, c.Mocks.Tools)}
}

// over is base with what own has in place of it.
func over[T any](base, own map[string]T) map[string]T {
	out := make(map[string]T, len(base)+len(own))
	maps.Copy(out, base)
	maps.Copy(out, own)
	return out
}

// engineOf is an engine with the mocks of a case in front of models and tools.
func engineOf(opts Options, s *bundle.Suite, c *bundle.Case) *engine.Engine {
	mocks := mocksOf(s, c)
	tools := opts.Tools
	if tools == nil {
		tools = engine.Builtin(time.Now)
	}
	config := engine.Config{Models: mockedModels{opts.Models, mocks.Models}, Variables: opts.Variables, Prices: unmocked(opts.Prices, mocks.Models)}
	for _, tool := range tools {
		if mock, ok := mocks.Tools[tool.Name]; ok {
			tool.Run = func(context.Context, map[string]any) (map[string]any, error) {
				if mock.Error != "" {
					return nil, errors.New(mock.Error)
				}
				return mock.Result, nil
			}
		}
		config.Tools = append(config.Tools, tool)
	}
	if !asksReal(opts.Project, s.Agent, mocks) {
		config.Sleep = func(ctx context.Context, _ time.Duration) error { return ctx.Err() } // no service has to recover
	}
	return engine.New(config)
}

// unmocked are the prices of models that no mock stands in for: what a mock answers costs nothing.
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

// asksReal says whether an agent asks a model service.
func asksReal(project *bundle.Project, agent string, mocks bundle.Mocks) bool {
	for _, a := range project.Steps(agent) {
		for _, reference := range []string{a.Model, a.FallbackModel} {
			if _, mocked := mocks.Models[reference]; reference != "" && !mocked && !strings.HasPrefix(reference, scriptedPrefix) {
				return true
			}
		}
	}
	return false
}

// mockedModels are models with mocks in front of them.
type mockedModels struct {
	engine.Models
	mocks map[string]bundle.ModelMock
}

// Resolve implements engine.Models.
func (m mockedModels) Resolve(reference string, project *bundle.Project, settings model.Settings) (adkmodel.LLM, error) {
	mock, mocked := m.mocks[reference]
	switch {
	case !mocked:
		return m.Models.Resolve(reference, project, settings)
	case mock.Script != nil:
		return model.Scripted(reference, mock.Script), nil
	}
	return model.Scripted(reference, project.Scripts[strings.TrimPrefix(mock.Reference, scriptedPrefix)]), nil
}
