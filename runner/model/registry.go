// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/http"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// Settings are settings of an agent that are not part of a request.
type Settings struct {
	// ReasoningEffort is minimal, low, medium or high, or "" for the default of the model.
	ReasoningEffort string
	// MaxOutputTokens limits the tokens of an answer, including thinking; 0 for the default of the model.
	MaxOutputTokens int
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
var ProviderTypes = []string{runnerconfig.ProviderScripted, runnerconfig.ProviderOpenAI}

// Resolve returns the model for a reference, provider/model. Scripts come from the given project.
// The error is an *Error.
func (r *Registry) Resolve(reference string, project *bundle.Project, settings Settings) (Model, error) {
	providers, unread := r.providers()
	p, name, found := providers.FindProvider(reference)
	switch {
	case p.Type == runnerconfig.ProviderScripted:
		script, ok := project.Scripts[name]
		if !ok {
			return nil, &Error{Code: runerror.ModelUnknownProvider, Message: fmt.Sprintf("the repository has no script models/%s.yaml", name)}
		}
		return r.counted(p.Type, &scriptedModel{name: reference, script: script}), nil
	case unread != nil:
		return nil, &Error{
			Code: runerror.ModelUnknownProvider, Message: "the model providers of the project could not be read", Retryable: true, err: unread,
		}
	case !found:
		return nil, &Error{Code: runerror.ModelUnknownProvider, Message: runnerconfig.NoProvider(p.Prefix)}
	case p.Type != runnerconfig.ProviderOpenAI:
		return nil, &Error{Code: runerror.ModelUnknownProvider, Message: fmt.Sprintf(
			"model provider %q has type %q, which this release does not support; use openai", p.Prefix, p.Type)}
	}
	var problem string
	if p.APIKey, problem = runnerconfig.Credential(p.APIKey); problem != "" {
		return nil, &Error{Code: runerror.ModelUnauthorized, Message: fmt.Sprintf("the API key of model provider %q %s", p.Prefix, problem)}
	}
	return r.counted(p.Type, newOpenAI(p, name, settings, r.HTTP)), nil
}

func (r *Registry) providers() (runnerconfig.Providers, error) {
	if r.Providers == nil {
		return runnerconfig.Providers{}, nil
	}
	return r.Providers()
}
