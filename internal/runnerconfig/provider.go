// SPDX-License-Identifier: Apache-2.0

package runnerconfig

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// ProvidersFile is the file of model providers in the Secret of a runner pool.
const ProvidersFile = "providers.json"

// Types of model providers.
const (
	// ProviderOpenAI is OpenAI's Chat Completions API.
	ProviderOpenAI = "openai"
	// ProviderScripted is the type and the prefix of the built-in provider. Its models are files of the repository.
	ProviderScripted = "scripted"
)

// OpenAIAddress is the default address of a provider of the type openai.
const OpenAIAddress = "https://api.openai.com/v1"

// Providers is the content of ProvidersFile.
type Providers struct {
	Providers []Provider `json:"providers"`
}

// Provider is a model service: it answers agents with the model prefix/name.
type Provider struct {
	Prefix string `json:"prefix"`
	Type   string `json:"type"`
	// BaseURL includes the version, such as https://api.openai.com/v1.
	BaseURL string `json:"base_url,omitempty"`
	APIKey  string `json:"api_key,omitempty"`
}

// FindProvider returns the provider of a model, provider/model, and the name of the model there. It always finds the
// built-in provider. If found is false, the provider has only the missing prefix.
func (p Providers) FindProvider(reference string) (provider Provider, model string, found bool) {
	prefix, model, _ := strings.Cut(reference, "/")
	if prefix == ProviderScripted {
		return Provider{Prefix: prefix, Type: ProviderScripted}, model, true
	}
	at := slices.IndexFunc(p.Providers, func(one Provider) bool { return one.Prefix == prefix })
	if at < 0 {
		return Provider{Prefix: prefix}, model, false
	}
	return p.Providers[at], model, true
}

// NoProvider returns the problem of a missing provider, with the remedy.
func NoProvider(prefix string) string {
	return fmt.Sprintf("no model provider has the prefix %q; add it to spec.modelProviders of the Project, or correct the model", prefix)
}

// ParseProviders parses the content of ProvidersFile. Its errors contain no values.
func ParseProviders(data []byte) (Providers, error) {
	var p Providers
	if err := json.Unmarshal(data, &p); err != nil {
		return Providers{}, fmt.Errorf("reading %s: %w", ProvidersFile, err)
	}
	seen := map[string]bool{}
	for i, one := range p.Providers {
		switch {
		case one.Prefix == "" || one.Type == "":
			return Providers{}, fmt.Errorf("reading %s: provider %d lacks its prefix or type", ProvidersFile, i)
		case seen[one.Prefix]:
			return Providers{}, fmt.Errorf("reading %s: prefix %q appears twice", ProvidersFile, one.Prefix)
		}
		seen[one.Prefix] = true
	}
	return p, nil
}
