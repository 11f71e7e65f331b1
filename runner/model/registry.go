// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// scriptedPrefix is the provider of scripted models.
const scriptedPrefix = "scripted"

// Settings are settings of an agent that are not part of a request.
type Settings struct {
	// ReasoningEffort is minimal, low, medium or high, or "" for the default of the model.
	ReasoningEffort string
}

// Registry resolves references to models.
type Registry struct {
	// Providers returns the current model services; nil means none. It is called for each
	// reference, so keys can be replaced.
	Providers func() (runnerconfig.Providers, error)
	// HTTP sends requests to model services.
	HTTP *http.Client
	// Metrics count requests and tokens; nil disables them.
	Metrics *metrics.Runner
}

// ProviderTypes lists the types of model services of a Registry.
var ProviderTypes = []string{scriptedPrefix, runnerconfig.ProviderOpenAI}

// Resolve returns the model for a reference, provider/model. Scripts come from the given project.
// The error is an *Error.
func (r *Registry) Resolve(reference string, project *bundle.Project, settings Settings) (Model, error) {
	prefix, name, _ := strings.Cut(reference, "/")
	if prefix == scriptedPrefix {
		script, ok := project.Scripts[name]
		if !ok {
			return nil, &Error{Code: runerror.ModelUnknownProvider, Message: fmt.Sprintf("the repository has no script models/%s.yaml", name)}
		}
		return r.counted(scriptedPrefix, &scriptedModel{name: reference, script: script}), nil
	}
	providers, err := r.providers()
	if err != nil {
		return nil, &Error{Code: runerror.ModelUnknownProvider, Message: "the model providers of the project could not be read", Retryable: true, err: err}
	}
	for _, p := range providers.Providers {
		if p.Prefix != prefix {
			continue
		}
		if p.Type != runnerconfig.ProviderOpenAI {
			return nil, &Error{Code: runerror.ModelUnknownProvider, Message: fmt.Sprintf("model provider %q has type %q, which this release does not support; use openai", prefix, p.Type)}
		}
		var problem string
		if p.APIKey, problem = runnerconfig.Credential(p.APIKey); problem != "" {
			return nil, &Error{Code: runerror.ModelUnauthorized, Message: fmt.Sprintf("the API key of model provider %q %s", prefix, problem)}
		}
		return r.counted(p.Type, newOpenAI(p, name, settings, r.HTTP)), nil
	}
	return nil, &Error{Code: runerror.ModelUnknownProvider, Message: fmt.Sprintf("no model provider has the prefix %q; add it to modelProviders of the Project", prefix)}
}

func (r *Registry) providers() (runnerconfig.Providers, error) {
	if r.Providers == nil {
		return runnerconfig.Providers{}, nil
	}
	return r.Providers()
}
