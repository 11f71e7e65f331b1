// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
)

// warnModels returns a warning for each model provider without an address and a key on this machine. The project is nil if it
// could not be read.
func warnModels(project *bundle.Project, getenv func(string) string) (warnings bundle.Problems) {
	if project == nil {
		return nil
	}
	var seen []string
	for _, a := range project.Agents {
		for _, use := range a.Models() {
			prefixes := addProvider(nil, use.Reference)
			if len(prefixes) == 0 || slices.Contains(seen, prefixes[0]) {
				continue
			}
			seen = append(seen, prefixes[0])
			name := variablePrefix(prefixes[0])
			if getenv(name+"_BASE_URL") != "" || getenv(name+"_API_KEY") != "" {
				continue
			}
			variables := name + "_BASE_URL and " + name + "_API_KEY"
			if prefixes[0] == openAI {
				variables = name + "_API_KEY"
			}
			warnings = append(warnings, bundle.Problem{Position: a.At(use.Keys...), Message: fmt.Sprintf(
				"this machine has no key for %s, so run, and tests without a mock, cannot ask the model; set %s", use.Reference, variables)})
		}
	}
	return warnings
}

// variablePrefix returns the begin of the names of the environment variables for a provider.
func variablePrefix(provider string) string {
	return strings.ToUpper(strings.ReplaceAll(provider, "-", "_"))
}
