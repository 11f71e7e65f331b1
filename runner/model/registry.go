// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/http"
	"strings"

	adkmodel "google.golang.org/adk/v2/model"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// scriptedPrefix is the provider of models that are scripts of the repository.
const scriptedPrefix = "scripted"

// Settings are an agent's wishes that are not part of a request.
type Settings struct {
	// ReasoningEffort is minimal, low, medium or high; "" leaves it to the model.
	ReasoningEffort string
}

// Registry finds models by their references.
type Registry struct {
	// Providers returns the model services of now; nil means none. It is called
	// for every reference, so that keys may be replaced.
	Providers func() (runnerconfig.Providers, error)
	// HTTP reaches model services.
	HTTP *http.Client
	// Metrics count requests and tokens; nil counts nowhere.
	Metrics *metrics.Runner
}

// ProviderTypes are the types of model services that a Registry knows.
var ProviderTypes = []string{scriptedPrefix, runnerconfig.ProviderOpenAI}

// Resolve returns the model of a reference, provider/model. Scripts are of the
// given project. The error is an *Error.
func (r *Registry) Resolve(reference string, project *bundle.Project, settings Settings) (adkmodel.LLM, error) {
	prefix, name, _ := strings.Cut(reference, "/")
	if prefix == scriptedPrefix {
		script, ok := project.Scripts[name]
		if !ok {
			return nil, &Error{Code: CodeUnknownProvider, Message: fmt.Sprintf("the repository has no script models/%s.yaml", name)}
		}
		return r.counted(scriptedPrefix, &scriptedModel{name: reference, script: script}), nil
	}
	providers, err := r.providers()
	if err != nil {
		return nil, &Error{Code: CodeUnknownProvider, Message: "the model providers of the project could not be read", Retryable: true, err: err}
	}
	for _, p := range providers.Providers {
		if p.Prefix != prefix {
			continue
		}
		if p.Type != runnerconfig.ProviderOpenAI {
			return nil, &Error{Code: CodeUnknownProvider, Message: fmt.Sprintf("model provider %q has type %q, which this release does not speak; use openai", prefix, p.Type)}
		}
		var problem string
		if p.APIKey, problem = runnerconfig.Credential(p.APIKey); problem != "" {
			return nil, &Error{Code: CodeUnauthorized, Message: fmt.Sprintf("the API key of model provider %q %s", prefix, problem)}
		}
		return r.counted(p.Type, newOpenAI(p, name, settings, r.HTTP)), nil
	}
	return nil, &Error{Code: CodeUnknownProvider, Message: fmt.Sprintf("no model provider has the prefix %q; add it to modelProviders of the Project", prefix)}
}

func (r *Registry) providers() (runnerconfig.Providers, error) {
	if r.Providers == nil {
		return runnerconfig.Providers{}, nil
	}
	return r.Providers()
}
