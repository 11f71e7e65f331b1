// SPDX-License-Identifier: Apache-2.0

// Package runnerconfig is what controllers mount into build and runner pods and
// the runner reads there: names of files and the form of their contents.
package runnerconfig

import (
	"encoding/json"
	"fmt"
)

// Keys of a Secret with Git credentials, the names of its files once mounted.
const (
	GitUsername    = "username"
	GitPassword    = "password"
	GitBearerToken = "bearerToken"
	GitIdentity    = "identity"    // SSH private key, PEM
	GitKnownHosts  = "known_hosts" // required for SSH
	GitCA          = "ca.crt"      // PEM, trusted in place of the system's
)

// ProvidersFile is the file of model providers in the Secret of a runner pool.
const ProvidersFile = "providers.json"

// Types of model providers.
const (
	// ProviderOpenAI speaks OpenAI's Chat Completions.
	ProviderOpenAI = "openai"
)

// OpenAIAddress is where a provider of the type openai is that says no other address.
const OpenAIAddress = "https://api.openai.com/v1"

// Providers is the content of ProvidersFile.
type Providers struct {
	Providers []Provider `json:"providers"`
}

// Provider is a model service: an agent's model prefix/name is asked of the
// provider with that prefix.
type Provider struct {
	Prefix string `json:"prefix"`
	Type   string `json:"type"`
	// BaseURL includes the version, such as https://api.openai.com/v1.
	BaseURL string `json:"base_url,omitempty"`
	APIKey  string `json:"api_key,omitempty"`
}

// ParseProviders reads the content of ProvidersFile. Errors do not show values.
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
