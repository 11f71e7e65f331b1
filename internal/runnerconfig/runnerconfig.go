// SPDX-License-Identifier: Apache-2.0

// Package runnerconfig defines the files that controllers mount into build and runner pods: their
// names and contents.
package runnerconfig

import (
	"encoding/json"
	"fmt"
)

// Keys of a Secret with Git credentials, which are the names of the mounted files.
const (
	GitUsername    = "username"
	GitPassword    = "password"
	GitBearerToken = "bearerToken"
	GitIdentity    = "identity"    // SSH private key, PEM
	GitKnownHosts  = "known_hosts" // required for SSH
	GitCA          = "ca.crt"      // PEM, trusted instead of the system's authorities
)

// ProvidersFile is the file of model providers in the Secret of a runner pool.
const ProvidersFile = "providers.json"

// Types of model providers.
const (
	// ProviderOpenAI is OpenAI's Chat Completions API.
	ProviderOpenAI = "openai"
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
